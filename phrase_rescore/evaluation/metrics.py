"""sacrebleu's metrics, taken apart: counts of every segment, and scores of their sums.

sacrebleu offers whole scores alone. Its counts are behind methods that it may change: these are called in this module and
nowhere else, and pyproject.toml admits the versions that were tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.ranges import EXAMPLES, SAMPLES, Checked, ranged

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # and what sacrebleu calls their scores

_UNSPACED = {"zh": "zh", "ja": "char"}  # 13a finds no words in them

Counts = NDArray[np.float64]  # (segments, width), as sacrebleu lays them out


class Metric:
    """One of METRICS against references. Without them it only turns counts into scores."""

    def __init__(
        self, name: str, references: Sequence[Segments] = (), tokenize: str = "none", lowercase: bool = False, *,
        effective_order: bool = False,
    ) -> None:  # fmt: skip
        """Make a metric. ``tokenize`` (one of sacrebleu's) and ``effective_order`` are for BLEU, ``lowercase`` is not for TER.

        ``effective_order`` leaves out the n-grams for which a text is too short.
        """
        against = references or None
        self._known = dict[tuple[int, str], list[float]]()  # systems share many translations
        self._metric: Any
        if name == "bleu":  # force: no message about points that stand apart; we warn ourselves
            self._metric = BLEU(
                lowercase=lowercase, force=True, tokenize=tokenize, effective_order=effective_order, references=against
            )  # fmt: skip
        elif name == "chrf":
            self._metric = CHRF(lowercase=lowercase, references=against)
        else:
            self._metric = TER(references=against)

    def signature(self, references: int) -> str:
        """Return sacrebleu's signature of scores against this number of references."""
        self._metric.num_refs = references
        return str(self._metric.get_signature())

    def segment_counts(self, segment: int, text: str) -> list[float]:
        """Count a translation of one segment, from 0."""
        prepared = self._metric._preprocess_segment(text)
        return list(self._metric._compute_segment_statistics(prepared, self._metric._ref_cache[segment]))

    def counts(self, output: Segments) -> Counts:
        """Count translations of all segments."""
        for item in enumerate(output):
            if item not in self._known:
                self._known[item] = self.segment_counts(*item)
        return np.array([self._known[item] for item in enumerate(output)], float)

    def score(self, sums: Sequence[float] | NDArray[Any]) -> float:
        """Return the score of sums of counts, (width,)."""
        return float(self._metric._compute_score_from_stats(sums).score)

    def score_of(self, counts: Counts) -> float:
        """Return the score of all segments, (segments, width), which are added as sacrebleu adds them."""
        return float(self._metric._aggregate_and_compute(counts.tolist()).score)


@dataclass(frozen=True)
class EvaluationSettings(Checked):
    """How outputs are scored and compared. ``tokenize`` None: as fits the text."""

    metrics: tuple[str, ...] = tuple(METRICS)
    tokenize: str | None = None  # one of sacrebleu's, for BLEU
    detokenize: str | None = None  # a language code; None: texts are scored as they are
    lowercase: bool = False  # for BLEU and chrF; sacrebleu's TER never tells case
    samples: int | None = ranged(None, SAMPLES)  # None: 1,000 of the bootstrap, 10,000 of the randomization
    examples: int = ranged(0, EXAMPLES)  # segments to show that gained most, and as many that lost most

    @property
    def resamples(self) -> int:
        return self.samples or 1000

    @property
    def shuffles(self) -> int:
        return self.samples or 10_000

    @property
    def tokenization(self) -> str:
        """BLEU's tokenization: none for tokens of Moses; for detokenized text that of WMT."""
        return self.tokenize or (_UNSPACED.get(self.detokenize, "13a") if self.detokenize else "none")

    def text(self) -> str:
        """What the scored text is."""
        return "as it is" if self.detokenize is None else f"detokenized by sacremoses ({self.detokenize}), escapes undone"

    def make_metrics(self, references: Sequence[Segments] = ()) -> dict[str, Metric]:
        """Make the metrics, by the names of their scores, in the order of METRICS."""
        asked = [name for name in METRICS if name in self.metrics]
        return {METRICS[name]: Metric(name, references, self.tokenization, self.lowercase) for name in asked}

    def signatures(self, references: int) -> dict[str, str]:
        """Return the signatures of scores against this number of references, by the names of the scores."""
        return {name: metric.signature(references) for name, metric in self.make_metrics().items()}
