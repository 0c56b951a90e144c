"""What ``report`` reads of a table: phrases, φ, the model's score and counts, the rows of a source together.

φ(target|source) is the third of the four usual scores; the counts field holds those of the target, of the source and of the
pair (``phrase-extract/consolidate-main.cpp``).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sketch import hashes
from phrase_rescore.files.blocks import Block, read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.table import parse_block
from phrase_rescore.rnn.checkpoint import Checkpoint

BLOCK_ROWS = 16384
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ReportColumns:
    """Which score columns are read."""

    all: TableColumns
    phi: ScoreColumn
    log_p: ScoreColumn | None  # the model's score; None: the table has none


VALUES = np.dtype([
    ("log_phi", np.float64),
    ("log_p", np.float64),  # nan where the table has no score of the model
    ("src_count", np.float64),  # occurrences of the source, nan where the table does not say
    ("joint", np.float64),  # and of the pair
])  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Neighbouring rows: phrases with single blanks between their words, and VALUES (rows,), logarithms being natural."""

    src: list[bytes]
    tgt: list[bytes]
    values: NDArray[np.void]

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.src[part], self.tgt[part], self.values[part])

    def scored(self, log_p: Floats) -> Rows:
        """Return the rows with these scores of the model."""
        values = self.values.copy()
        values["log_p"] = log_p
        return replace(self, values=values)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of another source begin."""
        differ = np.fromiter((a != b for a, b in zip(self.src, self.src[1:], strict=False)), bool, max(len(self) - 1, 0))
        return np.append(np.zeros(min(len(self), 1), np.int64), np.flatnonzero(differ) + 1)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Concatenate the parts."""
        src, tgt = list(chain.from_iterable(part.src for part in parts)), list(chain.from_iterable(part.tgt for part in parts))
        return cls(src, tgt, np.concatenate([np.empty(0, VALUES), *(part.values for part in parts)]))


def find_columns(table: str, checkpoint: Checkpoint, phi: int | None) -> ReportColumns:
    """Find the columns; ``phi``: the number of φ's, None for the usual place.

    Raises InputError as ``TableColumns.read``, OptionError for a column that the table does not have.
    """
    columns = TableColumns.read(table)
    asked = columns.asked("--phi-column", phi)
    return ReportColumns(columns, asked or columns.phi(checkpoint.inverse), columns.score(checkpoint.signature))


def _rows_of(block: Block, columns: ReportColumns, table: str) -> Rows:
    """Raises InputError for a bad row."""
    rows = parse_block(block, len(columns.all))
    for line, _, error in rows.bad:
        raise error.at(table, line)
    logs = columns.all.logs(rows.values(len(columns.all)))
    values = np.full(len(rows.src), np.nan, VALUES)
    values["log_phi"] = logs[:, columns.phi.number - 1]
    if columns.log_p is not None:
        values["log_p"] = logs[:, columns.log_p.number - 1]
    values["src_count"], values["joint"] = np.array([_counts(field) for field in rows.counts()]).reshape(-1, 2).T
    return Rows(rows.src, rows.tgt, values)


def _counts(field: bytes) -> tuple[float, float]:
    """Read the occurrences of the source and of the pair.

    >>> _counts(b" 11 20 8 "), _counts(b" ")
    ((20.0, 8.0), (nan, nan))
    """
    try:
        _, source, joint = map(float, field.split())
    except ValueError:
        return math.nan, math.nan
    return source, joint


def read_sources(
    table: str, columns: ReportColumns, on_read: Callable[[int], object] | None = None, block_rows: int = BLOCK_ROWS
) -> Iterator[Rows]:
    """Yield the rows of a table in parts that hold all rows of their sources, where equal sources are adjacent.

    Raises InputError for a bad row and for a file that cannot be read.
    """
    with open_input(table, on_read) as stream:
        held: list[Rows] = []  # the rows of the last source so far
        for block in read_blocks(stream, block_rows):
            rows = _rows_of(block, columns, display_name(table))
            last = int(rows.starts[-1])
            if last or (held and held[0].src[0] != rows.src[0]):
                whole = Rows.joined([*held, rows[:last]])
                held = []
                yield whole
            held.append(rows[last:])
        if held:
            yield Rows.joined(held)


def sample_sources(parts: Iterable[Rows], most: int) -> tuple[Rows, int, int]:
    """Take all rows of some sources, ``most`` rows or a little fewer; also return how many rows and sources there were.

    The rows are in the table's order. The sources are those of the smallest hashes, which depend on the table alone.
    """
    kept: list[tuple[int, int, Rows]] = []  # the largest hash first; then the number of the source
    size = rows = sources = 0
    for part in parts:
        ends = np.append(part.starts, len(part))
        found = hashes([part.src[i] for i in ends[:-1].tolist()])
        for i in np.flatnonzero(found <= np.uint64(-kept[0][0])) if kept and size >= most else range(len(found)):
            heapq.heappush(kept, (-int(found[i]), sources + int(i), part[int(ends[i]) : int(ends[i + 1])]))
            size += int(ends[i + 1] - ends[i])
            while size > most and len(kept) > 1:
                size -= len(heapq.heappop(kept)[2])
        rows, sources = rows + len(part), sources + len(found)
    return Rows.joined([part for _, _, part in sorted(kept, key=lambda item: item[1])]), rows, sources
