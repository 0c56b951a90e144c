"""The score columns of a phrase table: those that annotate appends, those that a table has, and the sidecar that names them."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import Block, display_name, look_ahead, open_input, open_plain, read_blocks
from phrase_rescore.messages import counted, printable
from phrase_rescore.moses.table import first_row, parse_block
from phrase_rescore.ranges import DIGITS, REPLACED, Checked, Words, ranged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


JUDGED_ROWS = 1000  # whose last columns may look like those of annotate
RANGE_ROWS = 10_000  # from which moses-ini takes the ranges of a table's columns
MIN_P = 1.2e-38  # just above the smallest normal 32-bit float: below it consumers differ
MIN_LOG_P = math.log(MIN_P)  # -87.3
MAX_COUNT = 88  # exp(89) overflows a 32-bit float
_OF_MOSES = 4  # score columns of a table: φ(s|t), lex(s|t), φ(t|s), lex(t|s) (phrase-extract/consolidate-main.cpp)


@dataclass(frozen=True)
class ColumnFormat(Checked):
    """Which columns a model adds to a table, and how they are written."""

    scale: str = ranged("exp", SCALES)  # exp: what Moses loads, it takes the logarithm itself; log: for people
    digits: int = ranged(7, DIGITS)  # significant
    features: tuple[str, ...] = FEATURES  # that every model adds, in this order
    replace: int = ranged(0, REPLACED)  # last score columns to drop first

    def columns(self, log_p: NDArray[np.float64], unknown: Sequence[int]) -> list[bytes]:
        """Write a model's columns of every row, each with the blank before it, from natural log-probabilities (n,).

        >>> import numpy as np
        >>> ColumnFormat().columns(np.array([-3.25, -1000.0]), [0, 1])
        [b' 0.03877421 1', b' 1.2e-38 2.718282']
        >>> ColumnFormat(scale="log").columns(np.array([-3.25]), [2])
        [b' -3.25 2']
        """
        import numpy as np  # here, so that the help of commands that know FEATURES need not wait for it

        forms, score = dict[int, bytes](), b" %%.%dg" % self.digits if "score" in self.features else b""
        for n in set(unknown):
            count = b" %d" % n if self.scale == "log" else b" %.*g" % (self.digits, math.exp(min(n, MAX_COUNT)))
            forms[n] = score + (count if "count" in self.features else b"")
        if not score:
            return [forms[n] for n in unknown]
        values = log_p if self.scale == "log" else np.exp(np.clip(log_p, MIN_LOG_P, 0.0))
        return [forms[n] % x for x, n in zip(values.tolist(), unknown, strict=True)]

    def given(self, log_score: float) -> bytes:
        """Write a score of another origin, with the blank before it, from its natural logarithm."""
        value = log_score if self.scale == "log" else math.exp(min(max(log_score, MIN_LOG_P), MAX_COUNT))
        return b" %.*g" % (self.digits, value)

    def described(self, first: int, models: Sequence[tuple[str, str]], score_files: Sequence[str]) -> list[AddedColumn]:
        """Describe the appended columns. ``first`` is the number of the first one.

        ``models``: the signature of each, and the side that it predicts. ``score_files``: paths.
        """
        added = list[AddedColumn]()
        for signature, predicted in models:
            for kind in self.features:
                number = first + len(added)
                if kind == "score":
                    added.append(AddedColumn(number, kind, self.scale, signature, predicts=predicted))
                else:
                    added.append(AddedColumn(number, kind, self.scale, signature, side=predicted))
        for path in score_files:
            added.append(AddedColumn(first + len(added), GIVEN, self.scale, os.path.basename(path)))
        return added


def looks_annotated(values: NDArray[np.float64]) -> bool:
    """Return whether the last two columns of scores (rows, columns) look like a score and a count, or their logarithms.

    Plain scores may all be probabilities, and a penalty is always the same. So the count must vary, or Moses' four come first.
    """
    import numpy as np

    rows, columns = values.shape
    if not rows or columns < 3:
        return False
    score, count = values[:, -2], values[:, -1]
    if (score > 0).all():
        nearest = np.exp(np.rint(np.log(np.maximum(count, 1))))
        fits = (score <= 1).all() and np.allclose(count, nearest, rtol=1e-5, atol=0)  # 2.718, Moses' own constant, is not one
    else:
        fits = (score <= 0).all() and (count >= 0).all() and (count == np.rint(count)).all()
    return bool(fits and (count.min() < count.max() or columns - 2 >= _OF_MOSES))


@dataclass(frozen=True)
class ScoreColumn:
    """A score column of a table."""

    number: int  # from 1
    low: float  # in the rows that were read
    high: float
    added: AddedColumn | None = None  # what the sidecar says of it; None: the table's own

    def __str__(self) -> str:
        return f"{self.number} ({self.added.kind})" if self.added else f"{self.number}"

    @property
    def is_log(self) -> bool:
        """Whether the table has the logarithm, or the number of words, itself."""
        return self.added.scale == "log" if self.added else self.low < 0

    def is_count(self, new: bool) -> bool:
        """Return whether the column is exp of a count, never below 1. A column of ones is one if it is ``new``."""
        if self.added:
            return self.added.kind == "count"
        return self.low >= 1 and (new or self.high > 1)


@dataclass(frozen=True)
class TableColumns:
    """The score columns of a table, and what its sidecar says of them."""

    table: str
    columns: tuple[ScoreColumn, ...]
    has_sidecar: bool
    looks_annotated: bool

    @classmethod
    def read(cls, table: str, limit: int = JUDGED_ROWS, loadable: bool = False) -> TableColumns:
        """Read the columns from the first ``limit`` rows of a table (``-``: standard input) and its sidecar.

        Raises InputError as ``read_sidecar``, for an empty table, a bad row, a column of the sidecar that is not there, and, if
        the table must be ``loadable``, for a negative score.
        """
        name = display_name(table)
        with open_input(table) as stream:
            first, _ = look_ahead(read_blocks(stream, limit), 1)
        n_scores = first_row(name, first).n_scores
        rows = parse_block(Block(0, 1, b"\n".join(first)), n_scores)
        for line, _, error in rows.bad:
            raise error.at(name, line)
        values = rows.values(n_scores)
        least = values.min(axis=1)
        if loadable and least.min() < 0:
            line = int((least < 0).argmax())
            hint = "Moses takes its logarithm and would drop the pair without a message; annotate without --scale log"
            raise InputError(name, f"score '{least[line]:g}' is negative", hint, line + 1)
        return cls.of(table, values)

    @classmethod
    def of(cls, table: str, values: NDArray[np.float64]) -> TableColumns:
        """Return the columns of a table from scores of its first rows (rows, columns). Raises InputError as ``read``."""
        n, added = values.shape[1], read_sidecar(table)
        by_number = {column.column: column for column in added or ()}
        if beyond := [number for number in by_number if not 1 <= number <= n]:
            found = f"column {beyond[0]} of a table that has {n}"
            raise InputError(sidecar_path(table), found, "delete it, or annotate the table again")
        low, high = values.min(axis=0, initial=math.inf).tolist(), values.max(axis=0, initial=-math.inf).tolist()
        columns = [ScoreColumn(i + 1, low[i], high[i], by_number.get(i + 1)) for i in range(n)]
        return cls(table, tuple(columns), added is not None, looks_annotated(values))

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def own(self) -> list[ScoreColumn]:
        """The columns that the sidecar does not name."""
        return [column for column in self.columns if not column.added]

    @property
    def doubt(self) -> str:
        """What is odd if the last columns look like those of annotate and no sidecar says what they are, else ''."""
        if self.has_sidecar or not self.looks_annotated:
            return ""
        n = len(self)
        found = f"columns {n - 1} and {n} of {display_name(self.table)} look like those of annotate"
        return f"{found}, and no .columns.json says what they are"

    def last_added(self) -> list[ScoreColumn]:
        """Return the columns at the end that the sidecar names."""
        return list(self.columns[max((column.number for column in self.own), default=1) :])

    def last(self, n: int, option: str) -> list[ScoreColumn]:
        """Return the last ``n`` columns, which the option removes, or calls new.

        Raises OptionError if none would be left, and if there is a sidecar and it does not name all of them.
        """
        name = display_name(self.table)
        if n >= len(self):
            found = f"{name} has {counted(len(self), 'score column')}; {option} {n} would leave none"
            raise OptionError(f"{found}; give a smaller number")
        last = list(self.columns[len(self) - n :])
        if self.has_sidecar and (foreign := [column for column in last if not column.added]):
            found = f"{name}: column {foreign[-1].number} is not one that {sidecar_path(self.table)} names"
            raise OptionError(f"{found}; give {option} a smaller number, or delete that file if it is wrong")
        return last

    def phi(self, number: int | None = None, inverse: bool = False) -> ScoreColumn:
        """Return the column of φ(target | source), the third, its ``inverse``, the first, or ``number``. Raises OptionError."""
        name, own = display_name(self.table), self.own
        if not own:
            raise OptionError(f"{name}: all score columns are a model's; give a table that has φ")
        if number is not None:
            if number not in (numbers := [column.number for column in own]):
                known = ", ".join(map(str, numbers))
                raise OptionError(f"--phi-column {number}: {name} has no such column of its own; give one of {known}")
            return self.columns[number - 1]
        first_added = next((i for i, column in enumerate(self.columns) if column.added), None)
        before = own[:first_added] or own
        return before[0 if inverse else min(len(before), 3) - 1]

    def score(self, model: str) -> ScoreColumn | None:
        """Return the score of this model, else of the first model that predicts targets, else of the first one."""
        scores = [column.added for column in self.columns if column.added and column.added.kind == "score"]
        best = min(scores, key=lambda added: (added.model != model, added.predicts == "source"), default=None)
        return self.columns[best.column - 1] if best else None

    def logs(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the natural logarithms of the scores of rows (rows, columns), Moses' least for a score of 0."""
        import numpy as np

        return np.where([column.is_log for column in self.columns], scores, np.log(np.maximum(scores, MIN_P)))


def check_compression(table: str) -> None:
    """Raise InputError for a compressed table that is not a gzip file named .gz (``moses/InputFileStream.cpp``)."""
    if not os.path.isfile(table):
        return
    with open_plain(table) as raw, open_input(table) as stream:
        head = raw.read(10)
        if stream.read(10) != head and not (head.startswith(b"\x1f\x8b") and table.endswith(".gz")):
            hint = "Moses loads plain tables and .gz: compress it with gzip"
            raise InputError(table, "is compressed, but not a gzip file named .gz", hint)
