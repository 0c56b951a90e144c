"""What a comparison of two systems knows: the phrase pairs that they use, the table's best targets, segments side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phrase_rescore.evaluation.regions import Region, occurs
from phrase_rescore.files.blocks import read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.segmentation import UsedPhrase
from phrase_rescore.moses.table import TableBlock, parse_block, words

_BLOCK_ROWS = 16384


class TablePair(NamedTuple):
    """A phrase pair of the table."""

    logs: list[float]  # natural logarithm of every score
    source: float  # how often the source was seen, nan where the table does not say
    joint: float  # how often both were


@dataclass(slots=True)
class TableSource:
    """A source phrase of the table, with its best targets."""

    targets: int = 0
    phi: float = -math.inf  # log
    by_phi: list[bytes] = field(default_factory=list)  # all that have this φ
    score: float = -math.inf
    by_score: bytes = b""  # the first one that has this score


class UsedTable:
    """What the comparison reads of a table: the phrase pairs that were used, and the best targets of their sources.

    Raises InputError for a table that cannot be read, OptionError for a column that it does not have.
    """

    def __init__(self, table: str, score: int | None, phi: int | None) -> None:
        self._name = table
        self.columns = TableColumns.read(table)
        self.score = self.columns.asked("--score-column", score) or self.columns.score()
        inverse = self.score is not None and self.score.inverse
        self.phi = self.columns.asked("--phi-column", phi) or self.columns.phi(inverse)
        self.unknown: ScoreColumn | None = self.columns.unknown(self.score)  # words unknown to the score's network
        self.sources: dict[bytes, TableSource] = {}
        self.pairs: dict[tuple[bytes, bytes], TablePair] = {}

    def read(self, wanted: Collection[tuple[bytes, bytes]], on_read: Callable[[int], object] | None) -> None:
        """Read the table once and keep these pairs (source, target) and what is best for their sources."""
        sources, n = {src for src, _ in wanted}, len(self.columns)
        with open_input(self._name, on_read) as stream:
            for block in read_blocks(stream, _BLOCK_ROWS):
                rows = parse_block(block, n)
                for line, _, error in rows.bad:
                    raise error.at(display_name(self._name), line)
                at = [i for i, src in enumerate(rows.src) if src in sources]
                heads, src, tgt, tails = ([of[i] for i in at] for of in (rows.heads, rows.src, rows.tgt, rows.tails))
                some = TableBlock(at, heads, src, tgt, tails)
                logs = self.columns.logs(some.values(n)).tolist()
                for key, of_row, seen in zip(zip(src, tgt, strict=True), logs, some.occurrences().tolist(), strict=True):
                    self._add(key, of_row)
                    if key in wanted:
                        self.pairs[key] = TablePair(of_row, *seen)

    def _add(self, key: tuple[bytes, bytes], logs: list[float]) -> None:
        source = self.sources.setdefault(key[0], TableSource())
        source.targets += 1
        if (phi := self.phi.of(logs)) >= source.phi:
            source.by_phi = [*(source.by_phi if phi == source.phi else ()), key[1]]
            source.phi = phi
        if self.score is not None and (score := self.score.of(logs)) > source.score:
            source.score, source.by_score = score, key[1]


class Choice(NamedTuple):
    """A phrase that a system used."""

    src: bytes
    tgt: bytes
    words: int  # of the target
    right: int  # of these words in the reference
    differs: bool  # it stands in a region whose words differ
    pair: TablePair | None  # None: the table does not have it


@dataclass(frozen=True)
class ComparedSegment:
    """A line of the source, what both systems make of it, and where they differ."""

    number: int  # from 1
    source: list[bytes]
    reference: bytes
    choices: list[dict[UsedPhrase, Choice]]  # of both systems, in target order
    bleu: list[float]  # sentence BLEU
    effect: float  # on the first system's corpus BLEU, if this segment alone were the second system's
    regions: list[Region]  # those whose words differ
    recut: int  # regions where both have the same words from other phrases
    left: Counter[bytes]  # the words of the reference that the phrases outside of the regions have left

    def has(self, phrase: bytes) -> bool:
        """Tell whether a phrase stands in the reference, of words that are left."""
        return occurs(phrase, self.reference) and Counter(words(phrase)) <= self.left

    def text(self, system: int) -> bytes:
        """Return a system's output, single blanks between words."""
        return text_of(self.choices[system])

    def chosen(self, region: Region, system: int) -> list[Choice]:
        """Return a system's choices for a region."""
        return [self.choices[system][phrase] for phrase in region.phrases[system]]


def text_of(phrases: Iterable[UsedPhrase]) -> bytes:
    return b" ".join(phrase.tgt for phrase in phrases if phrase.tgt)


def source_of(source: Sequence[bytes], phrase: UsedPhrase) -> bytes:
    return b" ".join(source[phrase.first : phrase.last + 1])
