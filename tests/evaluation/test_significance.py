"""Approximate randomization against every shuffle there is, and sacrebleu; the noise of tuning by hand."""

import math
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest

from phrase_rescore.evaluation import significance
from phrase_rescore.evaluation.significance import Noise, pooled, randomization_p_values


def ratio(sums: list[float]) -> float:
    """A score that is no sum of its segments' scores."""
    return 100 * sums[0] / sums[1]


def square(sums: list[float]) -> float:
    return sums[0] ** 2 / 100


def exact_p(a: np.ndarray, b: np.ndarray, score: Callable[[list[float]], float]) -> float:
    """The share of all shuffles whose difference is at least the observed one."""
    outputs = np.concatenate([a, b]).tolist()
    orders = list(permutations(range(len(outputs))))
    width = len(outputs[0][0])

    def difference(assigned: tuple[tuple[int, ...], ...]) -> float:
        scores = [
            score([sum(outputs[order[run]][segment][i] for segment, order in enumerate(assigned)) for i in range(width)])
            for run in range(len(outputs))
        ]
        return abs(sum(scores[: len(a)]) / len(a) - sum(scores[len(a) :]) / len(b))

    every = [difference(assigned) for assigned in product(orders, repeat=a.shape[1])]
    observed = difference((orders[0],) * a.shape[1])
    return sum(found >= observed - 1e-9 for found in every) / len(every)


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "segments"), [((1, 1), 6), ((2, 1), 4), ((1, 2), 3), ((2, 2), 2)])
def test_p_is_the_share_of_all_shuffles(runs: tuple[int, int], segments: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(1, 30, (n, segments, 2)).astype(float) for n in runs)
        samples = 20_000
        found = randomization_p_values([a, a[..., :1]], [b, b[..., :1]], [ratio, square], samples, seed=1)
        for p, expected in zip(found, (exact_p(a, b, ratio), exact_p(a[..., :1], b[..., :1], square)), strict=True):
            assert p == pytest.approx(expected, abs=4.5 * np.sqrt(expected * (1 - expected) / samples) + 1e-4)


def test_one_segment_is_no_evidence() -> None:
    """Whichever way its outputs go, the difference stays. sacrebleu counts only larger ones: p would be 1/1000."""
    a = np.random.default_rng(0).integers(1, 30, (1, 100, 2)).astype(float)
    b = a.copy()
    b[0, 7, 0] += 5
    assert randomization_p_values([a], [b], [ratio], 999, seed=1) == [1.0]


def test_a_difference_that_no_shuffle_reaches() -> None:
    a, b = np.zeros((2, 40, 1)), np.ones((3, 40, 1))
    assert randomization_p_values([a], [b], [square], 199, seed=1) == [1 / 200]


def test_the_seed_and_nothing_else_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(1, 30, (3, 20, 2)).astype(float), rng.integers(1, 30, (2, 20, 2)).astype(float)

    def p(seed: int) -> list[float]:
        return randomization_p_values([a], [b], [ratio], 999, seed)

    first = p(1)
    assert p(1) == first != p(2)
    monkeypatch.setattr(significance, "_ROOM", 700)  # 7 trials at a time
    assert p(1) == first


def test_runs_by_hand() -> None:
    assert pooled([[1, 2, 3], [7, 7], [0, 10]]) == Noise(math.sqrt(52 / 4), 4)  # squares 2, 0, 50 of 2, 1, 1 degrees of freedom
    assert [pooled(systems) for systems in ([], [[1.0]], [[1.0], [2.0]])] == [None] * 3
