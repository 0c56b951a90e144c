"""A phrase table in one pass: what is in it, its order, and the rows that some Moses program mishandles.

``Surveyor(...)(number, first_row, data)`` is a pure function of a block of rows; surveys of neighbouring blocks add up with
``+=``. A block of plain rows is taken all at once, any other row by row, with the same result.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RowError, shown
from phrase_rescore.files.blocks import Block, read_blocks
from phrase_rescore.files.streams import display_name, open_input
from phrase_rescore.info.faults import KNOWN_PROPERTIES, examine, value_faults
from phrase_rescore.info.statistics import Survey, survey_of, tally
from phrase_rescore.moses.fields import SEPARATOR, split_fields, words
from phrase_rescore.moses.pair_readers import row_format
from phrase_rescore.moses.phrase_table import NUMBER, TableRow, parse_row
from phrase_rescore.moses.score_columns import looks_annotated
from phrase_rescore.moses.table_blocks import PlainRows, cut, plain_rows
from phrase_rescore.runtime import no_cycle_collection

BLOCK_ROWS = 16384
_JUDGED_ROWS = 1000  # valid rows looked at for columns that are ours already
_BLANK, _BAR = b" " + SEPARATOR[:1]
_WIDTH = len(SEPARATOR)

_POINTS = re.compile(rb"(?: |\d++-\d++(?![^ ]))*+")
_KEYS = re.compile(rb"\{\{([^ }\n]*)")
_WORD = rb"[^ \t\r\n\0|\[\]{]++"

Mask = NDArray[np.bool_]


@functools.lru_cache
def _plain_row(n_scores: int, n_fields: int) -> re.Pattern[bytes]:
    """Rows without any fault, most of those there are: their source, target and scores are caught."""
    bars = b" " + re.escape(SEPARATOR)
    phrase = rb"(%b(?: %b)*+)" % (_WORD, _WORD)
    scores = rb"(%b(?: %b){%d})" % (NUMBER, NUMBER, n_scores - 1)
    alignment, sparse, others = rb"(?: \d++-\d++)++", rb"(?: %b %b)*+" % (_WORD, _WORD), rb"(?: %b)*+" % _WORD
    behind = [alignment, others, sparse, *[others] * n_fields][: n_fields - 3]
    if n_fields < 4:
        return re.compile(rb"(?!)")  # a row without an alignment has a fault
    return re.compile(bars.join((phrase, b" " + phrase, b" " + scores, *behind)))


@dataclass(frozen=True)
class Surveyor:
    """Surveys a block of rows of a table whose first row has ``n_scores`` scores and ``n_fields`` fields."""

    n_scores: int
    n_fields: int

    def __call__(self, number: int, first_row: int, data: bytes) -> Survey:
        return self._at_once(first_row, data) or self._by_rows(first_row, Block(number, first_row, data).rows())

    def _by_rows(self, first_row: int, rows: list[bytes]) -> Survey:
        plain = _plain_row(self.n_scores, self.n_fields).fullmatch
        lines, src, tgt, keys, scored, values = [], [], [], [], [], list[list[float]]()
        where: dict[str, list[int]] = {}
        for line, row in enumerate(rows, first_row):
            if found := plain(row):
                of_src, of_tgt, scores = found.groups()
                key = row[: found.start(3) - 1]
                numbers: list[float] | None = [float(score) for score in scores.split(b" ")]
            else:
                of_src, of_tgt, key, numbers, faults = examine(row, self.n_scores, self.n_fields)
                for kind in faults:
                    where.setdefault(kind, []).append(line)
            if of_src and of_tgt:
                lines.append(line)
                src.append(of_src)
                tgt.append(of_tgt)
                keys.append(key)
            if numbers is not None:
                scored.append(line)
                values.append(numbers)
        table = np.array(values, np.float64).reshape(len(values), self.n_scores)
        survey = survey_of(len(rows), np.array(lines, np.int64), src, tgt, keys, table)
        for kind, mask in value_faults(table).items():
            where[kind] = np.array(scored)[mask].tolist()
        for kind, of_kind in where.items():
            survey.add_fault(kind, tally(of_kind))
        return survey

    def _at_once(self, first_row: int, data: bytes) -> Survey | None:
        """The same if all rows are plain and nothing in them needs a closer look; else None."""
        if b"\r" in data or b"\t" in data or b"\0" in data or not KNOWN_PROPERTIES.issuperset(_KEYS.findall(data)):
            return None
        rows = plain_rows(data, self.n_scores)
        if rows is None or not _separators_stand_alone(rows) or not _sparse_scores_are_pairs(rows):
            return None
        faults = _alignment_faults(rows)
        if faults is None:
            return None
        n = len(rows.src)
        values = np.fromstring(b" ".join(rows.scores), np.float64, sep=" ").reshape(n, self.n_scores)
        faults |= value_faults(values)
        faults["n_fields"] = rows.n_separators + 1 != self.n_fields
        if data.count(SEPARATOR[:1]) > _WIDTH * len(rows.separators):
            faults["bars"] = _have_bars(rows)
        keys = cut(data, rows.starts, rows.score_starts - 1)
        survey = survey_of(n, np.arange(first_row, first_row + n), rows.src, rows.tgt, keys, values)
        for kind, mask in faults.items():
            survey.add_fault(kind, tally((first_row + np.flatnonzero(mask)).tolist()))
        return survey


def _separators_stand_alone(rows: PlainRows) -> bool:
    """Whether every separator has a blank on either side, or the row's end behind it, and none overlaps another."""
    chars = np.frombuffer(rows.data + b"\n", np.uint8)
    behind = chars[rows.separators + _WIDTH]
    alone = (chars[rows.separators - 1] == _BLANK) & ((behind == _BLANK) | (behind == ord("\n")))
    return bool(alone.all())


