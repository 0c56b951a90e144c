"""What a comparison of two systems looks at: regions of a source where outputs differ, and the table's pairs that they use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.segmentation import Derivation, UsedPhrase
from phrase_rescore.moses.table import TableBlock, read_table, words

CUTS = (
    "the same source phrases, other targets", "fewer, longer source phrases", "more, shorter source phrases",
    "as many source phrases, cut elsewhere",
)  # fmt: skip


class Region(NamedTuple):
    """Source words ``first`` to ``last``, from 0, and the phrases that each system uses for them, in its target order.

    Where the phrases differ and their words do not, the region is ``recut``.
    """

    first: int
    last: int
    phrases: tuple[Derivation, Derivation]

    @property
    def recut(self) -> bool:
        one, other = (b" ".join(phrase.tgt for phrase in phrases) for phrases in self.phrases)
        return one == other

    @property
    def cut(self) -> str:
        """How the second system cuts the region, one of CUTS."""
        one, other = ({(phrase.first, phrase.last) for phrase in phrases} for phrases in self.phrases)
        return CUTS[0 if one == other else 1 if len(other) < len(one) else 2 if len(other) > len(one) else 3]


def differing_regions(one: Derivation, other: Derivation) -> list[Region]:
    """Return the smallest regions whose phrases differ, in the order of the source. Both must cover the same source.

    >>> def used(*phrases): return tuple(UsedPhrase(*phrase) for phrase in phrases)
    >>> both = used((0, 0, b"a"), (1, 2, b"b c")), used((0, 0, b"a"), (2, 2, b"c"), (1, 1, b"b"))
    >>> [(region.first, region.last, region.cut) for region in differing_regions(*both)]
    [(1, 2, 'more, shorter source phrases')]
    """
    ends = sorted({phrase.last for phrase in one} & {phrase.last for phrase in other})
    regions = list[Region]()
    first = 0
    for last in ends:
        phrases = tuple(tuple(phrase for phrase in used if first <= phrase.first <= last) for used in (one, other))
        if set(phrases[0]) != set(phrases[1]):
            regions.append(Region(first, last, (phrases[0], phrases[1])))
        first = last + 1
    return regions


def take_words(phrases: Iterable[UsedPhrase], left: Counter[bytes]) -> dict[UsedPhrase, int]:
    """Count for every phrase how many of its words are ``left`` of the reference, and take them from there.

    Taken first for the phrases that both systems use and then for the others, they come to BLEU's number of right unigrams.
    """
    right = dict.fromkeys(phrases, 0)
    for phrase in right:
        for word in phrase.tgt.split(b" "):
            if left[word] > 0:
                left[word] -= 1
                right[phrase] += 1
    return right


def occurs(phrase: bytes, reference: bytes) -> bool:
    """Tell whether a phrase stands in the reference as a whole, both with single blanks between words.

    >>> occurs(b"a b", b"x a b c"), occurs(b"a b", b"x a bc")
    (True, False)
    """
    return b" %b " % phrase in b" %b " % reference


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
        for rows in read_table(self._name, n, on_read):
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
