"""The inverse of annotation: the last score columns are taken off again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from phrase_rescore.annotation.pipeline import BLOCK_ROWS, gzip_level_of, in_order, local_threads
from phrase_rescore.errors import InputError, RowError, counted
from phrase_rescore.files.inputs import Block, display_name, open_input, read_blocks
from phrase_rescore.files.outputs import gzip_member, row_output
from phrase_rescore.files.paths import check_outputs
from phrase_rescore.moses.table import parse_block, parse_row


@dataclass(frozen=True)
class Stripper:
    """Drops the last ``columns`` of the ``n_scores`` scores of every row of a block; every other byte stays.

    Raises InputError for a bad row and for one with another number of scores.
    """

    table: str
    columns: int
    n_scores: int  # more than ``columns``
    gzip_level: str | None

    def __call__(self, number: int, first_row: int, data: bytes) -> tuple[bytes, int]:
        rows = parse_block(Block(number, first_row, data), self.n_scores)
        for line, _, error in rows.bad:
            raise error.at(self.table, line)
        stripped = rows.write(self.columns, [b""] * len(rows.heads))
        return stripped if self.gzip_level is None else gzip_member(stripped, self.gzip_level), len(rows.heads)


def strip(table: str, out: str, columns: int, on_read: Callable[[int], object] | None = None) -> int:
    """Write the table without its last ``columns`` scores and return the number of rows.

    Raises InputError for a bad row, one with another number of scores than the first, and one that would have no score left.
    """
    check_outputs([table], out)
    name, gzip_level = display_name(table), gzip_level_of(out)
    with local_threads(1) as executor, open_input(table, on_read) as stream, row_output(out) as output:
        blocks = read_blocks(stream, BLOCK_ROWS)
        first = next(blocks, None)
        if first is None:
            raise InputError(name, "is empty", "pass a phrase table")
        stripper = Stripper(name, columns, _scores_of(first.rows()[0], name, columns), gzip_level)
        for _, (data, rows) in in_order(executor, stripper, chain([first], blocks)):
            output.write(data, rows)
    return output.rows


def _scores_of(row: bytes, table: str, columns: int) -> int:
    """Count the scores of the first row. Raises InputError for a bad one, and for one that has no more than ``columns``."""
    try:
        n_scores = parse_row(row).n_scores
        if n_scores <= columns:
            raise RowError(f"{counted(n_scores, 'score')}, of which {columns} cannot go", "at least one must stay")
    except RowError as error:
        raise error.at(table, 1) from None
    return n_scores
