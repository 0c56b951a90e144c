"""Statistics are counted over the rows of a phrase table; those of neighbouring parts add up with ``+=``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from operator import lt, ne

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sketch import DistinctSample, hashes
from phrase_rescore.moses.table import SEPARATOR


@dataclass(frozen=True)
class Tally:
    """A number of rows (or sources) that have something in common, and the line of the first."""

    count: int
    first_line: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, min(self.first_line, other.first_line))


@dataclass(frozen=True)
class ScoreRanges:
    """What every score column ranges over, in the rows that have all scores: arrays (n_scores,)."""

    rows: int
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]
    log_sums: NDArray[np.float64]  # of natural logarithms of scores above 0
    above_zero: NDArray[np.int64]
    zeros: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ScoreRanges:
        """Measure the scores (rows, n_scores)."""
        above = values > 0
        logs = np.log(np.where(above, np.minimum(values, np.finfo(np.float64).max), 1.0)).sum(axis=0)
        least, greatest = values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)
        return cls(len(values), least, greatest, logs, above.sum(axis=0), (values == 0).sum(axis=0))

    def __add__(self, other: ScoreRanges) -> ScoreRanges:
        return ScoreRanges(
            self.rows + other.rows, np.minimum(self.least, other.least), np.maximum(self.greatest, other.greatest),
            self.log_sums + other.log_sums, self.above_zero + other.above_zero, self.zeros + other.zeros,
        )  # fmt: skip


@dataclass
class Side:
    """What is counted of the phrases of one side. ``+=`` adds those of later rows."""

    words: Counter[bytes]  # in how many places each stands
    lengths: Counter[int]  # in words: how many rows have a phrase so long
    sample: DistinctSample  # of sources one occurrence a run, of targets every one

    @classmethod
    def of(cls, phrases: Sequence[bytes], occurrences: Sequence[bytes], lines: NDArray[np.int64]) -> Side:
        """Count phrases; ``occurrences`` and their ``lines`` go to the sample."""
        lengths = Counter({n + 1: rows for n, rows in Counter(map(bytes.count, phrases, repeat(b" "))).items()})
        counts = Counter(b" ".join(phrases).split(b" ")) if phrases else Counter[bytes]()
        return cls(counts, lengths, DistinctSample.of(hashes(occurrences), lines))

    def __iadd__(self, later: Side) -> Side:
        self.words.update(later.words)
        self.lengths.update(later.lengths)
        self.sample += later.sample
        return self

    @property
    def factors(self) -> int | None:
        """The number of factors that every word has; None if they differ."""
        found = {word.count(SEPARATOR[:1]) for word in self.words}
        return found.pop() + 1 if len(found) == 1 else None


@dataclass(frozen=True)
class Edge:
    """The first or last phrase pair of a part of the table."""

    line: int
    src: bytes
    key: bytes


@dataclass
class Survey:
    """What is known of some rows. Surveys of neighbouring parts add up with ``+=``, in order."""

    rows: int
    pairs: int  # rows that have both phrases
    sources: int  # runs of equal ones
    src: Side
    tgt: Side
    scores: ScoreRanges
    faults: dict[str, Tally] = field(default_factory=dict)  # by keys of FAULTS
    unsorted_pairs: Tally | None = None  # rows that should stand before the row before; maybe only within a source
    repeated_pairs: Tally | None = None  # rows with the phrases of the row before
    first: Edge | None = None
    last: Edge | None = None

    def __iadd__(self, later: Survey) -> Survey:
        if self.last and later.first:
            self.count_steps((self.last.key, later.first.key), (later.first.line,))
            if self.last.src == later.first.src:
                self.sources -= 1
                sample = later.src.sample.without(hashes([later.first.src])[0], later.first.line)
                later = replace(later, src=replace(later.src, sample=sample))
        self.rows, self.pairs, self.sources = self.rows + later.rows, self.pairs + later.pairs, self.sources + later.sources
        self.src += later.src
        self.tgt += later.tgt
        self.scores += later.scores
        for kind, tally in later.faults.items():
            self.add_fault(kind, tally)
        self.unsorted_pairs = _sum(self.unsorted_pairs, later.unsorted_pairs)
        self.repeated_pairs = _sum(self.repeated_pairs, later.repeated_pairs)
        self.first, self.last = self.first or later.first, later.last or self.last
        return self

    def add_fault(self, kind: str, tally: Tally | None) -> None:
        if found := _sum(self.faults.get(kind), tally):
            self.faults[kind] = found

    def count_steps(self, keys: Sequence[bytes], lines: Sequence[int]) -> None:
        """Count the steps from one row to the next that go down or stay; ``lines`` are those of the rows from the second."""
        if all(map(lt, keys, islice(keys, 1, None))):
            return  # and so the sources ascend too
        steps = list(zip(lines, keys, islice(keys, 1, None), strict=False))
        self.unsorted_pairs = _sum(self.unsorted_pairs, tally([line for line, key, then in steps if then < key]))
        self.repeated_pairs = _sum(self.repeated_pairs, tally([line for line, key, then in steps if then == key]))
        self.add_fault("unsorted", tally([line for line, key, then in steps if _source(then) < _source(key)]))


def _source(key: bytes) -> bytes:
    """Cut off ``source |||``, what CompactPT wants to be sorted (``TM/CompactPT/PhraseTableCreator.cpp:333-341``)."""
    return key[: key.index(SEPARATOR) + len(SEPARATOR)]


def tally(lines: Sequence[int]) -> Tally | None:
    """Count ascending lines; None if there are none."""
    return Tally(len(lines), int(lines[0])) if len(lines) else None


def _sum(one: Tally | None, other: Tally | None) -> Tally | None:
    return one + other if one and other else one or other


def survey_of(
    rows: int, lines: NDArray[np.int64], src: list[bytes], tgt: list[bytes], keys: list[bytes], values: NDArray[np.float64]
) -> Survey:
    """Survey rows whose phrases stand on ``lines``, and ``keys`` that they are sorted by; faults are added later."""
    differ = np.fromiter(chain((True,), map(ne, src, islice(src, 1, None))), bool)
    begins = np.flatnonzero(differ[: len(src)])
    sides = Side.of(src, [src[i] for i in begins.tolist()], lines[begins]), Side.of(tgt, tgt, lines)
    survey = Survey(rows, len(src), len(begins), *sides, ScoreRanges.of(values))
    survey.count_steps(keys, lines[1:].tolist())
    if src:
        survey.first, survey.last = (Edge(int(lines[i]), src[i], keys[i]) for i in (0, -1))
    return survey
