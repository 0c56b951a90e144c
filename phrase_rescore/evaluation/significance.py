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

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric

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


def bootstrap_p_values(
    a: Mapping[str, Statistics], b: Mapping[str, Statistics], metrics: Mapping[str, Metric], samples: int, seed: int
) -> dict[str, float]:
    """Return p by metric of one output against another, as ``sacrebleu --paired-bs`` computes it: in 32-bit floats.

    ``a`` and ``b``: (segments, width) by metric. A difference of 0 has p 1: sacrebleu counts only what is larger, and gives
    a system its smallest p against itself.
    """
    segments = len(next(iter(a.values())))
    resamples = np.random.default_rng(seed).choice(segments, size=(samples, segments), replace=True)
    found = {}
    for name, metric in metrics.items():
        pair = [counts[name].astype(np.float32) for counts in (a, b)]
        scores = [[metric._compute_score_from_stats(counts[some].sum(0)).score for some in resamples] for counts in pair]
        differences = np.abs(np.array(scores[1]) - np.array(scores[0]))
        whole = [metric._aggregate_and_compute(counts[name].tolist()).score for counts in (a, b)]
        larger = int((differences - differences.mean() > abs(whole[0] - whole[1])).sum())
        found[name] = (larger + 1) / (samples + 1) if whole[0] != whole[1] else 1.0
    return found
