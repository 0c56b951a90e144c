"""Where the phrases of two outputs differ: regions of a source, kinds of change, and the table's pairs that were used."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.hypotheses import Derivation, UsedPhrase
from phrase_rescore.moses.table import TableBlock, read_table

CUTS = (
    "the same source phrases, other targets", "fewer, longer source phrases", "more, shorter source phrases",
    "as many source phrases, cut elsewhere",
)  # fmt: skip


class Region(NamedTuple):
    """Source words ``first`` to ``last``, from 0, and the phrases that each system uses for them, in its target order."""

    first: int
    last: int
    phrases: tuple[Derivation, Derivation]

    @property
    def recut(self) -> bool:
        """Whether the phrases differ and their words do not."""
        one, other = map(text_of, self.phrases)
        return one == other

    @property
    def cut(self) -> str:
        """How the second system cuts the region, one of CUTS."""
        one, other = ({(phrase.first, phrase.last) for phrase in phrases} for phrases in self.phrases)
        return CUTS[0 if one == other else 1 if len(other) < len(one) else 2 if len(other) > len(one) else 3]


def text_of(phrases: Iterable[UsedPhrase]) -> bytes:
    """Return what phrases say, single blanks between words."""
    return b" ".join(phrase.tgt for phrase in phrases if phrase.tgt)


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

    Over all phrases of a segment they come to BLEU's number of right unigrams.
    """
    right = dict.fromkeys(phrases, 0)
    for phrase in right:
        for word in phrase.tgt.split(b" "):
            if left[word] > 0:
                left[word] -= 1
                right[phrase] += 1
    return right


class TablePair(NamedTuple):
    """A phrase pair of the table."""

    logs: list[float]  # natural logarithm of every score
    source: float  # how often the source was seen, nan where the table does not say
    joint: float  # how often both were


class UsedTable:
    """What the comparison reads of a table: the phrase pairs that were used, and which of their sources the table has.

    Raises InputError for a table that cannot be read.
    """

    def __init__(self, table: str) -> None:
        self.name, self.columns = table, TableColumns.read(table)
        self.unknown: ScoreColumn | None = self.columns.unknown(self.columns.score())  # words unknown to the network
        self.sources = set[bytes]()
        self.pairs: dict[tuple[bytes, bytes], TablePair] = {}

    def read(self, wanted: Collection[tuple[bytes, bytes]], on_read: Callable[[int], object] | None) -> None:
        """Read the table once and keep these pairs (source, target)."""
        sources, n = {src for src, _ in wanted}, len(self.columns)
        for rows in read_table(self.name, n, on_read):
            at = [i for i, src in enumerate(rows.src) if src in sources]
            heads, src, tgt, tails = ([of[i] for i in at] for of in (rows.heads, rows.src, rows.tgt, rows.tails))
            some = TableBlock(at, heads, src, tgt, tails)
            self.sources.update(src)
            logs = self.columns.logs(some.values(n)).tolist()
            for key, of_row, seen in zip(zip(src, tgt, strict=True), logs, some.occurrences().tolist(), strict=True):
                if key in wanted:
                    self.pairs[key] = TablePair(of_row, *seen)
