"""sacrebleu's metrics, taken apart: counts of every segment, and scores of their sums.

sacrebleu offers whole scores alone. Its counts are behind methods that it may change: these are called in this module and
nowhere else, and pyproject.toml admits the versions that were tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # and what sacrebleu calls their scores

Counts = NDArray[np.float64]  # (segments, width), as sacrebleu lays them out
Segments = tuple[str, ...]


def sacrebleu_version() -> str:
    """Return the version of sacrebleu that is installed."""
    return version("sacrebleu")


class Metric:
    """One of METRICS against references. Without them it only turns counts into scores."""

    def __init__(
        self, name: str, references: Sequence[Segments] = (), *, tokenize: str = "none", lowercase: bool = False,
        effective_order: bool = False,
    ) -> None:  # fmt: skip
        """Make a metric. ``tokenize`` (one of sacrebleu's) and ``effective_order`` are for BLEU, ``lowercase`` is not for TER.

        ``effective_order`` leaves out the n-grams for which a text is too short.
        """
        against = references or None
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
        return np.array([self.segment_counts(i, text) for i, text in enumerate(output)], float)

    def score(self, sums: Sequence[float] | NDArray[Any]) -> float:
        """Return the score of sums of counts, (width,)."""
        return float(self._metric._compute_score_from_stats(sums).score)

    def score_of(self, counts: Counts) -> float:
        """Return the score of all segments, (segments, width), which are added as sacrebleu adds them."""
        return float(self._metric._aggregate_and_compute(counts.tolist()).score)
