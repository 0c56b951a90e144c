"""The sidecar of an annotated table: which columns annotate appended, and what each of them has."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import display_name, open_input, open_plain
from phrase_rescore.messages import printable
from phrase_rescore.ranges import Words

FEATURES = ("score", "count")  # the kinds of columns that every model appends: log p, and the number of unknown words
GIVEN = "given"  # the kind of a column whose scores came from a file
KINDS = (*FEATURES, GIVEN)
SCALES = Words(("exp", "log"))
SIDES = ("source", "target")

_FORMAT_VERSION = 2
_MOST_COLUMNS = 10**6  # no column has a larger number; one in a damaged file may have thousands of digits
_KINDS_OF_VERSION_1 = {"log_prob": "score", "unknown_words": "count", "given_score": GIVEN}


@dataclass(frozen=True)
class AddedColumn:
    """A column that annotate appended.

    On the scale ``exp`` the table has exp of the value, on ``log`` the value itself: a natural log-probability, or a count.
    """

    column: int  # from 1
    kind: str  # one of KINDS
    scale: str  # one of SCALES
    model: str  # the signature of the model; of a given column the name of its file
    predicts: str | None = None  # of a score: the side that the model predicts, one of SIDES
    side: str | None = None  # of a count: whose unknown words it has, one of SIDES or both


def sidecar_path(table: str) -> str:
    """Name the file where annotate says what it added to a table."""
    return f"{table}.columns.json"


def format_sidecar(columns: Sequence[AddedColumn], table: str | None = None, rows: int = 0) -> str:
    """Write the sidecar, as JSON, of these columns. ``table``: the file of the table's ``rows`` rows, None for a stream."""
    described = {} if table is None else {"table": {"rows": rows, "head": _head(table)}}
    fields = [{name: value for name, value in asdict(column).items() if value is not None} for column in columns]
    return json.dumps({"format_version": _FORMAT_VERSION, **described, "columns": fields}, indent=2) + "\n"


def _head(path: str) -> str:
    """Return a digest of the first MiB of a table's text, compressed or not, by which its sidecar recognizes it."""
    with open_input(path) as stream:
        return hashlib.blake2b(stream.read(1 << 20), digest_size=16).hexdigest()


def read_sidecar(table: str) -> list[AddedColumn] | None:
    """Read the added columns from the sidecar of a table; None without one. Raises InputError if it does not fit."""
    path = sidecar_path(table)
    if table == "-" or not os.path.isfile(path):
        return None
    try:
        with open_plain(path) as stream:
            sidecar = json.load(stream)
        if "table" in sidecar and os.path.isfile(table) and sidecar["table"]["head"] != _head(table):
            hint = 'delete it; if the table was only sorted or filtered, delete the entry "table" in it'
            raise InputError(path, f"belongs to another table than {display_name(table)}", hint)
        read = {1: _column_of_version_1, _FORMAT_VERSION: _column}[sidecar["format_version"]]
        return [read(fields) for fields in sidecar["columns"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        hint = "delete it, or annotate the table again"
        raise InputError(path, "is not a list of columns that annotate wrote", hint) from None


def _column(fields: dict[str, Any]) -> AddedColumn:
    """Make a column of its fields in a sidecar. Raises ValueError, TypeError or KeyError if annotate did not write them."""
    column = AddedColumn(**{**fields, "model": printable(fields["model"], 1000)})
    is_number = isinstance(column.column, int) and abs(column.column) <= _MOST_COLUMNS
    has_sides = column.predicts in (*SIDES, None) and column.side in (*SIDES, "both", None)
    if not (is_number and has_sides and column.kind in KINDS and column.scale in SCALES):
        raise ValueError
    return column


def _column_of_version_1(fields: dict[str, Any]) -> AddedColumn:
    """Make a column of what version 1 said of it: scale and sides in the words of its unit."""
    kind, unit = _KINDS_OF_VERSION_1[fields["feature"]], fields["unit"]
    predicts = side = None
    if kind == "score":
        predicts = "source" if "p(source" in unit else "target"
    if kind == "count":
        side = "both" if "source and target" in unit else "source" if "of source" in unit else "target"
    scale = "exp" if unit.startswith(("probability", "exp")) else "log"
    of_model = {"column": fields["column"], "model": fields["model"]}
    return _column({**of_model, "kind": kind, "scale": scale, "predicts": predicts, "side": side})
