"""``phrase-rescore strip``: options to one library call."""

from __future__ import annotations

import os

import click

from phrase_rescore.commands.options import quiet_option


@click.command(short_help="Take the last columns off again.")
@click.argument("table")
@click.option(
    "--columns", type=click.IntRange(min=1), required=True, metavar="K", help="How many of the last score columns go."
)
@click.option(
    "-o", "--out", default="-", metavar="OUT", help="File to write, gzip if it ends in .gz.  [default: standard output]"
)
@quiet_option
def command(table: str, columns: int, out: str, quiet: bool) -> None:
    """Write TABLE without its last K score columns; every other byte stays. The inverse of annotate.

    \b
    phrase-rescore strip phrase-table.rnn.gz --columns 2 -o phrase-table.gz
    set -o pipefail; phrase-rescore strip phrase-table.rnn.gz --columns 2 | cmp - <(zcat phrase-table.gz)
    """
    from phrase_rescore.annotation.pipeline import workers
    from phrase_rescore.annotation.strip import strip
    from phrase_rescore.commands.progress import byte_bar, say

    bar = byte_bar((table,), quiet, os.path.basename(table))
    try:
        with workers(1) as executor:
            rows = strip(table, out, columns, executor, 1, bar.update)
    finally:
        bar.close()
    if not quiet:
        say(f"{rows:,} rows without their last {columns} columns")
