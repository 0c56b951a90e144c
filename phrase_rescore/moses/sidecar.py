"""The sidecar of an annotated table, ``TABLE.columns.json``: which of its columns were added, and what they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from phrase_rescore.errors import InputError, printable
from phrase_rescore.files.inputs import display_name, open_input, open_plain

if TYPE_CHECKING:
    from phrase_rescore.moses.columns import ColumnFormat

GIVEN = "given_score"  # the feature of a column whose scores came from a file; its model is the name of the file
_MOST_COLUMNS = 10**6  # no column has a larger number; one in a damaged file may have thousands of digits


@dataclass(frozen=True)
class AddedColumn:
    """A column that a model added, as the sidecar of ``annotate`` lists it."""

    column: int  # from 1
    feature: str
    model: str  # its signature
    unit: str


def sidecar_path(table: str) -> str:
    """Name the file where annotate says what it added to a table."""
    return f"{table}.columns.json"


def format_sidecar(
    form: ColumnFormat, n_scores: int, models: Sequence[tuple[str, tuple[str, str]]], table: str | None = None, rows: int = 0,
    before: Sequence[AddedColumn] = (), scores: Sequence[str] = (),
) -> str:  # fmt: skip
    """Write the sidecar, as JSON, of a table whose rows had ``n_scores`` scores before its columns were added.

    ``models``: signature, and the sides read and predicted. ``table``: the file of its ``rows`` rows, None for a stream.
    ``before``: columns that models had added before; those that were not replaced are listed too. ``scores``: files of scores.
    """
    of_p, of_n = ("probability: exp of the ", "exp of the ") if form.scale == "exp" else ("", "")
    n_before, added = n_scores - form.replace, list[tuple[str, str, str]]()  # feature, model, unit
    for signature, (read, predicted) in models:
        side = {"output": predicted, "input": read, "both": "source and target"}[form.unknown_side]
        meanings = {
            "score": ("log_prob", signature, f"{of_p}natural log p({predicted} | {read}), EOS included"),
            "count": ("unknown_words", signature, f"{of_n}number of {side} words unknown to the model"),
        }
        added += [meanings[feature] for feature in form.features]
    added += [(GIVEN, os.path.basename(path), f"{of_p}natural log") for path in scores]
    columns = [column for column in before if column.column <= n_before]
    columns += [AddedColumn(number, *column) for number, column in enumerate(added, n_before + 1)]
    described = {} if table is None else {"table": {"rows": rows, "head": _head(table)}}
    return json.dumps({"format_version": 1, **described, "columns": list(map(asdict, columns))}, indent=2) + "\n"


def _head(path: str) -> str:
    """Return a digest of the first MiB of a table's text, compressed or not, by which its sidecar recognizes it."""
    with open_input(path) as stream:
        return hashlib.blake2b(stream.read(1 << 20), digest_size=16).hexdigest()


def read_sidecar(table: str) -> list[AddedColumn] | None:
    """Read the columns that models added from ``TABLE.columns.json``; None without it. Raises InputError if it is not fit."""
    path = sidecar_path(table)
    if table == "-" or not os.path.isfile(path):
        return None
    try:
        with open_plain(path) as stream:
            sidecar = json.load(stream)
        if sidecar["format_version"] != 1 or any(abs(column["column"]) > _MOST_COLUMNS for column in sidecar["columns"]):
            raise ValueError
        if "table" in sidecar and os.path.isfile(table) and sidecar["table"]["head"] != _head(table):
            hint = 'delete it; if the table was only sorted or filtered, delete the entry "table" in it'
            raise InputError(path, f"belongs to another table than {display_name(table)}", hint)
        return [
            AddedColumn(int(column["column"]), *(printable(str(column[name]), 1000) for name in ("feature", "model", "unit")))
            for column in sidecar["columns"]
        ]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        hint = "delete it, or annotate the table again"
        raise InputError(path, "is not a list of columns that annotate wrote", hint) from None
