"""What the page says of a sample of rows: ranks, classes by frequency, and both scores among the targets of a source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.report.rows import Floats, SampleRows, is_long

JOINT_EDGES = np.array([1, 2, 3, 5, 10, 30, 100, 1000])  # where a class of joint counts begins
JOINT_CLASSES = ("1", "2", "3–4", "5–9", "10–29", "30–99", "100–999", "1000+")
RARE = 5  # occurrences at most of a rare source
ENOUGH = 10  # occurrences of a source from which its relative frequencies say something
_COMMON = 0.5  # of the words of a phrase, at most, are those of one that is shown already

Item = TypeVar("Item")
Ints = NDArray[np.int64]


def spearman(x: Floats, y: Floats) -> float:
    """Rank correlation; equal values share their mean rank. nan where one is constant.

    >>> round(spearman(np.array([1.0, 2.0, 5.0]), np.array([0.0, 3.0, 9.0])), 9)
    1.0
    """

    def ranks(values: Floats) -> Floats:
        _, which, times = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(times) - (times + 1) / 2)[which]

    of_x, of_y = ranks(x), ranks(y)
    return float(np.corrcoef(of_x, of_y)[0, 1]) if len(x) > 1 and of_x.std() and of_y.std() else math.nan


def joint_classes(rows: SampleRows) -> Ints:
    """Return the place in JOINT_CLASSES of every row; rows without counts are taken as seen once."""
    joint = np.where(np.isnan(rows.joint), 1, rows.joint)
    return np.clip(np.searchsorted(JOINT_EDGES, joint, "right") - 1, 0, None)


def percentiles(values: Floats, *shares: float) -> list[float]:
    """Return percentiles; nan without values."""
    return [float(x) for x in np.percentile(values, shares)] if len(values) else [math.nan] * len(shares)


def median_by_phi(rows: SampleRows, width: float = 0.5, fewest: int = 50) -> list[tuple[float, float]]:
    """(log φ, median of log p) in steps of log φ that have ``fewest`` rows or more; φ = 1 has a step of its own."""
    steps = np.ceil(np.maximum(-rows.log_phi, 0) / width)
    points = []
    for step in np.unique(steps):
        values = rows.log_p[steps == step]
        if len(values) >= fewest:
            points.append((float(-width * (step - 0.5)) if step else 0.0, float(np.median(values))))
    return points


def diverse(items: Iterable[Item], words: Callable[[Item], bytes], most: int) -> list[Item]:
    """The first ``most`` items that share no more than half of their words with an earlier one."""
    chosen, seen = list[Item](), list[set[bytes]]()
    for item in items:
        own = set(words(item).split(b" "))
        if all(len(own & other) <= _COMMON * min(len(own), len(other)) for other in seen):
            chosen.append(item)
            seen.append(own)
            if len(chosen) == most:
                break
    return chosen


class Targets:
    """The targets of each source that has several: log shares by φ and by the model, which sum to 1 over them."""

    def __init__(self, rows: SampleRows) -> None:
        starts = rows.starts
        sizes = np.diff(starts, append=len(rows))
        self.rows = rows[np.repeat(sizes > 1, sizes)]
        self.sizes = sizes[sizes > 1]
        self.begins = np.cumsum(self.sizes) - self.sizes
        self.group = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.log_phi, self.log_p = (self._shares(log) for log in (self.rows.log_phi, self.rows.log_p))

    def _shares(self, logs: Floats) -> Floats:
        return logs - np.logaddexp.reduceat(logs, self.begins)[self.group] if len(logs) else logs

    def best(self, values: Floats) -> Ints:
        """Return the row of the greatest value of each source, the first of equals."""
        rows: Ints = np.lexsort((-values, self.group))[self.begins]
        return rows

    def agreement(self) -> tuple[float, float]:
        """The share of sources whose best target by the model is one of the best by φ, and that which chance would find."""
        if not len(self.sizes):
            return math.nan, math.nan
        best = self.log_phi >= np.maximum.reduceat(self.log_phi, self.begins)[self.group] - 1e-9
        chance = np.add.reduceat(best.astype(float), self.begins) / self.sizes
        return float(best[self.best(self.log_p)].mean()), float(chance.mean())

    def disagreements(self, sign: int) -> Iterable[tuple[int, int]]:
        """Yield rows, and the best of the other score for their source, by what they add to the divergence of the two.

        ``sign`` 1: where the model gives more than φ, -1: less. Of each frequent source only the row that adds most.
        """
        if not len(self.sizes):
            return
        of_one, of_other = (self.log_p, self.log_phi)[::sign]
        weight = np.exp(of_one) * (of_one - of_other)
        most, others = self.best(weight), self.best(of_other)
        counts = self.occurrences(self.rows, self.begins, self.sizes)
        for i in np.argsort(-weight[most], kind="stable").tolist():
            if counts[i] >= ENOUGH and weight[most[i]] > 0:
                yield int(most[i]), int(others[i])

    @staticmethod
    def occurrences(rows: SampleRows, starts: Ints, sizes: Ints) -> Floats:
        """Return how often each source was seen: as the table says, or else its number of rows."""
        counts = rows.src_count[starts]
        return np.where(np.isfinite(counts), counts, sizes)


def long_sources(rows: SampleRows) -> tuple[list[SampleRows], list[SampleRows]]:
    """Return the rows of each long source of three targets or more: the most frequent sources first, and rare sources."""
    starts = rows.starts
    sizes = np.diff(starts, append=len(rows))
    counts = Targets.occurrences(rows, starts, sizes)
    long = [i for i, size in enumerate(sizes.tolist()) if size >= 3 and is_long(rows.src[starts[i]])]
    frequent = sorted((i for i in long if counts[i] > RARE), key=lambda i: -counts[i])
    rare = [i for i in long if counts[i] <= RARE]
    found = [[rows[int(starts[i]) : int(starts[i] + sizes[i])] for i in chosen] for chosen in (frequent, rare)]
    return found[0], found[1]
