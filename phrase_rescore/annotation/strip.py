"""The inverse of annotation: the last score columns are taken off again."""

from collections.abc import Callable

from phrase_rescore.annotation.pipeline import BLOCK_ROWS, first_valid_rows, gzip_level_of, in_order, local_threads
from phrase_rescore.errors import InputError, counted
from phrase_rescore.files.inputs import Block, display_name, open_input, read_blocks
from phrase_rescore.files.outputs import gzip_member, row_output
from phrase_rescore.files.paths import check_outputs
from phrase_rescore.moses.table import parse_block


def strip(table: str, out: str, columns: int, on_read: Callable[[int], object] | None = None) -> int:
    """Write the table without its last ``columns`` scores and return the number of rows.

    Raises InputError for a bad row, one with another number of scores than the first, and one that would have no score left.
    """
    check_outputs([table], out)
    name, gzip_level = display_name(table), gzip_level_of(out)
    with local_threads(1) as executor, open_input(table, on_read) as stream, row_output(out) as output:
        first, blocks = first_valid_rows(read_blocks(stream, BLOCK_ROWS), name)
        if (n_scores := first[0].n_scores) <= columns:
            found = f"{counted(n_scores, 'score')}, of which {columns} cannot go"
            raise InputError(name, found, "at least one must stay", 1)

        def stripped(number: int, first_row: int, data: bytes) -> tuple[bytes, int]:
            rows = parse_block(Block(number, first_row, data), n_scores)
            for line, _, error in rows.bad:
                raise error.at(name, line)
            text = rows.write(columns, [b""] * len(rows.heads))
            return text if gzip_level is None else gzip_member(text, gzip_level), len(rows.heads)

        for _, (data, rows) in in_order(executor, stripped, blocks):
            output.write(data, rows)
    return output.rows
