"""What ``report`` takes from a table's rows in one pass: sums, bins and the few rows that it shows, in bounded memory.

The same rows give the same result however they are cut into parts, as long as a part holds all rows of its sources.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sketch import Hashes, hashes
from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.report.rows import VALUES, Floats, Rows
from phrase_rescore.rnn.checkpoint import Checkpoint

JOINT_EDGES = np.array([1, 2, 3, 5, 10, 30, 100, 1000])  # where a class of joint counts begins
JOINT_CLASSES = ("1", "2", "3–4", "5–9", "10–29", "30–99", "100–999", "1000+")
SOURCE_EDGES = np.array([1, 5, 20, 100])
SOURCE_CLASSES = ("1–4", "5–19", "20–99", "100+")
PHI_STEP, P_STEP = 0.02, 0.05  # nats, of a bin
PHI_BINS, P_BINS = 701, 1761  # up to 14 and 88 nats; the last bin has the rest
SHARES = 20  # bins of a share from 0 to 1
LONGEST = 10  # words; longer phrases count as this long
LONG = 4  # words of a long source, as in the paper's Table 2 and figure 5
RARE = 5  # occurrences at most of a rare source
ENOUGH = 10  # occurrences of a source from which its relative frequencies say something
POINTS = 1000  # rows kept of each class of joint counts
_KEPT = 300  # sources and disagreements from which those on the page are chosen
_MAPPED = 3000  # long sources, for the map
_COMMON = 0.5  # of the words of a phrase, at most, are those of one that is shown already

# A word of more than a letter or a sign; a long source has at most one that is not
_WORDS = re.compile(rb"(?<![^ ])[^ ]*[A-Za-z\x80-\xff]{2}")

Item = TypeVar("Item")
Ints = NDArray[np.int64]
Sums = NDArray[np.void]  # records with a field ``n``, how many items were added, and a field for each sum


def new_sums(shape: int | tuple[int, ...], *names: str) -> Sums:
    """Make zeros with the fields ``n`` and ``names``."""
    return np.zeros(shape, [(name, np.float64) for name in ("n", *names)])


def _add(sums: Sums, cells: Ints, **values: Floats) -> None:
    """Add items to the sums: each counts in its cell (a place in the flattened array) and adds its values there."""
    flat = sums.reshape(-1)
    flat["n"] += np.bincount(cells, minlength=len(flat))
    for name, weights in values.items():
        flat[name] += np.bincount(cells, weights, len(flat))


def total(sums: Sums) -> dict[str, float]:
    """Sum each field over all cells."""
    return {name: float(sums[name].sum()) for name in sums.dtype.names or ()}


def share(part: float, whole: float) -> float:
    """Divide; a share of nothing is nan."""
    return float(part / whole) if whole else math.nan


def spearman(counts: NDArray[np.int32]) -> float:
    """Rank correlation of two binned variables, counts (a, b); equal bins share their mean rank. nan where one is constant.

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


def quantiles(counts: Ints, shares: Sequence[float], step: float) -> list[float]:
    """For each share the value, -step × bin, below which that share of the items lies; nan without items.

    >>> quantiles(np.array([1, 2, 1]), (0.5,), 1.0)
    [-1.5]
    """
    items = counts.sum()
    if not items:
        return [math.nan] * len(shares)
    running = np.cumsum(counts) / items  # from the greatest value down
    return [-step * (float(np.searchsorted(running, 1 - below)) + 0.5) for below in shares]


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


