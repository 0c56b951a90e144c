"""Are two systems different? Approximate randomization over tuning runs, sacrebleu's paired bootstrap, the noise of tuning.

J. Clark, C. Dyer, A. Lavie, N. Smith: Better Hypothesis Testing for Statistical Machine Translation (ACL 2011). The outputs of
every segment are shuffled among all runs of both systems, and the difference of the mean scores is measured again. Ties count;
MultEval and sacrebleu count larger differences only, and two equal systems get the smallest p there is.

The noise of tuning is the standard deviation of a score over runs, one for all systems.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.evaluation.metrics import Metric

Statistics = NDArray[np.float64]
Scorer = Callable[[list[float]], float]

SEED = 12345  # of both tests; sacrebleu's own
LEVEL = 0.05  # p below which a difference is called one
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
    a: Sequence[Statistics], b: Sequence[Statistics], scorers: Sequence[Scorer], samples: int, seed: int = SEED
) -> list[float]:
    """Return the two-sided p value under each metric: (c + 1) / (samples + 1), c shuffles have at least this difference.

    ``a`` and ``b``: for each metric (runs, segments, width) sufficient statistics, whose sum over segments its scorer scores.
    """
    widths, runs = [counts.shape[-1] for counts in a], len(a[0])
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
    a: Mapping[str, Statistics], b: Mapping[str, Statistics], metrics: Mapping[str, Metric], samples: int
) -> dict[str, float]:
    """Return p by metric of one output against another, as ``sacrebleu --paired-bs`` computes it: in 32-bit floats.

    ``a`` and ``b``: (segments, width) by metric. A difference of 0 has p 1, where sacrebleu gives the smallest p there is.
    """
    segments = len(next(iter(a.values())))
    resamples = np.random.default_rng(SEED).choice(segments, size=(samples, segments), replace=True)
    found = {}
    for name, metric in metrics.items():
        pair = [counts[name].astype(np.float32) for counts in (a, b)]
        scores = [[metric.score(counts[some].sum(0)) for some in resamples] for counts in pair]
        differences = np.abs(np.array(scores[1]) - np.array(scores[0]))
        whole = [metric.score_of(counts[name]) for counts in (a, b)]
        larger = int((differences - differences.mean() > abs(whole[0] - whole[1])).sum())
        found[name] = (larger + 1) / (samples + 1) if whole[0] != whole[1] else 1.0
    return found


class Noise(NamedTuple):
    """The standard deviation of a score over tuning runs, pooled over systems, and its degrees of freedom."""

    standard_deviation: float
    degrees_of_freedom: int


def pooled(systems: Iterable[Sequence[float]]) -> Noise | None:
    """Pool the deviations of the systems' runs; None if no system has several.

    >>> pooled([[1, 2, 3], [10], [20, 20]])
    Noise(standard_deviation=0.816496580927726, degrees_of_freedom=3)
    """
    several = [runs for runs in systems if len(runs) > 1]
    freedom = sum(len(runs) - 1 for runs in several)
    if not freedom:
        return None
    return Noise(math.sqrt(sum((len(runs) - 1) * statistics.variance(runs) for runs in several) / freedom), freedom)
