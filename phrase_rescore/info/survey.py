"""Survey a phrase table in one pass: its contents, its order, and the rows that a Moses program mishandles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, compress, islice
from operator import lt, ne
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sampling import DistinctSample
from phrase_rescore.errors import RowError
from phrase_rescore.files.inputs import display_name, open_input, read_blocks
from phrase_rescore.info.faults import BAR, REFUSED, harmless_tail, row_faults, tail_faults, value_faults
from phrase_rescore.messages import Progress
from phrase_rescore.moses.columns import JUDGED_ROWS, looks_annotated
from phrase_rescore.moses.file_kinds import DESCRIBED, check_kind
from phrase_rescore.moses.table import READ_ROWS, SEPARATOR, cut_rows, first_row, parse_row, score_values, valid_scores
from phrase_rescore.runtime import no_cycle_collection


class RowCount(NamedTuple):
    """The number of rows (or sources) of a kind, and the line of the first."""

    rows: int
    first_line: int


class SurveyedSide:
    """Counts of the phrases of one side."""

    def __init__(self) -> None:
        self.words = Counter[bytes]()  # in how many places each stands
        self.sample = DistinctSample()  # of sources one occurrence a run, else every one

    def add(self, phrases: Sequence[bytes], occurrences: Sequence[bytes], lines: NDArray[np.int64]) -> None:
        """Count more phrases, one at least; ``occurrences`` and their ``lines`` go to the sample."""
        self.words.update(b" ".join(phrases).split(b" "))
        self.sample.add(occurrences, lines)

    @property
    def factors(self) -> int | None:
        """The number of factors that every word has; None if they differ."""
        found = {word.count(BAR) for word in self.words}
        return found.pop() + 1 if len(found) == 1 else None


class Survey:
    """Counts of the rows so far of a table whose first row has ``n_scores`` scores."""

    def __init__(self, n_scores: int, table: str = "", annotated: bool = False) -> None:
        self.table, self.looks_annotated, self.n_scores = table, annotated, n_scores
        self.rows = self.pairs = self.sources = 0  # pairs: valid rows; sources: runs of equal ones
        self.src, self.tgt = SurveyedSide(), SurveyedSide()
        self.least, self.greatest = np.full(n_scores, np.inf), np.full(n_scores, -np.inf)  # of every column, in valid rows
        self.zeros = np.zeros(n_scores, np.int64)
        self.faults: dict[str, RowCount] = {}  # by keys of FAULTS
        self.first_refusal: RowError | None = None
        self._last = b"", b""  # source and key of the last valid row

    def add(self, first_row: int, data: bytes) -> None:
        """Survey the rows that follow."""
        rows = cut_rows(data, self.n_scores)
        where: dict[str, list[int]] = defaultdict(list)  # lines that have a fault
        valid = list[tuple[int, bytes, bytes, bytes, bytes]]()  # line, source, target, what it is sorted by, scores
        for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
            if other is None:
                valid.append((line, src, tgt, src + b" " + SEPARATOR, head[head.rindex(SEPARATOR) + len(SEPARATOR) :]))
                faults = () if harmless_tail.fullmatch(tail) else tail_faults(tail)  # nearly all tails are
                if BAR in src or BAR in tgt:
                    faults = (*faults, "bars")
            else:
                try:
                    row = parse_row(other, self.n_scores)
                except RowError as error:
                    self.first_refusal = self.first_refusal or error
                    where[REFUSED].append(line)
                    continue
                phrases = b" ".join(row.src), b" ".join(row.tgt)
                valid.append((line, *phrases, row.fields[0] + SEPARATOR, b" ".join(row.scores)))
                faults = row_faults(other)
            for fault in faults:
                where[fault].append(line)
        self.rows += len(rows.heads)
        if valid:
            lines, src_phrases, tgt_phrases, keys, scores = zip(*valid, strict=True)
            values = score_values(scores, self.n_scores)
            self.least = np.minimum(self.least, values.min(axis=0))
            self.greatest = np.maximum(self.greatest, values.max(axis=0))
            self.zeros += (values == 0).sum(axis=0)
            for fault, mask in value_faults(values).items():
                where[fault] = list(compress(lines, mask.tolist()))
            where["unsorted"] = self._add_pairs(lines, src_phrases, tgt_phrases, keys)
        for fault, of_fault in where.items():
            _count(self.faults, fault, of_fault)

    def _add_pairs(
        self, lines: Sequence[int], src: Sequence[bytes], tgt: Sequence[bytes], keys: Sequence[bytes]
    ) -> list[int]:  # fmt: skip
        """Count valid rows; return the lines of those that should stand before the row before, by their ``keys``.

        A key is ``source |||``, what CompactPT wants to be sorted (``TM/CompactPT/PhraseTableCreator.cpp:333-341``).
        """
        last_src, last_key = self._last
        begins = np.flatnonzero(np.fromiter(map(ne, src, chain((last_src,), src)), bool, len(src)))
        self.pairs, self.sources = self.pairs + len(src), self.sources + len(begins)
        self.src.add(src, [src[i] for i in begins.tolist()], np.array(lines)[begins])
        self.tgt.add(tgt, tgt, np.array(lines))
        self._last = src[-1], keys[-1]
        return list(compress(lines, map(lt, keys, chain((last_key,), keys))))

    def finish(self) -> None:
        """Judge the table as a whole, after its last row."""
        _count(self.faults, "sources_apart", np.sort(self.src.sample.repeated).tolist())
        factors = self.src.factors, self.tgt.factors
        if None not in factors and factors != (1, 1):
            self.faults.pop("bars", None)  # a factored table


def _count(counts: dict[str, RowCount], kind: str, lines: Sequence[int]) -> None:
    """Add later lines, ascending, to those of their kind."""
    if lines:
        rows, first_line = counts.get(kind, (0, lines[0]))
        counts[kind] = RowCount(rows + len(lines), first_line)


def survey_table(table: str, on_read: Progress | None = None) -> Survey:
    """Survey a table (``-``: standard input), which is read once. Memory grows with the number of distinct words alone.

    Raises InputError for what is not a phrase table; bad rows are counted.
    """
    name = display_name(table)
    with no_cycle_collection(), open_input(table, on_read) as stream:
        blocks = read_blocks(stream, READ_ROWS)
        first = list(islice(blocks, 1))
        rows = first[0].rows() if first else []
        check_kind(name, rows, DESCRIBED)
        valid = first_row(name, rows, drops=True)
        annotated = looks_annotated(valid_scores(rows[:JUDGED_ROWS], valid.n_scores))
        survey = Survey(valid.n_scores, name, annotated)
        for block in chain(first, blocks):
            survey.add(block.first_row, block.data)
    survey.finish()
    return survey
