"""The noise of tuning: how far runs of one system lie apart, and what difference between systems so many runs can show.

Runs of a system differ because the tuner starts elsewhere; the test set is held fixed. Let all systems have the same standard
deviation s over runs, estimated from all of them with f degrees of freedom. The difference between the means of K1 and K2 runs
has the standard error s sqrt(1/K1 + 1/K2). A true difference of (t_0.975 + t_0.8) standard errors, quantiles of Student's t
with f degrees of freedom, is found by a two-sided t test at 0.05 four times in five: the minimum detectable effect of
H. Bloom: Minimum Detectable Effects (Evaluation Review 19, 1995).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEVEL, POWER = 0.05, 0.8  # of the two-sided test; the chance that it finds the difference


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a score over tuning runs, pooled over systems, and its degrees of freedom."""

    deviation: float
    freedom: int

    def detectable(self, runs: int, others: int) -> float:
        """Return the smallest true difference between systems that a comparison of so many runs finds."""
        error = self.deviation * math.sqrt(1 / runs + 1 / others)
        return (t_quantile(1 - LEVEL / 2, self.freedom) + t_quantile(POWER, self.freedom)) * error


def pooled(systems: Iterable[Sequence[float]]) -> Noise | None:
    """Pool the deviations of the systems' runs; None if no system has several.

    >>> pooled([[1, 2, 3], [10], [20, 20]])
    Noise(deviation=0.816496580927726, freedom=3)
    """
    several = [runs for runs in systems if len(runs) > 1]
    freedom = sum(len(runs) - 1 for runs in several)
    if not freedom:
        return None
    squares = sum((len(runs) - 1) * statistics.variance(runs) for runs in several)
    return Noise(math.sqrt(squares / freedom), freedom)


def t_quantile(p: float, freedom: int) -> float:
    """Return the quantile of Student's t, 0.5 <= p < 1, by bisection."""
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < 2 * p - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Return P(-t < T < t) of Student's t, t = sqrt(freedom) tan(angle).

    M. Abramowitz, I. Stegun: Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4: exact for whole degrees of freedom.
    """
    odd, square = freedom % 2, math.cos(angle) ** 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for n in range(freedom // 2):
        total += term
        term *= (2 * n + 1 + odd) / (2 * n + 2 + odd) * square
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
