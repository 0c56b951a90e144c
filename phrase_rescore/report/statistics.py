"""What ``report`` takes from a table's rows in one pass: sums, bins and the few rows that it shows, in bounded memory.

The same rows give the same result however they are cut into parts, as long as a part holds all rows of its sources.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sketch import Hashes, hashes
from phrase_rescore.data.vocabulary import UNK, Vocabulary
from phrase_rescore.models.checkpoint import Checkpoint
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.report.rows import Floats, Rows

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

_WORDS = re.compile(
    rb"(?<![^ ])[^ ]*[A-Za-z\x80-\xff]{2}"
)  # more than a letter or a sign; a long source has one at most of those

Ints = NDArray[np.int64]


class Largest:
    """The items of the largest keys; of equal keys those of the smaller hashes."""

    def __init__(self, room: int) -> None:
        self._room, self._heap = room, list[tuple[float, int, Any]]()

    def offer(self, keys: Floats, ties: Hashes, make: Callable[[int], Any]) -> None:
        """Items by number; ``make`` is called for those that are kept. Keys of -inf are left out."""
        least = self._heap[0][0] if len(self._heap) == self._room else -np.inf
        for i in np.flatnonzero((keys >= least) & (keys > -np.inf)).tolist():
            key = (float(keys[i]), -int(ties[i]))
            if len(self._heap) < self._room:
                heapq.heappush(self._heap, (*key, make(i)))
            elif key > self._heap[0][:2]:
                heapq.heapreplace(self._heap, (*key, make(i)))

    def ranked(self) -> list[Any]:
        """From the largest key down."""
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
    """A source with all its rows."""

    src: bytes
    count: float
    tgt: list[bytes]
    log_phi: Floats
    log_p: Floats
    joint: Floats


@dataclass(frozen=True)
class Disagreement:
    """A row to which model and table give different shares of what they give to all targets of its source."""

    row: Point
    share_phi: float
    share_p: float
    others: tuple[bytes, float, float]  # the target that the other of the two likes best, and both its shares


@dataclass
class SideCoverage:
    """Words of one side that the model knows, over all rows."""

    vocabulary: Vocabulary
    factor: int | None
    words: int = 0
    unknown: int = 0
    rows: int = 0  # with an unknown word
    seen: NDArray[np.bool_] = field(init=False)  # of every id
    unknown_words: Counter[bytes] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.seen = np.zeros(len(self.vocabulary), bool)

    def add(self, phrases: Sequence[bytes], side: str) -> None:
        """Raises RowError for a word without the factor that the model reads."""
        if not phrases:
            return
        text = b" ".join(select_factor(phrases, self.factor, side)) + b" "
        ids, _ = self.vocabulary.word_table.look_up(text)
        places = np.flatnonzero(ids == UNK)
        self.words, self.unknown = self.words + len(ids), self.unknown + len(places)
        self.seen[ids] = True
        if len(places):
            ends = np.cumsum(lengths_of(phrases))
            self.rows += len(np.unique(np.searchsorted(ends, places, "right")))
            listed = text.split(b" ")
            self.unknown_words.update([listed[i] for i in places.tolist()])


def lengths_of(phrases: Sequence[bytes]) -> Ints:
    """In words."""
    return np.fromiter((phrase.count(b" ") for phrase in phrases), np.int64, len(phrases)) + 1


def _binned(values: Floats, step: float, bins: int) -> Ints:
    return np.minimum(np.maximum(-values, 0.0) / step, bins - 1).astype(np.int64)


class TableStatistics:
    """Everything that the page says of the rows. ``grouped``: whether scores are compared among a source's targets."""

    def __init__(self, checkpoint: Checkpoint, grouped: bool) -> None:
        self.grouped = grouped
        self.rows = self.sources = self.counted = 0  # counted: rows that have counts
        classes = len(JOINT_CLASSES)
        self.density = np.zeros((classes, PHI_BINS, P_BINS), np.int32)
        self.by_joint = np.zeros((classes, 5))  # rows, Σ log φ, Σ log p, rows of φ = 1, Σ log p of these
        self.by_lengths = np.zeros((LONGEST + 1, LONGEST + 1, 3))  # by source and target: rows, Σ log φ, Σ log p
        self.points = [Largest(POINTS) for _ in JOINT_CLASSES]
        self.coverage = tuple(
            SideCoverage(vocabulary, factor)
            for vocabulary, factor in zip((checkpoint.src_vocab, checkpoint.tgt_vocab), checkpoint.factors, strict=True)
        )
        self.long_sources = Largest(_MAPPED)
        # Of sources with several targets
        self.best = np.zeros((len(SOURCE_CLASSES), 3))  # sources, the same best target, by chance
        self.best_lengths = np.zeros((LONGEST + 1, 3))  # by source: sources, Σ length of the table's best, of the model's
        self.shares = np.zeros((len(SOURCE_CLASSES), SHARES, 3))  # by the model's share: rows, Σ its share, Σ the table's
        self.frequent, self.rare = Largest(_KEPT), Largest(_KEPT)
        self.model_more, self.table_more = Largest(_KEPT), Largest(_KEPT)

    def add(self, rows: Rows) -> None:
        """Raises RowError for a word without the factor that the model reads."""
        if not len(rows):
            return
        self.rows += len(rows)
        self.counted += int(np.isfinite(rows.joint).sum())
        lengths = lengths_of(rows.src), lengths_of(rows.tgt)
        classes = np.clip(np.searchsorted(JOINT_EDGES, np.nan_to_num(rows.joint, nan=1), "right") - 1, 0, None)
        self._add_sums(rows, classes, lengths)
        self._add_points(rows, classes)
        for side, coverage, phrases in zip(("source", "target"), self.coverage, (rows.src, rows.tgt), strict=True):
            coverage.add(phrases, side)
        starts = rows.starts
        self.sources += len(starts)
        self._add_sources(rows, starts, lengths)

    def _add_sums(self, rows: Rows, classes: Ints, lengths: tuple[Ints, Ints]) -> None:
        log_phi, log_p = rows.log_phi, rows.log_p
        places = np.ravel_multi_index(
            (classes, _binned(log_phi, PHI_STEP, PHI_BINS), _binned(log_p, P_STEP, P_BINS)), self.density.shape
        )
        found, counts = np.unique(places, return_counts=True)
        self.density.reshape(-1)[found] += counts.astype(np.int32)
        sure = log_phi >= 0
        for i, weights in enumerate((None, log_phi, log_p, sure, sure * log_p)):
            self.by_joint[:, i] += np.bincount(classes, weights, len(JOINT_CLASSES))
        cell = np.minimum(lengths[0], LONGEST) * (LONGEST + 1) + np.minimum(lengths[1], LONGEST)
        for i, weights in enumerate((None, log_phi, log_p)):
            self.by_lengths[:, :, i] += np.bincount(cell, weights, (LONGEST + 1) ** 2).reshape(LONGEST + 1, -1)

    def _add_points(self, rows: Rows, classes: Ints) -> None:
        ties = hashes([src + b"\t" + tgt for src, tgt in zip(rows.src, rows.tgt, strict=True)])
        keys = -ties.astype(np.float64)
        for number, largest in enumerate(self.points):
            largest.offer(np.where(classes == number, keys, -np.inf), ties, lambda i: self._point(rows, i, int(classes[i])))

    @staticmethod
    def _point(rows: Rows, i: int, joint_class: int) -> Point:
        phi, p, count, joint = (float(column[i]) for column in (rows.log_phi, rows.log_p, rows.src_count, rows.joint))
        return Point(rows.src[i], rows.tgt[i], phi, p, count, joint, joint_class)

    def _add_sources(self, rows: Rows, starts: Ints, lengths: tuple[Ints, Ints]) -> None:
        sizes = np.diff(starts, append=len(rows))
        src = [rows.src[i] for i in starts.tolist()]
        counts = np.where(np.isfinite(rows.src_count[starts]), rows.src_count[starts], sizes)
        ties, src_lengths = hashes(src), lengths[0][starts]

        def whole(i: int) -> Source:
            part = rows[int(starts[i]) : int(starts[i] + sizes[i])]
            return Source(src[i], float(counts[i]), part.tgt, part.log_phi, part.log_p, part.joint)

        long = src_lengths >= LONG
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
        kept = np.repeat(sizes > 1, sizes)
        at, group = np.flatnonzero(kept), np.repeat(np.arange(len(several)), sizes[several])
        begins = np.append(0, np.cumsum(sizes[several])[:-1])
        log_phi, log_p, tgt_lengths = rows.log_phi[at], rows.log_p[at], lengths[1][at]
        log_phi = log_phi - np.logaddexp.reduceat(log_phi, begins)[group]  # shares of what all its targets have
        log_p = log_p - np.logaddexp.reduceat(log_p, begins)[group]
        best_phi = log_phi >= np.maximum.reduceat(log_phi, begins)[group] - 1e-9
        n_best = np.add.reduceat(best_phi.astype(float), begins)
        first_p = np.lexsort((-log_p, group))[begins]
        first_phi = np.lexsort((-log_phi, group))[begins]
        classes = np.clip(np.searchsorted(SOURCE_EDGES, counts[several], "right") - 1, 0, None)
        for i, weights in enumerate((None, best_phi[first_p], n_best / sizes[several])):
            self.best[:, i] += np.bincount(classes, weights, len(SOURCE_CLASSES))
        by_length = np.minimum(lengths[0][starts[several]], LONGEST)
        table_length = np.add.reduceat(best_phi * tgt_lengths, begins) / n_best
        for i, weights in enumerate((None, table_length, tgt_lengths[first_p])):
            self.best_lengths[:, i] += np.bincount(by_length, weights, LONGEST + 1)
        share_phi, share_p = np.exp(log_phi), np.exp(log_p)
        cell = classes[group] * SHARES + np.minimum(share_p * SHARES, SHARES - 1).astype(np.int64)
        for i, weights in enumerate((None, share_p, share_phi)):
            self.shares[:, :, i] += np.bincount(cell, weights, len(SOURCE_CLASSES) * SHARES).reshape(-1, SHARES)
        ties = hashes([rows.src[i] for i in starts[several].tolist()])
        difference, enough = log_p - log_phi, counts[several] >= ENOUGH
        for largest, weight, others in (
            (self.model_more, share_p * difference, first_phi), (self.table_more, -share_phi * difference, first_p),
        ):  # fmt: skip
            most = np.lexsort((-weight, group))[begins]
            keys = np.where(enough & (weight[most] > 0), weight[most], -np.inf)

            def make(i: int, most: Ints = most, others: Ints = others) -> Disagreement:
                one, other = int(most[i]), int(others[i])
                point = self._point(rows, int(at[one]), 0)
                of_other = (rows.tgt[int(at[other])], float(share_phi[other]), float(share_p[other]))
                return Disagreement(point, float(share_phi[one]), float(share_p[one]), of_other)

            largest.offer(keys, ties, make)
