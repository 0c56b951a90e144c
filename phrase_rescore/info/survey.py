"""Survey a phrase table in one pass: its contents, its order, and the rows that a Moses program mishandles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, compress, islice, repeat
from operator import lt, ne
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sampling import DistinctSample
from phrase_rescore.errors import RowError
from phrase_rescore.files.inputs import display_name, open_input, read_blocks
from phrase_rescore.info.faults import BAR, REFUSED, harmless_tail, row_faults, tail_faults, value_faults
from phrase_rescore.moses.columns import JUDGED_ROWS, looks_annotated
from phrase_rescore.moses.file_kinds import DESCRIBED, check_kind
from phrase_rescore.moses.table import (
    READ_ROWS,
    SEPARATOR,
    cut_rows,
    first_row,
    parse_row,
    score_values,
    split_fields,
    valid_scores,
)
from phrase_rescore.progress import Progress, silent
from phrase_rescore.runtime import no_cycle_collection


class RowCount(NamedTuple):
    """The number of rows (or sources) of a kind, and the line of the first."""

    rows: int
    first_line: int


class ScoreRanges:
    """The range of every score column, in the rows that have all scores: arrays (n_scores,)."""

    def __init__(self, n_scores: int) -> None:
        self.rows = 0
        self.least, self.greatest = np.full(n_scores, np.inf), np.full(n_scores, -np.inf)
        self.log_sums = np.zeros(n_scores)  # of natural logarithms of scores above 0
        self.above_zero, self.zeros = np.zeros(n_scores, np.int64), np.zeros(n_scores, np.int64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Measure more scores (rows, n_scores)."""
        self.rows += len(values)
        self.least = np.minimum(self.least, values.min(axis=0, initial=np.inf))
        self.greatest = np.maximum(self.greatest, values.max(axis=0, initial=-np.inf))
        above = values > 0
        self.log_sums += np.log(np.where(above, np.minimum(values, np.finfo(np.float64).max), 1.0)).sum(axis=0)
        self.above_zero += above.sum(axis=0)
        self.zeros += (values == 0).sum(axis=0)


class SurveyedSide:
    """Counts of the phrases of one side."""

    def __init__(self) -> None:
        self.words = Counter[bytes]()  # in how many places each stands
        self.lengths = Counter[int]()  # in words: how many rows have a phrase so long
        self.sample = DistinctSample()  # of sources one occurrence a run, else every one

    def add(self, phrases: Sequence[bytes], occurrences: Sequence[bytes], lines: NDArray[np.int64]) -> None:
        """Count more phrases, one at least; ``occurrences`` and their ``lines`` go to the sample."""
        self.words.update(b" ".join(phrases).split(b" "))
        for n, rows in Counter(map(bytes.count, phrases, repeat(b" "))).items():
            self.lengths[n + 1] += rows
        self.sample.add(occurrences, lines)

    @property
    def factors(self) -> int | None:
        """The number of factors that every word has; None if they differ."""
        found = {word.count(BAR) for word in self.words}
        return found.pop() + 1 if len(found) == 1 else None


class _ValidRow(NamedTuple):
    line: int
    src: bytes  # words between single blanks
    tgt: bytes
    key: bytes  # the bytes that it is sorted by, ``source ||| target |||``
    scores: bytes

    @classmethod
    def parse(cls, line: int, row: bytes, n_scores: int) -> _ValidRow:
        """Cut a row that is not plain. Raises RowError if it is not valid."""
        parsed = parse_row(row, n_scores)
        key = SEPARATOR.join((*parsed.fields[:2], b""))
        return cls(line, b" ".join(parsed.src), b" ".join(parsed.tgt), key, b" ".join(parsed.scores))


