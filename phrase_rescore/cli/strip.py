"""Turn the options of ``phrase-rescore strip`` into library calls."""

import os

from phrase_rescore.cli import options
from phrase_rescore.cli.options import number_option, out_option, path_argument, quiet_option
from phrase_rescore.ranges import COLUMNS


@options.command(short_help="Remove the last columns of a phrase table.")
@path_argument("table")
@number_option("--columns", range=COLUMNS, required=True, metavar="K", help="The number of last score columns to remove.")
@out_option()
@quiet_option
def command(table: str, columns: int, out: str, quiet: bool) -> None:
    """Write TABLE without its last K score columns. Every other byte stays. This is the inverse of annotate.

    \b
    phrase-rescore strip phrase-table.rnn.gz --columns 2 -o phrase-table.gz
    set -o pipefail; phrase-rescore strip phrase-table.rnn.gz --columns 2 | cmp - <(zcat phrase-table.gz)
    """
    from phrase_rescore.api import strip
    from phrase_rescore.cli.terminal import byte_bar, say

    with byte_bar((table,), quiet, os.path.basename(table)) as bar:
        rows = strip(table, out, columns=columns, on_read=bar.update)
    if not quiet:
        say(f"{rows:,} rows without their last {columns} columns")
