"""What the score columns of a phrase table hold: read from its first rows, named by the sidecar of ``annotate``."""

from __future__ import annotations

import os
from itertools import islice
from typing import NamedTuple

from phrase_rescore.errors import InputError, RowError, shown
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.streams import display_name, open_input, open_plain
from phrase_rescore.moses.fields import BLANKS_AND_CR, words
from phrase_rescore.moses.own_columns import read_sidecar, sidecar_path
from phrase_rescore.moses.phrase_table import parse_row

FIRST_ROWS = 10_000


class Column(NamedTuple):
    """A score column, by the rows that were read."""

    low: float
    high: float
    feature: str  # its name in the sidecar, empty where that names none

    def is_count(self, added: bool) -> bool:
        """Whether the column is exp of a count, and no probability: it is never below 1.

        Where every value is 1, a column that was ``added`` is a count that is always 0, any other one a probability.
        """
        if self.feature:
            return self.feature.startswith("unknown")
        return self.low >= 1 and (added or self.high > 1)


def _features(table: str, n_columns: int) -> dict[int, str]:
    """The features that the sidecar names, by number of the column from 1; none without one."""
    features = {column.column: column.feature for column in read_sidecar(table) or ()}
    if beyond := [number for number in features if not 1 <= number <= n_columns]:
        found = f"column {beyond[0]} of a table that has {n_columns}"
        raise InputError(sidecar_path(table), found, "remove it, or annotate the table again")
    return features


def read_columns(table: str) -> list[Column]:
    """The score columns of a table, by its first 10,000 rows (``-``: standard input).

    Raises InputError for an empty table, a row that is not valid or has another number of scores than the first one, a
    negative score (Moses takes the logarithm of every column; ``PhraseDictionaryMemory`` drops the phrase pair without a
    message) and a sidecar that does not fit.
    """
    name = display_name(table)
    low, high = list[float](), list[float]()
    with open_input(table) as stream:
        for line, row in enumerate(islice(read_rows(stream), FIRST_ROWS), 1):
            try:
                parsed = parse_row(row.removesuffix(b"\n"), len(low) or None)
                scores = words(parsed.fields[2].rstrip(BLANKS_AND_CR))
                values = [float(score) for score in scores]
                if min(values) < 0:
                    raise RowError(
                        f"score {shown(scores[values.index(min(values))])} is negative",
                        "Moses takes the logarithm of every column and would lose the pair without a message; "
                        "annotate without --scale log",
                    )
            except RowError as error:
                raise error.at(name, line) from None
            low = [*map(min, low or values, values)]
            high = [*map(max, high or values, values)]
    if not low:
        raise InputError(name, "is empty", "pass a phrase table")
    features = _features(table, len(low))
    return [Column(*ends, features.get(number, "")) for number, ends in enumerate(zip(low, high, strict=True), 1)]


def check_loadable(table: str) -> None:
    """Raises InputError for a compressed table that Moses would take for a plain one.

    It decides by the name whether a file is gzip (``moses/InputFileStream.cpp``), and knows nothing else.
    """
    if not os.path.isfile(table):
        return
    with open_plain(table) as raw, open_input(table) as stream:
        head = raw.read(10)
        plain = stream.read(10) == head
    if not plain and not (head.startswith(b"\x1f\x8b") and table.endswith(".gz")):
        raise InputError(table, "is compressed, and not gzip named .gz", "Moses loads plain tables and .gz: compress it so")