class Survey:
    """Counts of the rows so far of a table whose first row has ``n_scores`` scores and ``n_fields`` fields."""

    def __init__(self, n_scores: int, n_fields: int, table: str = "", annotated: bool = False) -> None:
        self.table, self.looks_annotated = table, annotated
        self.n_scores, self.n_fields = n_scores, n_fields
        self.rows = self.pairs = self.sources = 0  # pairs: valid rows; sources: runs of equal ones
        self.src, self.tgt = SurveyedSide(), SurveyedSide()
        self.scores = ScoreRanges(n_scores)
        self.faults: dict[str, RowCount] = {}  # by keys of FAULTS
        self.pair_order: dict[str, RowCount] = {}  # rows that should stand before the row before, "unsorted", or are "repeated"
        self.first_refusal: RowError | None = None
        self._last: tuple[bytes, bytes] | None = None  # source and key of the last valid row

    def add(self, first_row: int, data: bytes) -> None:
        """Survey the rows that follow."""
        rows = cut_rows(data, self.n_scores)
        where: dict[str, list[int]] = defaultdict(list)  # lines that have a fault
        valid = list[_ValidRow]()
        for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
            if other is None:
                end = head.rindex(SEPARATOR) + len(SEPARATOR)
                row = _ValidRow(line, src, tgt, head[:end], head[end:])
                faults = self._plain_faults(src, tgt, tail)
            else:
                try:
                    row = _ValidRow.parse(line, other, self.n_scores)
                except RowError as error:
                    self.first_refusal = self.first_refusal or error
                    where[REFUSED].append(line)
                    continue
                faults = row_faults(other, self.n_fields)
            valid.append(row)
            for fault in faults:
                where[fault].append(line)
        self.rows += len(rows.heads)
        if valid:
            lines, src_phrases, tgt_phrases, keys, scores = zip(*valid, strict=True)
            values = score_values(scores, self.n_scores)
            self.scores.add(values)
            for fault, mask in value_faults(values).items():
                where[fault] = list(compress(lines, mask.tolist()))
            self._add_pairs(lines, src_phrases, tgt_phrases, keys)
        for fault, of_fault in where.items():
            _count(self.faults, fault, of_fault)

    def _plain_faults(self, src: bytes, tgt: bytes, tail: bytes) -> Sequence[str]:
        """Return the faults of a plain row; what follows its scores is nearly always as in other rows."""
        faults = () if harmless_tail(self.n_fields).fullmatch(tail) else tail_faults(tail, self.n_fields)
        return (*faults, "bars") if BAR in src or BAR in tgt else faults

    def _add_pairs(self, lines: Sequence[int], src: Sequence[bytes], tgt: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Count valid rows; they should be sorted by ``keys``."""
        last_src, last_key = self._last or (b"", b"")
        begins = np.flatnonzero(np.fromiter(map(ne, src, chain((last_src,), src)), bool, len(src)))
        self.pairs, self.sources = self.pairs + len(src), self.sources + len(begins)
        self.src.add(src, [src[i] for i in begins.tolist()], np.array(lines)[begins])
        self.tgt.add(tgt, tgt, np.array(lines))
        before, self._last = (last_key, *keys), (src[-1], keys[-1])
        if not all(map(lt, before, keys)):  # else the sources ascend too
            steps = list(zip(lines, before, keys, strict=False))
            _count(self.pair_order, "unsorted", [line for line, key, then in steps if then < key])
            _count(self.pair_order, "repeated", [line for line, key, then in steps if then == key])
            _count(self.faults, "unsorted", [line for line, key, then in steps if _sorted_by(then) < _sorted_by(key)])

    def finish(self) -> None:
        """Judge the table as a whole, after its last row."""
        _count(self.faults, "sources_apart", np.sort(self.src.sample.repeated).tolist())
        factors = self.src.factors, self.tgt.factors
        if None not in factors and factors != (1, 1):
            self.faults.pop("bars", None)  # a factored table


def _sorted_by(key: bytes) -> bytes:
    """Cut off ``source |||``, what CompactPT wants to be sorted (``TM/CompactPT/PhraseTableCreator.cpp:333-341``)."""
    return key[: key.find(SEPARATOR) + len(SEPARATOR)]


def _count(counts: dict[str, RowCount], kind: str, lines: Sequence[int]) -> None:
    """Add later lines, ascending, to those of their kind."""
    if lines:
        rows, first_line = counts.get(kind, (0, lines[0]))
        counts[kind] = RowCount(rows + len(lines), first_line)


def survey_table(table: str, on_read: Progress | None = None, on_rows: Progress = silent) -> Survey:
    """Survey a table (``-``: standard input), which is read once. Memory grows with the number of distinct words alone.

    ``on_rows`` gets the number of rows read so far. Raises InputError for what is not a phrase table; bad rows are counted.
    """
    name = display_name(table)
    with no_cycle_collection(), open_input(table, on_read) as stream:
        blocks = read_blocks(stream, READ_ROWS)
        first = list(islice(blocks, 1))
        rows = first[0].rows() if first else []
        check_kind(name, rows, DESCRIBED)
        valid = first_row(name, rows, drops=True)
        n_fields = len(split_fields(SEPARATOR.join(valid.fields)))
        annotated = looks_annotated(valid_scores(rows[:JUDGED_ROWS], valid.n_scores))
        survey = Survey(valid.n_scores, n_fields, name, annotated)
        for block in chain(first, blocks):
            survey.add(block.first_row, block.data)
            on_rows(survey.rows)
    survey.finish()
    return survey
