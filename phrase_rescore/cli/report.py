"""Declare the options of ``phrase-rescore report``."""

import functools
import os
from typing import Any

from phrase_rescore.cli import options
from phrase_rescore.cli.options import model_option, number_option, path_argument, path_option, quiet_option, sidecar_of
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import COLUMNS, SAMPLE_ROWS


@options.command(short_help="Write one page that sets the model's scores against the table's.")
@path_argument("table", derived=sidecar_of, metavar="ANNOTATED_TABLE")
@model_option()
@path_option(
    "-o", "--out", role=Role.WRITE, default="report.html", show_default=True, metavar="FILE", help="The page to write."
)
@number_option(
    "--phi-column", range=COLUMNS, metavar="N",
    help="The score column with the table's own probability.  [default: 3, φ(target|source); of an inverse model 1]",
)  # fmt: skip
@number_option(
    "--sample", range=SAMPLE_ROWS, default=50_000, show_default=True, metavar="ROWS",
    help="Rows of which the page is made, with all rows of their sources, 100 or more.",
)  # fmt: skip
@quiet_option
def command(table: str, quiet: bool, **asked: Any) -> None:
    """Write one HTML page that helps to decide about the new feature. It shows the model's scores against the table's φ, by
    frequency; the best targets by either, and phrases drawn from the model; where the two disagree most; maps of words and
    phrases; unknown words. The page opens from disk and loads nothing from elsewhere.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore report phrase-table.rnn.gz -o report.html

    The model's scores are read from the table's columns, which TABLE.columns.json names; without it, by their looks. If
    the table has none, the sample is scored. Scores are shown of a sample, all rows of some sources, always the same; maps
    and unknown words are of the whole table. It needs pip install '.[report]' in the checkout.
    """
    from phrase_rescore.api import report
    from phrase_rescore.cli.terminal import byte_bar, command_line, say, warn

    with byte_bar((table,), quiet, os.path.basename(table)) as bar:
        step = functools.partial(bar.set_postfix_str, refresh=True)
        found = report(table, command=command_line(), on_read=bar.update, on_step=step, **asked)
    for warning in found.warnings:
        warn(warning)
    if not quiet:
        say(f"{asked['out']}: {found.rows:,} rows, {found.size / 1e6:.1f} MB")
