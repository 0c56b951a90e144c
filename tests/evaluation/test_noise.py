"""The noise of tuning: quantiles as tables have them, deviations and detectable differences by hand, the power it promises."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from phrase_rescore.evaluation.significance import POWER, Noise, pooled, t_quantile

PUBLISHED = {  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, and Abramowitz and Stegun, table 26.10
    0.9: {1: 3.078, 2: 1.886, 3: 1.638, 4: 1.533, 5: 1.476, 10: 1.372, 30: 1.310, 100: 1.290},
    0.975: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 18: 2.101, 30: 2.042, 100: 1.984},
    0.995: {1: 63.657, 2: 9.925, 3: 5.841, 4: 4.604, 7: 3.499, 20: 2.845, 60: 2.660},
}


@pytest.mark.parametrize(("p", "freedom", "published"), [(p, f, t) for p, by in PUBLISHED.items() for f, t in by.items()])
def test_quantiles_are_those_of_published_tables(p: float, freedom: int, published: float) -> None:
    assert round(t_quantile(p, freedom), 3) == published


def test_runs_by_hand() -> None:
    assert pooled([[10, 12, 14], [20, 22, 24]]) == Noise(2.0, 4)
    noise = pooled([[10, 12, 14], [20, 22, 24], [5]])
    assert noise
    assert noise.detectable(3, 3) == pytest.approx((2.7764 + 0.9410) * 2 * math.sqrt(2 / 3), abs=1e-3)
    assert noise.detectable(1, 10) == pytest.approx((2.7764 + 0.9410) * 2 * math.sqrt(1.1), abs=1e-3)


def test_runs_of_several_numbers_are_weighted() -> None:
    """Sums of squares 2, 0 and 50 of 2, 1 and 1 degrees of freedom."""
    assert pooled([[1, 2, 3], [7, 7], [0, 10]]) == Noise(math.sqrt(52 / 4), 4)


@pytest.mark.parametrize("systems", [[], [[1.0]], [[1.0], [2.0]]])
def test_single_runs_have_no_noise(systems: Sequence[Sequence[float]]) -> None:
    assert pooled(systems) is None


@pytest.mark.parametrize(("runs", "others"), [(3, 3), (3, 10), (10, 10)])
def test_the_difference_is_found_four_times_in_five(runs: int, others: int) -> None:
    """Two systems that differ by so much, tuned many times over, tell apart by a t test at 0.05 in 80 % of cases."""
    rng, trials, noise = np.random.default_rng(5), 20_000, Noise(0.12, runs + others - 2)
    a, b = rng.normal(0.0, 0.12, (trials, runs)), rng.normal(noise.detectable(runs, others), 0.12, (trials, others))
    variance = (a.var(1, ddof=1) * (runs - 1) + b.var(1, ddof=1) * (others - 1)) / noise.freedom
    t = (b.mean(1) - a.mean(1)) / np.sqrt(variance * (1 / runs + 1 / others))
    assert np.mean(np.abs(t) > t_quantile(0.975, noise.freedom)) == pytest.approx(POWER, abs=0.02)
