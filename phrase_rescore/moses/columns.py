"""The score columns of a phrase table: those that models add, which its sidecar lists, and those that it has."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, open_plain, read_rows
from phrase_rescore.messages import counted, printable, shown
from phrase_rescore.moses.table import TableRow, parse_row
from phrase_rescore.ranges import DIGITS, REPLACED, Checked, ranged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
FEATURES = ("score", "count")  # that a model adds to a row: p, and exp of the number of unknown words
JUDGED_ROWS = 1000  # whose last columns show whether a model added them
RANGE_ROWS = 10_000  # from which moses-ini takes the ranges of a table's columns
MIN_P = 1.2e-38  # just above the smallest normal 32-bit float: below it consumers differ
MIN_LOG_P = math.log(MIN_P)  # -87.3
MAX_COUNT = 88  # exp(89) overflows a 32-bit float
GIVEN = "given_score"  # the feature of a column whose scores came from a file; its model is the name of the file
_MOST_COLUMNS = 10**6  # no column has a larger number; one in a damaged file may have thousands of digits
_OF_MOSES = ("φ(s|t)", "lex(s|t)", "φ(t|s)", "lex(t|s)")  # phrase-extract/consolidate-main.cpp


@dataclass(frozen=True)
class ColumnFormat(Checked):
    """Which columns a model adds to a table, and how they are written."""

    scale: str = "exp"  # exp: what Moses loads, it takes the logarithm itself; log: for people
    digits: int = ranged(7, DIGITS)  # significant
    unknown_side: str = "output"  # output, input, both: whose unknown words are counted
    features: tuple[str, ...] = FEATURES  # that every model adds, in this order
    replace: int = ranged(0, REPLACED)  # last score columns to drop first

    def count(self, n: int) -> bytes:
        """Write the column of a number of unknown words: exp of it, or with ``log`` itself."""
        return b"%d" % n if self.scale == "log" else b"%.*g" % (self.digits, math.exp(min(n, MAX_COUNT)))

    def columns(self, log_p: NDArray[np.float64], unknown: Sequence[int]) -> list[bytes]:
        """Write a model's columns of every row, each with the blank before it, from natural log-probabilities (n,).

        >>> import numpy as np
        >>> ColumnFormat().columns(np.array([-3.25, -1000.0]), [0, 1])
        [b' 0.03877421 1', b' 1.2e-38 2.718282']
        >>> ColumnFormat(scale="log").columns(np.array([-3.25]), [2])
        [b' -3.25 2']
        """
        import numpy as np  # here, so that the help of commands that know FEATURES need not wait for it

        score = b" %%.%dg" % self.digits if "score" in self.features else b""
        forms = {n: score + (b" " + self.count(n) if "count" in self.features else b"") for n in set(unknown)}
        if not score:
            return [forms[n] for n in unknown]
        values = log_p if self.scale == "log" else np.exp(np.clip(log_p, MIN_LOG_P, 0.0))
        return [forms[n] % x for x, n in zip(values.tolist(), unknown, strict=True)]

    def given(self, log_score: float) -> bytes:
        """Write a score of another origin, with the blank before it, from its natural logarithm."""
        value = log_score if self.scale == "log" else math.exp(min(max(log_score, MIN_LOG_P), MAX_COUNT))
        return b" %.*g" % (self.digits, value)


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


def _looks_like(name: str, scale: str, x: float) -> bool:
    """Return whether a number may be a value of this feature on this scale."""
    if name == "score":
        return 0 < x <= 1 if scale == "exp" else -math.inf < x <= 0
    if scale == "log":
        return x >= 0 and x.is_integer()
    n = round(math.log(x)) if 1 <= x < 1e39 else -1
    return n >= 0 and math.isclose(x, math.exp(n), rel_tol=1e-5)  # 2.718, Moses' own constant, is not one


def looks_annotated(rows: Sequence[TableRow], last: int = 2, features: Sequence[str] = FEATURES) -> bool:
    """Return whether the ``last`` columns of all rows look like these features, model after model, or their logarithms.

    Plain scores may all be probabilities, and a penalty is always the same. So a count must vary, or the usual four come first.
    """
    if not rows or any(row.n_scores <= last for row in rows) or last % len(features):
        return False
    columns = list(zip(*(map(float, row.scores[-last:]) for row in rows), strict=True))
    named = [(features[i % len(features)], values) for i, values in enumerate(columns)]
    if not any(all(_looks_like(name, scale, x) for name, values in named for x in values) for scale in ("exp", "log")):
        return False
    counts = [values for name, values in named if name == "count"]
    return any(len(set(values)) > 1 for values in counts) or rows[0].n_scores - last >= len(_OF_MOSES)


def check_own(table: str, rows: Sequence[TableRow], last: int, option: str, force: str) -> None:
    """Raise OptionError if annotate did not write the ``last`` columns, which an option removes, by sidecar or looks."""
    n = rows[0].n_scores
    if (added := read_sidecar(table)) is not None:
        foreign = sorted(set(range(n - last + 1, n + 1)) - {column.column for column in added})
        found = f"column {foreign[0]} is not one that {sidecar_path(table)} names" if foreign else ""
    else:
        what = "its last column does" if last == 1 else f"its last {last} columns do"
        looks = any(looks_annotated(rows, last, features) for features in (FEATURES, *zip(FEATURES)))
        found = "" if looks else f"{what} not look like what annotate writes"
    if found:
        hint = f"{option} {last} would remove scores of the table's own: leave it out, or add {force}"
        raise OptionError(f"{display_name(table)}: {found}; {hint}")


@dataclass(frozen=True)
class ScoreColumn:
    """A score column of a table."""

    number: int  # from 1
    name: str  # for people
    low: float  # in the rows that were read
    high: float
    feature: str = ""  # log_prob or unknown_words if a model added it; empty: the table's own
    model: str = ""  # the signature of that model, empty where no sidecar says it
    unit: str = ""

    @property
    def inverse(self) -> bool:
        """Whether its model predicts the source."""
        return "p(source" in self.unit

    @property
    def is_log(self) -> bool:
        """Whether the table has the logarithm, or the number of words, itself."""
        return not self.unit.startswith(("probability", "exp")) if self.feature else self.low < 0

    def of(self, values: Sequence[T]) -> T:
        """Return the value of this column, of those of all columns."""
        return values[self.number - 1]

    def is_count(self, added: bool) -> bool:
        """Return whether the column is exp of a count, never below 1. A column of ones is one if it is ``added``."""
        if self.feature:
            return self.feature.startswith("unknown")
        return self.low >= 1 and (added or self.high > 1)


@dataclass(frozen=True)
class TableColumns:
    """The score columns of a table: its own ones, and those that models added, by its sidecar or else by their looks."""

    table: str
    columns: tuple[ScoreColumn, ...]
    guessed: bool = False  # without a sidecar, the last ones look like those of annotate

    @classmethod
    def read(cls, table: str, limit: int = JUDGED_ROWS, loadable: bool = False) -> TableColumns:
        """Read the columns from the first ``limit`` rows of a table (``-``: standard input) and its sidecar.

        Raises InputError as ``read_sidecar``, for an empty table, a bad row, a column of the sidecar that is not there, and, if
        the table must be ``loadable``, for a negative score.
        """
        name, rows = display_name(table), list[TableRow]()
        with open_input(table) as stream:
            for line, data in enumerate(islice(read_rows(stream), limit), 1):
                try:
                    row = parse_row(data.removesuffix(b"\n"), rows[0].n_scores if rows else None)
                    if loadable and float(least := min(row.scores, key=float)) < 0:
                        hint = "Moses takes its logarithm and would drop the pair without a message"
                        raise RowError(f"score {shown(least)} is negative", f"{hint}; annotate without --scale log")
                    rows.append(row)
                except RowError as error:
                    raise error.at(name, line) from None
        if not rows:
            raise InputError(name, "is empty", "pass a phrase table")
        return cls.of(table, rows)

    @classmethod
    def of(cls, table: str, first: Sequence[TableRow]) -> TableColumns:
        """Return the columns of a table from its first valid rows and its sidecar. Raises InputError as ``read``."""
        n, added = first[0].n_scores, read_sidecar(table)
        rows = [row for row in first if row.n_scores == n]
        ranges = [(min(values), max(values)) for values in zip(*(map(float, row.scores) for row in rows), strict=True)]
        guessed = added is None and looks_annotated(rows[:JUDGED_ROWS])
        if guessed:
            of_p, of_n = ("", "") if ranges[n - 2][1] <= 0 else ("probability", "exp")
            own = n - 2  # columns before those of models
            while looks_annotated(rows[:JUDGED_ROWS], n - own + 2):
                low, high = ranges[own - 1]  # of the count that may be one more model's
                if low == high and own < len(_OF_MOSES) + 2:
                    break
                own -= 2
            added = list[AddedColumn]()
            for i in range(own + 1, n, 2):
                added += AddedColumn(i, "log_prob", "", of_p), AddedColumn(i + 1, "unknown_words", "", of_n)
        by_number = {column.column: column for column in added or ()}
        if beyond := [number for number in by_number if not 1 <= number <= n]:
            found = f"column {beyond[0]} of a table that has {n}"
            raise InputError(sidecar_path(table), found, "delete it, or annotate the table again")
        all_columns = [by_number.get(i, AddedColumn(i, "", "", "")) for i in range(1, n + 1)]
        is_usual = min(by_number, default=n + 1) > len(_OF_MOSES) and ranges[3:4] != [(1.0, 1.0)]  # a count of no unknown words
        described = zip(all_columns, _names(n, by_number, _OF_MOSES if is_usual else ()), ranges, strict=True)
        columns = (ScoreColumn(c.column, name, *of, c.feature, c.model, c.unit) for c, name, of in described)
        return cls(table, tuple(columns), guessed)

    def __len__(self) -> int:
        return len(self.columns)

    def added(self) -> list[AddedColumn]:
        """Return the columns that models added, as a sidecar lists them."""
        return [AddedColumn(c.number, c.feature, c.model, c.unit) for c in self.columns if c.feature]

    def last_added(self) -> list[ScoreColumn]:
        """Return the columns at the end that models added."""
        return list(self.columns[max((column.number for column in self.columns if not column.feature), default=1) :])

    def phi(self, number: int | None = None, inverse: bool = False) -> ScoreColumn:
        """Return the column of φ(target | source), the third, its ``inverse``, the first, or ``number``. Raises OptionError."""
        name, own = display_name(self.table), [column for column in self.columns if not column.feature]
        if number is not None and number > len(self):
            raise OptionError(f"--phi-column {number}: {name} has {counted(len(self), 'score column')}")
        if not own:
            raise OptionError(f"{name}: all score columns are a model's; give a table that has φ")
        if number is not None and self.columns[number - 1] not in own:
            found = f"column {number} of {name} {'looks like' if self.guessed else 'is'} a model's"
            numbers = ", ".join(str(column.number) for column in own)
            raise OptionError(f"--phi-column {number}: {found}; give one of its own: {numbers}")
        before = own[: next((i for i, column in enumerate(self.columns) if column.feature), None)] or own
        return self.columns[number - 1] if number is not None else before[0 if inverse else min(len(before), 3) - 1]

    def score(self, model: str = "") -> ScoreColumn | None:
        """Return the score of this model, else of the first model that predicts targets, else of the first one."""
        scores = [column for column in self.columns if column.feature == "log_prob"]
        return min(scores, key=lambda column: (column.model != model, column.inverse), default=None)

    def unknown(self, score: ScoreColumn | None) -> ScoreColumn | None:
        """Return the count of unknown words of the model that has this score, else the first one."""
        counts = [column for column in self.columns if column.feature == "unknown_words"]
        return min(counts, key=lambda column: score is None or column.model != score.model, default=None)

    def logs(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the natural logarithms of the scores of rows (rows, columns), Moses' least for a score of 0."""
        import numpy as np

        return np.where([column.is_log for column in self.columns], scores, np.log(np.maximum(scores, MIN_P)))


def _names(n: int, added: Mapping[int, AddedColumn], usual: Sequence[str]) -> list[str]:
    """Name the columns; several of one name get their numbers."""
    names = [*usual[:n], *(f"column {number}" for number in range(len(usual) + 1, n + 1))]
    for number, column in added.items():
        score = column.model if column.feature == GIVEN else "p(s|t)" if "p(source" in column.unit else "p(t|s)"
        names[number - 1] = "unknown" if column.feature == "unknown_words" else score
    return [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, 1)]


def check_compression(table: str) -> None:
    """Raise InputError for a compressed table that is not a gzip file named .gz (``moses/InputFileStream.cpp``)."""
    if not os.path.isfile(table):
        return
    with open_plain(table) as raw, open_input(table) as stream:
        head = raw.read(10)
        if stream.read(10) != head and not (head.startswith(b"\x1f\x8b") and table.endswith(".gz")):
            hint = "Moses loads plain tables and .gz: compress it with gzip"
            raise InputError(table, "is compressed, but not a gzip file named .gz", hint)
