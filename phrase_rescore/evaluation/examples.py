"""The segments that a system translates most better and most worse than the baseline, by sentence BLEU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.evaluation.metrics import Counts, Metric
from phrase_rescore.messages import in_one_line


@dataclass(frozen=True)
class Example:
    """A segment, as it is scored. Pairs of values are those of the baseline and of the system."""

    segment: int  # from 1
    bleu: tuple[float, float]  # of this sentence alone
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, str]

    def lines(self, baseline: str, system: str) -> Iterator[str]:
        """Yield its lines for people."""
        yield "segment {}: BLEU {:.2f} → {:.2f}".format(self.segment, *self.bleu)
        rows = [("source", self.source)] if self.source is not None else []
        rows += [("reference", reference) for reference in self.references]
        rows += [(baseline, self.outputs[0]), (system, self.outputs[1])]
        width = max(len(label) for label, _ in rows)
        for label, text in rows:
            yield f"{label:{width}}  {in_one_line(text)}".rstrip()


Examples = dict[str, list[Example]]  # those that gained, those that lost


def make_examples(
    n: int, counts: tuple[Counts, Counts], sources: Segments | None, references: Sequence[Segments],
    outputs: tuple[Segments, Segments],
) -> Examples:  # fmt: skip
    """Return the ``n`` segments that gained most and the ``n`` that lost most, the largest change first.

    ``outputs`` and their ``counts`` of BLEU are those of the baseline and of the system.
    """
    metric = Metric("bleu", effective_order=True)
    one, other = (list(map(metric.score, of_output.tolist())) for of_output in counts)

    def example(i: int) -> Example:
        of_references = tuple(reference[i] for reference in references)
        texts = outputs[0][i], outputs[1][i]
        return Example(i + 1, (one[i], other[i]), sources[i] if sources else None, of_references, texts)

    gains = [after - before for before, after in zip(one, other, strict=True)]
    order = sorted(range(len(gains)), key=lambda i: -abs(gains[i]))
    gained, lost = ([i for i in order if sign * gains[i] > 0] for sign in (1, -1))
    return {"gained": [example(i) for i in gained[:n]], "lost": [example(i) for i in lost[:n]]}
