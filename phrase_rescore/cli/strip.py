"""Turn the options of ``phrase-rescore strip`` into library calls."""

import os

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import number_option, out_option, path_argument, quiet_option
from phrase_rescore.ranges import COLUMNS


@options.command(short_help="Remove the columns that annotate appended.")
@path_argument("table", derived=options.sidecar_of)
@number_option(
    "--columns", range=COLUMNS, metavar="K",
    help="The number of last score columns to remove.  [default: those of annotate, by TABLE.columns.json or their looks]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Remove K columns that are not annotate's, too.")
@out_option()
@quiet_option
def command(table: str, columns: int | None, force: bool, out: str, quiet: bool) -> None:
    """Write TABLE without the score columns that annotate appended. Every other byte stays.

    \b
    phrase-rescore strip phrase-table.rnn.gz -o phrase-table.gz
    set -o pipefail; phrase-rescore strip phrase-table.rnn.gz | cmp - <(zcat phrase-table.gz)
    """
    from phrase_rescore.api import strip
    from phrase_rescore.cli.terminal import byte_bar, say

    with byte_bar((table,), quiet, os.path.basename(table)) as bar:
        rows, removed = strip(table, out, columns=columns, force=force, on_read=bar.update)
    if not quiet:
        say(f"{rows:,} rows without column{'s' if len(removed) > 1 else ''} {', '.join(removed)}")
