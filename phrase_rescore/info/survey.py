"""A phrase table is surveyed in one pass: what is in it, its order, and the rows that some Moses program mishandles.

``Surveyor(...)(number, first_row, data)`` is a pure function of a block of rows. Surveys of neighbouring blocks add up with
``+=``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from phrase_rescore.errors import InputError, shown
from phrase_rescore.files.blocks import read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.info.faults import examine, harmless_tail, tail_faults, value_faults
from phrase_rescore.info.statistics import Survey, survey_of, tally
from phrase_rescore.moses.columns import JUDGED_ROWS, looks_annotated
from phrase_rescore.moses.pairs import row_format
from phrase_rescore.moses.table import SEPARATOR, cut_rows, score_values, split_fields, valid_rows, words
from phrase_rescore.runtime import no_cycle_collection

BLOCK_ROWS = 16384
BAR = SEPARATOR[:1]


@dataclass(frozen=True)
class Surveyor:
    """A function that surveys blocks of a table whose first row has ``n_scores`` scores and ``n_fields`` fields."""

    n_scores: int
    n_fields: int

    def __call__(self, number: int, first_row: int, data: bytes) -> Survey:
        rows, is_harmless = cut_rows(data, self.n_scores), harmless_tail(self.n_fields).fullmatch
        where: dict[str, list[int]] = defaultdict(list)  # lines that have a fault
        lines, sources, targets, keys = list[int](), list[bytes](), list[bytes](), list[bytes]()  # of rows with both phrases
        scored, numbers = list[int](), list[bytes]()  # lines that have all scores, and the scores
        for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
            if other is None:
                end = head.rindex(SEPARATOR) + len(SEPARATOR)
                key, scores = head[:end], head[end:]
                faults: Sequence[str] = () if is_harmless(tail) else tail_faults(tail, self.n_scores, self.n_fields)
                if BAR in src or BAR in tgt:
                    faults = (*faults, "bars")
            else:
                src, tgt, key, scores, faults = examine(other, self.n_scores, self.n_fields)
            for kind in faults:
                where[kind].append(line)
            if src and tgt:
                lines.append(line)
                sources.append(src)
                targets.append(tgt)
                keys.append(key)
            if scores:
                scored.append(line)
                numbers.append(scores)
        values = score_values(numbers, self.n_scores)
        survey = survey_of(len(rows.heads), np.array(lines, np.int64), sources, targets, keys, values)
        for kind, mask in value_faults(values).items():
            where[kind] = np.array(scored)[mask].tolist()
        for kind, of_kind in where.items():
            survey.add_fault(kind, tally(of_kind))
        return survey


@dataclass(frozen=True)
class TableSurvey:
    """The survey of a whole table."""

    table: str
    n_scores: int  # of the first valid row
    n_fields: int
    looks_annotated: bool
    survey: Survey


_OTHERS = {
    "extract": "an extract file (alignment where a table has scores)",
    "half": "a half table (alignment before the scores)",
    "nbest": "an n-best list",
    "vocabulary": "a vocabulary file",
    "tsv": "two-column TSV",
}


def _format_of(row: bytes) -> str | None:
    """Tell what a row looks like: ``table``, one of _OTHERS, or None."""
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
        raise InputError(table, f"{shown(rows[0])} does not look like a phrase table" if rows else "is empty", hint)
    (best, _), *_ = votes.most_common(1)
    if best != "table":
        raise InputError(table, f"looks like {_OTHERS[best]}", hint)


def survey_table(
    table: str, on_read: Callable[[int], object] | None = None, on_block: Callable[[Survey], object] = lambda survey: None
) -> TableSurvey:
    """Survey a table (``-``: standard input), which is read once. Memory grows with the number of distinct words alone.

    Raises InputError for a file that cannot be read or is not a phrase table; bad rows are counted.
    """
    name = display_name(table)
    with no_cycle_collection(), open_input(table, on_read) as stream:
        blocks = read_blocks(stream, BLOCK_ROWS)
        first = list(islice(blocks, 1))
        rows = first[0].rows() if first else []
        _check_format(name, rows[:100])
        valid = list(islice(valid_rows(rows), JUDGED_ROWS))
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
    return TableSurvey(name, n_scores, n_fields, looks_annotated(valid), survey)
