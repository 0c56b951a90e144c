"""Figures from what was taken of a table: correlations, quantiles, the rows that are worth a look."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.report.rows import Floats
from phrase_rescore.report.statistics import JOINT_EDGES, P_STEP, PHI_STEP, Disagreement, TableStatistics

_COMMON = 0.5  # of the words of a phrase, at most, are those of one that is shown already

Item = TypeVar("Item")
Counts = NDArray[np.int32]


def spearman(counts: Counts) -> float:
    """Rank correlation of two binned variables, counts (a, b), equal bins sharing their mean rank; nan where one is constant.

    >>> round(spearman(np.diag([3, 1, 4]).astype(np.int32)), 9)
    1.0
    """
    rows = counts.sum(dtype=np.int64)
    if not rows:
        return math.nan
    ranks = []
    for axis in (1, 0):
        margin = counts.sum(axis=axis, dtype=np.int64)
        rank = np.cumsum(margin) - (margin + 1) / 2
        ranks.append((rank - (margin * rank).sum() / rows, margin))
    (x, of_x), (y, of_y) = ranks
    scale = math.sqrt(float((of_x * x**2).sum()) * float((of_y * y**2).sum()))
    return float(x @ (counts @ y)) / scale if scale else math.nan


def rank_correlation(found: TableStatistics, least: int = 1) -> tuple[float, int]:
    """Of log φ and log p over rows with a joint count of ``least`` (one of JOINT_EDGES) or more; and how many these are.

    By bins of 0.02 and 0.05 nats.
    """
    counts = found.density[int(np.searchsorted(JOINT_EDGES, least)) :].sum(axis=0, dtype=np.int32)
    return spearman(counts), int(counts.sum(dtype=np.int64))


def quantiles(counts: NDArray[np.int64], shares: Sequence[float], step: float) -> list[float]:
    """Of -step × bin, the share of all that lies below: nan of nothing.

    >>> quantiles(np.array([1, 2, 1]), (0.5,), 1.0)
    [-1.5]
    """
    total = counts.sum()
    if not total:
        return [math.nan] * len(shares)
    running = np.cumsum(counts) / total  # from the greatest value down
    return [-step * (float(np.searchsorted(running, 1 - share)) + 0.5) for share in shares]


def scores_by_class(found: TableStatistics, sure: bool = False) -> list[list[float]]:
    """Of every class of joint counts the 10th, 50th and 90th percentile of log p; ``sure``: of rows of φ above 0.98."""
    density = found.density[:, :1] if sure else found.density
    margins = density.sum(axis=1, dtype=np.int64)
    return [quantiles(margin, (0.1, 0.5, 0.9), P_STEP) for margin in margins]


def median_by_phi(found: TableStatistics, width: float = 0.5, fewest: int = 50) -> list[tuple[float, float]]:
    """(log φ, median of log p) in steps of log φ that have ``fewest`` rows or more; φ = 1 has a step of its own."""
    density = found.density.sum(axis=0, dtype=np.int64)
    per_step = round(width / PHI_STEP)
    points = []
    for start in (0, *range(1, len(density) - 1, per_step)):
        margin = density[start : start + per_step if start else 1].sum(axis=0)
        if margin.sum() >= fewest:
            middle = -PHI_STEP * (start + per_step / 2) if start else 0.0
            points.append((middle, quantiles(margin, (0.5,), P_STEP)[0]))
    return points


def diverse(items: Iterable[Item], words: Callable[[Item], bytes], most: int) -> list[Item]:
    """The first ``most`` items that share no more than half of their words with one before."""
    chosen, seen = list[Item](), list[set[bytes]]()
    for item in items:
        own = set(words(item).split(b" "))
        if all(len(own & other) <= _COMMON * min(len(own), len(other)) for other in seen):
            chosen.append(item)
            seen.append(own)
            if len(chosen) == most:
                break
    return chosen


def disagreements(items: Sequence[Disagreement], most: int) -> list[Disagreement]:
    """The strongest, without those that say the same of nearly the same source."""
    return diverse(items, lambda item: item.row.src, most)


def top(values: Floats, most: int) -> list[int]:
    """Places of the greatest values, the greatest first; of equal ones the first."""
    places: list[int] = np.argsort(-values, kind="stable")[:most].tolist()
    return places


def best_shares(found: TableStatistics) -> tuple[int, float, float]:
    """Sources with several targets; how often model and table like the same best, and how often chance would."""
    sources, same, chance = found.best.sum(axis=0).tolist()
    return int(sources), same / sources if sources else math.nan, chance / sources if sources else math.nan


def within(counts: Mapping[bytes, float], most: int) -> list[bytes]:
    """The ``most`` most frequent phrases, none of them part of another that is as frequent or more, or the other way round.

    >>> within({b"a b c d": 9, b"a b c d e": 8, b"x y z w": 7}, 5)
    [b'a b c d', b'x y z w']
    """
    chosen = list[bytes]()
    text = b"\n"
    for phrase, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        padded = b" " + phrase + b" "
        if padded in text or any(other in padded for other in chosen):
            continue
        chosen.append(padded)
        text += padded + b"\n"
        if len(chosen) == most:
            break
    return [padded[1:-1] for padded in chosen]
