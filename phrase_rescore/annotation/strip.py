"""The inverse of annotation: the last score columns are taken off again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from phrase_rescore.annotation.pipeline import BLOCK_ROWS, gzip_level_of, in_order, table_output
from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.atomic import gzip_member
from phrase_rescore.files.blocks import Block, read_blocks
from phrase_rescore.files.streams import display_name, open_input
from phrase_rescore.moses.phrase_table import parse_row, with_scores
from phrase_rescore.runtime import no_cycle_collection


@dataclass(frozen=True)
class Stripper:
    """Drops the last ``columns`` scores of every row of a block; every other byte stays.

    Raises InputError for a bad row and for one that would have no score left.
    """

    table: str
    columns: int
    gzip_level: str | None

    def __call__(self, number: int, first_row: int, data: bytes) -> tuple[bytes, int]:
        rows = Block(number, first_row, data).rows()
        out = []
        for line, row in enumerate(rows, first_row):
            try:
                parsed = parse_row(row)
                if parsed.n_scores <= self.columns:
                    raise RowError(f"{parsed.n_scores} scores, of which {self.columns} cannot go", "at least one must stay")
            except RowError as error:
                raise error.at(self.table, line) from None
            out.append(with_scores(parsed.fields, self.columns, b""))
        joined = b"\n".join(out) + b"\n" * data.endswith(b"\n")
        return joined if self.gzip_level is None else gzip_member(joined, self.gzip_level), len(rows)


def strip(
    table: str, out: str, columns: int, executor: Executor, jobs: int, on_read: Callable[[int], object] | None = None
) -> int:
    """Write the table without its last ``columns`` scores and return the number of rows."""
    stripper = Stripper(display_name(table), columns, gzip_level_of(out))
    with no_cycle_collection(), open_input(table, on_read) as stream, table_output(out) as output:
        for data, rows in in_order(executor, stripper, read_blocks(stream, BLOCK_ROWS), in_flight=jobs + 2):
            output.write(data, rows)
        if not output.rows:
            raise InputError(stripper.table, "is empty", "pass a phrase table")
    return output.rows