class Largest:
    """The items of the largest keys; of equal keys those of the smaller hashes."""

    def __init__(self, room: int) -> None:
        self._room, self._heap = room, list[tuple[float, int, Any]]()

    def offer(self, keys: Floats, ties: Hashes, make: Callable[[int], Any]) -> None:
        """Offer items by number; ``make`` is called for those that are kept. Keys of -inf are left out."""
        least = self._heap[0][0] if len(self._heap) == self._room else -np.inf
        for i in np.flatnonzero((keys >= least) & (keys > -np.inf)).tolist():
            key = (float(keys[i]), -int(ties[i]))
            if len(self._heap) < self._room:
                heapq.heappush(self._heap, (*key, make(i)))
            elif key > self._heap[0][:2]:
                heapq.heapreplace(self._heap, (*key, make(i)))

    def ranked(self) -> list[Any]:
        """The items from the largest key down."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: (-entry[0], -entry[1]))]


@dataclass(frozen=True)
class Point:
    """A row. ``joint`` and ``src_count`` are nan where the table has no counts."""

    src: bytes
    tgt: bytes
    log_phi: float
    log_p: float
    src_count: float
    joint: float
    joint_class: int


@dataclass(frozen=True)
class Source:
    """A source, how often it was seen, and all its rows."""

    src: bytes
    count: float
    rows: Rows


@dataclass(frozen=True)
class Shared:
    """A target and the shares that table and model give it of what they give to all targets of its source."""

    tgt: bytes
    phi: float
    p: float


@dataclass(frozen=True)
class Disagreement:
    """A row to whose target model and table give different shares."""

    row: Point
    target: Shared
    other: Shared  # the target that the other of the two likes best


@dataclass
class SideCoverage:
    """Words of one side, as the model reads them, over all rows."""

    vocabulary: Vocabulary
    factor: int | None
    counts: Counter[bytes] = field(default_factory=Counter)
    rows: int = 0  # with an unknown word

    def add(self, phrases: Sequence[bytes], side: str) -> None:
        """Raises RowError for a word without the factor that the model reads."""
        known = self.vocabulary.ids
        for phrase in select_factor(phrases, self.factor, side):
            words = phrase.split(b" ")
            self.counts.update(words)
            self.rows += any(word not in known for word in words)

    def unknown_words(self) -> Counter[bytes]:
        """The words that the model does not know."""
        return Counter({word: n for word, n in self.counts.items() if word not in self.vocabulary.ids})

    @property
    def unknown_share(self) -> float:
        """The share of the words that the model does not know; nan without words."""
        return share(self.unknown_words().total(), self.counts.total())


def lengths_of(phrases: Sequence[bytes]) -> Ints:
    """Count the words of each phrase."""
    return np.fromiter((phrase.count(b" ") for phrase in phrases), np.int64, len(phrases)) + 1


def _binned(values: Floats, step: float, bins: int) -> Ints:
    return np.minimum(np.maximum(-values, 0.0) / step, bins - 1).astype(np.int64)


def _classes(counts: Floats, edges: Ints) -> Ints:
    return np.clip(np.searchsorted(edges, counts, "right") - 1, 0, None)


class TableStatistics:
    """Everything that the page says of the rows. ``grouped``: whether scores are compared among a source's targets."""

    def __init__(self, checkpoint: Checkpoint, grouped: bool) -> None:
        self.grouped = grouped
        self.rows = self.sources = 0
        self.counted = 0  # rows that have counts
        classes = len(JOINT_CLASSES)
        self.density = np.zeros((classes, PHI_BINS, P_BINS), np.int32)
        self.by_joint = new_sums(classes, "log_phi", "log_p", "sure")  # sure: φ = 1
        self.by_lengths = new_sums((LONGEST + 1, LONGEST + 1), "log_phi", "log_p")  # by words of source and target
        self.points = [Largest(POINTS) for _ in JOINT_CLASSES]
        source, target = (
            SideCoverage(vocabulary, factor)
            for vocabulary, factor in zip((checkpoint.src_vocab, checkpoint.tgt_vocab), checkpoint.factors, strict=True)
        )
        self.coverage = {"source": source, "target": target}
        self.long_sources = Largest(_MAPPED)
        # Of sources with several targets
        self.best = new_sums(len(SOURCE_CLASSES), "same", "chance")  # sources whose best target is the same; by chance
        self.best_lengths = new_sums(LONGEST + 1, "table", "model")  # by words of the source: words of the best target
        self.shares = new_sums((len(SOURCE_CLASSES), SHARES), "model", "table")  # rows by the model's share: both shares
        self.frequent, self.rare = Largest(_KEPT), Largest(_KEPT)
        self.model_more, self.table_more = Largest(_KEPT), Largest(_KEPT)

    def rank_correlation(self, least: int = 1) -> tuple[float, int]:
        """Spearman's ρ of log φ and log p over rows with a joint count of ``least`` (one of JOINT_EDGES) or more; their number.

        Scores are ranked by bins of 0.02 and 0.05 nats.
        """
        counts = self.density[int(np.searchsorted(JOINT_EDGES, least)) :].sum(axis=0, dtype=np.int32)
        return spearman(counts), int(counts.sum(dtype=np.int64))

    def spread(self, joint_class: int | None = None, sure: bool = False) -> list[float]:
        """The 10th, 50th and 90th percentile of log p, of a class of joint counts or of all; ``sure``: where φ > 0.98."""
        density = self.density.sum(axis=0) if joint_class is None else self.density[joint_class]
        return quantiles((density[:1] if sure else density).sum(axis=0, dtype=np.int64), (0.1, 0.5, 0.9), P_STEP)

    def median_by_phi(self, width: float = 0.5, fewest: int = 50) -> list[tuple[float, float]]:
        """(log φ, median of log p) in steps of log φ that have ``fewest`` rows or more; φ = 1 has a step of its own."""
        density = self.density.sum(axis=0, dtype=np.int64)
        per_step = round(width / PHI_STEP)
        points = []
        for start in (0, *range(1, len(density) - 1, per_step)):
            margin = density[start : start + per_step if start else 1].sum(axis=0)
            if margin.sum() >= fewest:
                middle = -PHI_STEP * (start + per_step / 2) if start else 0.0
                points.append((middle, quantiles(margin, (0.5,), P_STEP)[0]))
        return points

    def add(self, rows: Rows) -> None:
        """Raises RowError for a word without the factor that the model reads."""
        if not len(rows):
            return
        self.rows += len(rows)
        self.counted += int(np.isfinite(rows.values["joint"]).sum())
        lengths = lengths_of(rows.src), lengths_of(rows.tgt)
        joint = rows.values["joint"]
        classes = _classes(np.where(np.isnan(joint), 1, joint), JOINT_EDGES)
        self._add_sums(rows, classes, lengths)
        self._add_points(rows, classes)
        for (side, coverage), phrases in zip(self.coverage.items(), (rows.src, rows.tgt), strict=True):
            coverage.add(phrases, side)
        starts = rows.starts
        self.sources += len(starts)
        self._add_sources(rows, starts, lengths)

    def _add_sums(self, rows: Rows, classes: Ints, lengths: tuple[Ints, Ints]) -> None:
        log_phi, log_p = rows.values["log_phi"], rows.values["log_p"]
        places = np.ravel_multi_index(
            (classes, _binned(log_phi, PHI_STEP, PHI_BINS), _binned(log_p, P_STEP, P_BINS)), self.density.shape
        )
        found, counts = np.unique(places, return_counts=True)
        self.density.reshape(-1)[found] += counts.astype(np.int32)
        _add(self.by_joint, classes, log_phi=log_phi, log_p=log_p, sure=(log_phi >= 0).astype(np.float64))
        cells = np.minimum(lengths[0], LONGEST) * (LONGEST + 1) + np.minimum(lengths[1], LONGEST)
        _add(self.by_lengths, cells, log_phi=log_phi, log_p=log_p)

    def _add_points(self, rows: Rows, classes: Ints) -> None:
        ties = hashes([src + b"\t" + tgt for src, tgt in zip(rows.src, rows.tgt, strict=True)])
        keys = -ties.astype(np.float64)
        for number, largest in enumerate(self.points):
            largest.offer(np.where(classes == number, keys, -np.inf), ties, lambda i: self._point(rows, i, int(classes[i])))

    @staticmethod
    def _point(rows: Rows, i: int, joint_class: int) -> Point:
        values = {name: float(rows.values[name][i]) for name in VALUES.names or ()}
        return Point(rows.src[i], rows.tgt[i], **values, joint_class=joint_class)

    def _add_sources(self, rows: Rows, starts: Ints, lengths: tuple[Ints, Ints]) -> None:
        sizes = np.diff(starts, append=len(rows))
        src = [rows.src[i] for i in starts.tolist()]
        told = rows.values["src_count"][starts]
        counts = np.where(np.isfinite(told), told, sizes)
        ties = hashes(src)

        def whole(i: int) -> Source:
            return Source(src[i], float(counts[i]), rows[int(starts[i]) : int(starts[i] + sizes[i])])

        long = lengths[0][starts] >= LONG
        long[long] = [len(_WORDS.findall(src[i])) >= LONG - 1 for i in np.flatnonzero(long).tolist()]
        self.long_sources.offer(np.where(long, counts, -np.inf), ties, lambda i: (src[i], float(counts[i])))
        if not self.grouped:
            return
        choice = long & (sizes >= 3)
        self.frequent.offer(np.where(choice & (counts > RARE), counts, -np.inf), ties, whole)
        self.rare.offer(np.where(choice & (counts <= RARE), -ties.astype(np.float64), -np.inf), ties, whole)
        self._compare(rows, starts, sizes, counts, lengths)

    def _compare(self, rows: Rows, starts: Ints, sizes: Ints, counts: Floats, lengths: tuple[Ints, Ints]) -> None:
        """Among the targets of each source that has several: which is best, and what share each one has."""
        several = np.flatnonzero(sizes > 1)
        if not len(several):
            return
        at = np.flatnonzero(np.repeat(sizes > 1, sizes))
        group = np.repeat(np.arange(len(several)), sizes[several])
        begins = np.append(0, np.cumsum(sizes[several])[:-1])
        log_phi, log_p, tgt_lengths = rows.values["log_phi"][at], rows.values["log_p"][at], lengths[1][at]
        log_phi = log_phi - np.logaddexp.reduceat(log_phi, begins)[group]  # shares of what all its targets have
        log_p = log_p - np.logaddexp.reduceat(log_p, begins)[group]
        best_phi = log_phi >= np.maximum.reduceat(log_phi, begins)[group] - 1e-9
        n_best = np.add.reduceat(best_phi.astype(float), begins)
        first_p = np.lexsort((-log_p, group))[begins]
        first_phi = np.lexsort((-log_phi, group))[begins]
        classes = _classes(counts[several], SOURCE_EDGES)
        _add(self.best, classes, same=best_phi[first_p].astype(np.float64), chance=n_best / sizes[several])
        by_length = np.minimum(lengths[0][starts[several]], LONGEST)
        table_length = np.add.reduceat(best_phi * tgt_lengths, begins) / n_best
        _add(self.best_lengths, by_length, table=table_length, model=tgt_lengths[first_p].astype(np.float64))
        share_phi, share_p = np.exp(log_phi), np.exp(log_p)
        cells = classes[group] * SHARES + np.minimum(share_p * SHARES, SHARES - 1).astype(np.int64)
        _add(self.shares, cells, model=share_p, table=share_phi)
        ties = hashes([rows.src[i] for i in starts[several].tolist()])
        difference, enough = log_p - log_phi, counts[several] >= ENOUGH

        def shared(i: int) -> Shared:
            return Shared(rows.tgt[int(at[i])], float(share_phi[i]), float(share_p[i]))

        for largest, weight, others in (
            (self.model_more, share_p * difference, first_phi), (self.table_more, -share_phi * difference, first_p),
        ):  # fmt: skip
            most = np.lexsort((-weight, group))[begins]
            keys = np.where(enough & (weight[most] > 0), weight[most], -np.inf)

            def make(i: int, most: Ints = most, others: Ints = others) -> Disagreement:
                return Disagreement(self._point(rows, int(at[most[i]]), 0), shared(int(most[i])), shared(int(others[i])))

            largest.offer(keys, ties, make)
