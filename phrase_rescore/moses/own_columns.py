"""Columns of ours that a table has already: told by their looks, or by the file that annotate wrote beside it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from phrase_rescore.errors import InputError, shown
from phrase_rescore.files.streams import open_plain
from phrase_rescore.moses.fields import words
from phrase_rescore.moses.phrase_table import TableRow


def looks_annotated(rows: Sequence[TableRow]) -> bool:
    """Whether the last two columns of all rows are a probability and exp(a count), or their logarithms."""
    pairs = [tuple(map(float, words(row.fields[2].strip())[-2:])) for row in rows if row.n_scores > 2]

    def is_count(x: float) -> bool:
        n = round(math.log(x)) if 1 <= x < 1e39 else -1
        return n >= 0 and math.isclose(x, math.exp(n), rel_tol=1e-5)  # 2.718, Moses' own constant, is none of ours

    as_exp = all(0 < p <= 1 and is_count(n) for p, n in pairs)
    as_log = all(p <= 0 and n >= 0 and n.is_integer() for p, n in pairs)
    telling = rows[0].n_scores > 4 or any(n not in (0.0, 1.0) for _, n in pairs)  # four plain scores may all be 1
    return len(pairs) == len(rows) > 0 and (as_exp or as_log) and telling


@dataclass(frozen=True)
class OwnColumn:
    """What the sidecar of ``annotate`` says of a column."""

    column: int  # from 1
    feature: str
    model: str  # its signature
    unit: str


def sidecar_path(table: str) -> str:
    """Where annotate says what it added to a table."""
    return f"{table}.columns.json"


def _printable(value: object) -> str:
    """A text that may be anybody's, for a terminal."""
    return shown(str(value).encode("utf-8", "backslashreplace"), 1000)[1:-1]


def read_sidecar(table: str) -> list[OwnColumn] | None:
    """The columns of ours by ``TABLE.columns.json``; None if there is no such file.

    Raises InputError for a file that is damaged or of another format.
    """
    path = sidecar_path(table)
    if table == "-" or not os.path.isfile(path):
        return None
    try:
        with open_plain(path) as stream:
            sidecar = json.load(stream)
        if sidecar["format_version"] != 1:
            raise ValueError
        columns = [
            OwnColumn(int(column["column"]), *(_printable(column[name]) for name in ("feature", "model", "unit")))
            for column in sidecar["columns"]
        ]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise InputError(path, "is no list of columns that annotate wrote", "remove it, or annotate the table again") from None
    return columns
