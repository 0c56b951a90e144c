"""The metrics, and the settings of an evaluation: how text is scored, how systems are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.ranges import SAMPLES, TEST_SEEDS, Checked, ranged

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # and what sacrebleu calls their scores
_UNSPACED = {"zh": "zh", "ja": "char"}  # 13a finds no words in them


@dataclass(frozen=True)
class EvaluationSettings(Checked):
    """How texts are scored and compared. ``tokenize`` None: as fits the text."""

    metrics: tuple[str, ...] = tuple(METRICS)
    tokenize: str | None = None  # one of sacrebleu's, for BLEU
    detokenize: str | None = None  # a language code; None: texts are scored as they are
    lowercase: bool = False  # for BLEU and chrF; sacrebleu's TER never tells case
    baseline: str | None = None  # None: the first system
    resamples: int = ranged(1000, SAMPLES)
    shuffles: int = ranged(10_000, SAMPLES)
    seed: int = ranged(12345, TEST_SEEDS)  # not 0, which PairedTest takes for no seed

    @property
    def tokenization(self) -> str:
        """BLEU's tokenization: tokens of Moses stay what they are; detokenized text is cut as WMT's BLEU cuts it."""
        return self.tokenize or (_UNSPACED.get(self.detokenize, "13a") if self.detokenize else "none")

    @property
    def sacremoses(self) -> str | None:
        """The version of what detokenizes; None if nothing does."""
        return version("sacremoses") if self.detokenize else None

    def text(self) -> str:
        """What the scored text is."""
        if self.detokenize is None:
            return "as it is"
        return f"detokenized ({self.detokenize}), escapes undone, by sacremoses {self.sacremoses}"

    def make_metrics(self, number: int, references: Sequence[Segments] = ()) -> dict[str, Metric]:
        """Make sacrebleu's metrics for so many references, by the names it gives their scores.

        Without the references themselves they do not count; they turn counts into scores.
        """
        given = references or None
        made: dict[str, Callable[[], Metric]] = {
            # force: no message about points that stand apart; warnings are ours
            "bleu": lambda: BLEU(tokenize=self.tokenization, lowercase=self.lowercase, force=True, references=given),
            "chrf": lambda: CHRF(lowercase=self.lowercase, references=given),
            "ter": lambda: TER(references=given),
        }
        metrics = {METRICS[name]: made[name]() for name in self.metrics}
        for metric in metrics.values():
            metric.num_refs = number  # which the signature has
        return metrics

    def signatures(self, references: int) -> dict[str, str]:
        """Return the signatures of scores against so many references, by the names of the scores."""
        return {name: str(metric.get_signature()) for name, metric in self.make_metrics(references).items()}
