"""The segments that a system translates most better and most worse than the baseline, by sentence BLEU."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phrase_rescore.evaluation.corpora import Segments, Text
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
    regions: list[Region]  # that they translate by other phrase pairs, if both outputs have phrases

    def lines(self, baseline: str, system: str) -> Iterator[str]:
        """Yield its lines for people."""
        yield "segment {}: BLEU {:.2f} → {:.2f}".format(self.segment, *self.bleu)
        rows = [("source", self.source)] if self.source is not None else []
        rows += [("reference", reference) for reference in self.references]
        rows += [(baseline, self.outputs[0]), (system, self.outputs[1])]
        for region in self.regions:
            span = f"|{region.first}-{region.last}|"
            rows += [(f"{baseline} {span}", _pairs_text(region.baseline)), (f"{system} {span}", _pairs_text(region.system))]
        width = max(len(label) for label, _ in rows)
        for label, text in rows:
            yield f"{label:{width}}  {in_one_line(text)}".rstrip()


def _pairs_text(pairs: Iterable[PhrasePair]) -> str:
    return " | ".join(f"{src} → {tgt}" if src else tgt for src, tgt in pairs)


Examples = dict[str, list[Example]]  # those that gained, those that lost


def make_examples(
    n: int, bleu: Sequence[tuple[float, float]], sources: Segments | None, references: Sequence[Segments],
    outputs: tuple[Text, Text],
) -> Examples:  # fmt: skip
    """Return the ``n`` segments that gained most and the ``n`` that lost most, the largest change first.

    ``outputs`` and the pairs of ``bleu`` are those of the baseline and of the system.
    """
    baseline, system = outputs

    def example(i: int) -> Example:
        source = sources[i] if sources else None
        regions = list[Region]()
        if baseline.phrases and system.phrases:
            regions = list(differing_regions(baseline.phrases[i], system.phrases[i], words((source or "").encode())))
        texts = baseline.segments[i], system.segments[i]
        return Example(i + 1, bleu[i], source, tuple(reference[i] for reference in references), texts, regions)

    gains = [other - one for one, other in bleu]
    segments = range(len(gains))
    gained = sorted((i for i in segments if gains[i] > 0), key=lambda i: -gains[i])
    lost = sorted((i for i in segments if gains[i] < 0), key=lambda i: gains[i])
    return {"gained": [example(i) for i in gained[:n]], "lost": [example(i) for i in lost[:n]]}


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
