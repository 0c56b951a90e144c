"""Are two systems different? Stratified approximate randomization over tuning runs, and sacrebleu's paired bootstrap.

J. Clark, C. Dyer, A. Lavie, N. Smith: Better Hypothesis Testing for Statistical Machine Translation: Controlling for
Optimizer Instability (ACL 2011). If the systems were the same, any output of a segment might as well have come from any run
of either system. So the outputs of every segment, a stratum, are shuffled among all runs of both, and the difference
between the systems' mean scores is measured again. With one run each it is paired approximate randomization.

Their program, MultEval, and sacrebleu after it count only shuffles whose difference is larger than the observed one. Two
systems that differ in a single segment, or in none, then get the smallest p there is. Here ties count, as they must for p
to be the probability of a difference at least as large.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from phrase_rescore.evaluation.statistics_files import OutputStatistics

Statistics = NDArray[np.float64]
Scorer = Callable[[list[float]], float]

_ROOM = 1 << 22  # numbers of the largest array
_ROUNDING = 1e-9  # of a mean of scores, which are at most a few hundred


def _differences(sums: Statistics, runs: int, scorers: Sequence[Scorer], widths: Sequence[int]) -> Statistics:
    """Return absolute differences of mean scores, (trials, metrics), from statistics (trials, all runs, widths)."""
    found = []
    for part, score in zip(np.split(sums, np.cumsum(widths)[:-1], axis=-1), scorers, strict=True):
        scores = np.array([[score(run) for run in trial] for trial in part.tolist()])
        found.append(np.abs(scores[:, :runs].mean(1) - scores[:, runs:].mean(1)))
    return np.stack(found, axis=1)


def randomization_p_values(
    a: Sequence[Statistics], b: Sequence[Statistics], scorers: Sequence[Scorer], samples: int, seed: int
) -> list[float]:
    """Return the two-sided p value of the difference between two systems under each metric.

    ``a`` and ``b`` have an array for each metric: (runs, segments, width) sufficient statistics, whose sum over the segments
    the metric's scorer turns into the score of a run. All metrics are measured on the same ``samples`` shuffles.

    p = (c + 1) / (samples + 1), c the shuffles whose difference is at least the one observed.
    """
    widths = [statistics.shape[-1] for statistics in a]
    runs = len(a[0])
    outputs = np.concatenate([np.concatenate(pair) for pair in zip(a, b, strict=True)], axis=-1)
    n, segments, width = outputs.shape
    observed = _differences(outputs.sum(1)[None], runs, scorers, widths)[0]
    by_segment = outputs.transpose(1, 0, 2).reshape(segments * n, width)
    rng, which = np.random.default_rng(seed), np.arange(n)
    chunk = max(1, _ROOM // (segments * n))
    reached = np.zeros(len(scorers), np.int64)
    for first in range(0, samples, chunk):
        trials = min(chunk, samples - first)
        order = rng.permuted(np.broadcast_to(which, (trials, segments, n)), axis=-1)  # [:, :, r]: the outputs that run r gets
        sums = [(order[:, :, run, None] == which).reshape(trials, -1).astype(np.float64) @ by_segment for run in range(n)]
        reached += (_differences(np.stack(sums, axis=1), runs, scorers, widths) >= observed - _ROUNDING).sum(0)
    return [(int(count) + 1) / (samples + 1) for count in reached]


class _Counted:
    """A metric whose outputs are counted already."""

    def __init__(self, metric: Metric, name: str) -> None:
        self._metric, self._name = metric, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._metric, attribute)

    def _extract_corpus_statistics(self, output: OutputStatistics, references: None) -> Any:
        return output.counts[self._name]


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Give PairedTest its seed, which it takes from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def bootstrap_p_values(
    systems: Mapping[str, OutputStatistics], metrics: Mapping[str, Metric], samples: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return p[system][metric] of one output against the first system's, as ``sacrebleu --paired-bs`` does.

    A difference of 0 has p 1: PairedTest counts only what is larger, and gives a system its smallest p against itself.
    """
    if len(systems) < 2:
        return {}
    counted: dict[str, Any] = {name: _Counted(metric, name) for name, metric in metrics.items()}
    outputs: list[Any] = list(systems.items())
    with _sacrebleu_seed(seed):
        _, results = PairedTest(outputs, counted, None, "bs", samples)()
    by_metric: dict[str, Any] = {name: results[name] for name in metrics}
    found: dict[str, dict[str, float]] = {}
    for number, system in list(enumerate(systems))[1:]:
        scores = {name: (result[0], result[number]) for name, result in by_metric.items()}
        found[system] = {name: 1.0 if of.score == base.score else of.p_value for name, (base, of) in scores.items()}
    return found