def _alignment_faults(rows: PlainRows) -> dict[str, Mask] | None:
    """Rows without an alignment; None if one is no list of points."""
    having, starts, ends = rows.field(3)
    alignments = cut(rows.data, starts, ends)
    distinct = set(alignments)
    if not all(map(_POINTS.fullmatch, distinct)):
        return None
    faults = {"no_alignment": rows.n_separators < 3}
    if empty := {alignment for alignment in distinct if not alignment.strip(b" ")}:
        faults["empty_alignment"] = np.zeros(len(rows.src), bool)
        faults["empty_alignment"][having] = [alignment in empty for alignment in alignments]
    return faults


def _sparse_scores_are_pairs(rows: PlainRows) -> bool:
    _, starts, ends = rows.field(5)
    some = ends - starts > 1  # more than the blank that no scores leave
    return all(len(words(sparse)) % 2 == 0 for sparse in set(cut(rows.data, starts[some], ends[some])))


def _have_bars(rows: PlainRows) -> Mask:
    """Which rows have a bar in their phrases that belongs to no separator."""
    lone = np.frombuffer(rows.data, np.uint8) == _BAR
    for i in range(_WIDTH):
        lone[rows.separators + i] = False
    places = np.flatnonzero(lone)
    of = np.searchsorted(rows.starts, places, "right") - 1
    mask = np.zeros(len(rows.src), bool)
    mask[of[places < rows.score_starts[of]]] = True
    return mask


@dataclass(frozen=True)
class TableSurvey:
    """The whole of a table."""

    table: str
    n_scores: int  # of the first valid row
    n_fields: int
    looks_annotated: bool
    survey: Survey


def _valid_rows(rows: Sequence[bytes], limit: int) -> Iterator[TableRow]:
    for row in islice(rows, limit):
        try:
            yield parse_row(row.rstrip(b"\r"))
        except RowError:
            continue


_OTHERS = {
    "extract": "an extract file (alignment where a table has scores)",
    "half": "a half table (alignment before the scores)",
    "nbest": "an n-best list",
    "vocabulary": "a vocabulary file",
    "tsv": "two-column TSV",
}


def _format_of(row: bytes) -> str | None:
    """What a row looks like: ``table``, one of _OTHERS, or None."""
    fields = split_fields(row)
    form = row_format(row)
    if form == "tsv" and row.partition(b"\t")[2].strip().isdigit():
        return "vocabulary"
    if form is None and len(fields) > 3 and (features := words(fields[2])) and features[0].endswith(b"="):
        return "nbest"
    return form or ("table" if len(fields) >= 3 else None)


def _check_format(table: str, rows: Sequence[bytes]) -> None:
    votes = Counter(form for form in map(_format_of, rows) if form)
    hint = "info reads phrase tables and model directories"
    if not votes:
        raise InputError(table, f"{shown(rows[0])} begins no phrase table" if rows else "is empty", hint)
    (best, _), *_ = votes.most_common(1)
    if best != "table":
        raise InputError(table, f"looks like {_OTHERS[best]}", hint)


def survey_table(
    table: str, on_read: Callable[[int], object] | None = None, on_block: Callable[[Survey], object] = lambda survey: None
) -> TableSurvey:
    """Reads a table (``-``: standard input) once. Memory grows with the number of distinct words alone.

    Raises InputError for a file that cannot be read or is no phrase table; bad rows are counted.
    """
    name = display_name(table)
    with no_cycle_collection(), open_input(table, on_read) as stream:
        blocks = read_blocks(stream, BLOCK_ROWS)
        first = list(islice(blocks, 1))
        rows = first[0].rows() if first else []
        _check_format(name, rows[:100])
        valid = list(_valid_rows(rows, _JUDGED_ROWS))
        n_scores = valid[0].n_scores if valid else 1
        n_fields = len(split_fields(next((row for row in rows if SEPARATOR in row), b"")))
        surveyor = Surveyor(n_scores, n_fields)
        survey = surveyor(0, 1, b"")
        for block in chain(first, blocks):
            survey += surveyor(*block)
            on_block(survey)
    again = survey.src.sample.repeated
    survey.add_fault("sources_apart", tally(np.sort(again).tolist()))
    if {survey.src.factors, survey.tgt.factors}.isdisjoint({None}) and (survey.src.factors, survey.tgt.factors) != (1, 1):
        survey.faults.pop("bars", None)  # a factored table
    return TableSurvey(name, n_scores, n_fields, bool(valid) and looks_annotated(valid), survey)
