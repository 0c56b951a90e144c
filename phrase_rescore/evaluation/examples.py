"""The segments that a system translates most better and most worse than the baseline, by sentence BLEU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phrase_rescore.evaluation.corpora import Text
from phrase_rescore.evaluation.metrics import Segments
from phrase_rescore.messages import in_one_line
from phrase_rescore.moses.hypotheses import Derivation, UsedPhrase
from phrase_rescore.moses.table import words

PhrasePair = tuple[str, str]  # the source is empty if its text is not known


@dataclass(frozen=True)
class Region:
    """Source words ``first`` to ``last``, from 0, and the phrase pairs of both systems there, in target order."""

    first: int
    last: int
    baseline: list[PhrasePair]
    system: list[PhrasePair]


@dataclass(frozen=True)
class Example:
    """A segment, as it is scored. Pairs of values are those of the baseline and of the system."""

    segment: int  # from 1
    bleu: tuple[float, float]  # of this sentence alone
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, str]
    regions: list[Region]  # that they translate by other phrase pairs, where both outputs have phrases

    def lines(self, baseline: str, system: str) -> Iterator[str]:
        """Yield its lines for people."""
        one, other = self.bleu
        yield f"segment {self.segment}: BLEU {one:.2f} → {other:.2f}"
        rows = [] if self.source is None else [("source", self.source)]
        rows += [("reference", reference) for reference in self.references]
        rows += zip((baseline, system), self.outputs, strict=True)
        for region in self.regions:
            span = f"|{region.first}-{region.last}|"
            rows += [(f"{baseline} {span}", _pairs_text(region.baseline)), (f"{system} {span}", _pairs_text(region.system))]
        width = max(len(label) for label, _ in rows)
        for label, text in rows:
            yield f"{label:{width}}  {in_one_line(text)}".rstrip()


def _pairs_text(pairs: Iterable[PhrasePair]) -> str:
    return " | ".join(f"{src} → {tgt}" if src else tgt for src, tgt in pairs)


def most_changed(bleu: Sequence[tuple[float, float]], n: int) -> tuple[list[int], list[int]]:
    """Return which segments gain most, and which lose most, at most ``n`` of each, the largest change first.

    >>> most_changed([(10, 30), (50, 40), (20, 20), (10, 90)], 1)
    ([3], [1])
    """
    gains = [other - one for one, other in bleu]
    gained = [i for i, gain in enumerate(gains) if gain > 0]
    lost = [i for i, gain in enumerate(gains) if gain < 0]
    return sorted(gained, key=lambda i: -gains[i])[:n], sorted(lost, key=lambda i: gains[i])[:n]


@dataclass(frozen=True)
class Examples:
    """The segments that a system translates most better than the baseline, and most worse, the largest change first."""

    gained: list[Example]
    lost: list[Example]


def make_examples(
    n: int, bleu: Sequence[tuple[float, float]], sources: Segments | None, references: Sequence[Segments],
    outputs: tuple[Text, Text],
) -> Examples:  # fmt: skip
    """Return at most ``n`` examples of each kind. ``outputs`` and the pairs of ``bleu``: the baseline's and the system's."""

    def example(i: int) -> Example:
        source = sources[i] if sources else None
        one, other = outputs
        regions = list[Region]()
        if one.phrases and other.phrases:
            regions = list(differing_regions(one.phrases[i], other.phrases[i], words((source or "").encode())))
        of_references = tuple(reference[i] for reference in references)
        return Example(i + 1, bleu[i], source, of_references, (one.segments[i], other.segments[i]), regions)

    gained, lost = most_changed(bleu, n)
    return Examples(list(map(example, gained)), list(map(example, lost)))


def differing_regions(one: Derivation, other: Derivation, source: Sequence[bytes]) -> Iterator[Region]:
    """Yield the smallest regions whose phrases differ, in the order of the source. Both derivations cover the same source."""
    first = 0
    for last in sorted({phrase.last for phrase in one} & {phrase.last for phrase in other}):
        both = [[phrase for phrase in phrases if first <= phrase.first <= last] for phrases in (one, other)]
        if set(both[0]) != set(both[1]):
            yield Region(first, last, *(_pairs(phrases, source) for phrases in both))
        first = last + 1


def _pairs(phrases: Iterable[UsedPhrase], source: Sequence[bytes]) -> list[PhrasePair]:
    return [(b" ".join(source[phrase.first : phrase.last + 1]).decode(), phrase.tgt.decode()) for phrase in phrases]
