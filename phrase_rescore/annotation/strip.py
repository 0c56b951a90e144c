"""A table without the columns that annotate appended."""

import os

from phrase_rescore.annotation.pipeline import CPU_BLOCK_ROWS
from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import display_name, look_ahead, open_input, read_blocks
from phrase_rescore.files.outputs import gzip_level_of, gzip_member
from phrase_rescore.files.paths import Path, check_apart
from phrase_rescore.files.row_outputs import row_output
from phrase_rescore.messages import Progress
from phrase_rescore.moses.columns import ScoreColumn, TableColumns, sidecar_path
from phrase_rescore.moses.file_kinds import TABLE, check_kind
from phrase_rescore.moses.table import first_row, parse_block, valid_scores
from phrase_rescore.ranges import COLUMNS, check
from phrase_rescore.runtime import no_cycle_collection


def strip(table: Path, out: Path, *, columns: int | None = None, on_read: Progress | None = None) -> tuple[int, list[str]]:
    """Write a table without its last ``columns``, by default those that its sidecar names. Return rows and what was removed.

    Raises InputError for a bad table, OptionError for bad paths, if nothing says which columns, and as ``TableColumns.last``.
    """
    if columns is not None:
        check("columns", columns, COLUMNS)
    table, out = os.fspath(table), os.fspath(out)
    check_apart([("TABLE", table), ("its sidecar", sidecar_path(table))], [("-o", out)])
    name, gzip_level = display_name(table), gzip_level_of(out)
    with open_input(table, on_read) as stream, row_output(out) as output, no_cycle_collection():
        first, blocks = look_ahead(read_blocks(stream, CPU_BLOCK_ROWS), 1)
        check_kind(name, first, TABLE)
        n_scores = first_row(name, first).n_scores
        removed = _removed(TableColumns.of(table, valid_scores(first, n_scores)), columns)
        for block in blocks:
            rows = parse_block(block, n_scores)
            for line, _, error in rows.bad:
                raise error.at(name, line)
            text = rows.write(len(removed), [b""] * len(rows.heads))
            output.write(text if gzip_level is None else gzip_member(text, gzip_level), len(rows.heads))
    return output.rows, list(map(str, removed))


def _removed(known: TableColumns, columns: int | None) -> list[ScoreColumn]:
    """Return the columns to remove: the last ones, so many, or those at the end that the sidecar names."""
    removed = known.last(columns, "--columns") if columns else known.last_added()
    if not removed:
        found = known.doubt or f"nothing says which columns of {display_name(known.table)} annotate wrote"
        raise OptionError(f"{found}; to remove the last K give --columns K")
    return removed
