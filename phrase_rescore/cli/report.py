"""Turn the options of ``phrase-rescore report`` into library calls."""

from __future__ import annotations

import os

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
@path_option("--figures", role=Role.FILL_DIRECTORY, metavar="DIR", help="Write every picture as PNG and SVG too.")
@number_option(
    "--phi-column", range=COLUMNS, metavar="N",
    help="The score column with the table's own probability.  [default: 3, φ(target|source); of an inverse model 1]",
)  # fmt: skip
@number_option(
    "--sample", range=SAMPLE_ROWS, default=50_000, show_default=True, metavar="ROWS",
    help="Rows to score if the table is not annotated, 100 or more.",
)  # fmt: skip
@quiet_option
def command(
    table: str, model_dir: str, out: str, figures: str | None, phi_column: int | None, sample: int, quiet: bool
) -> None:
    """Write one HTML page that helps to decide about the new feature. It shows the model's scores against the table's φ, by
    frequency and by length; the best targets by either, and phrases drawn from the model; where the two disagree most;
    maps of words and phrases; unknown words; training. The page opens from disk and loads nothing from elsewhere.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore report phrase-table.rnn.gz -o report.html
    phrase-rescore report phrase-table.rnn.gz -m phrase-rescore-model --figures figures

    The model's scores are read from the table's columns, which TABLE.columns.json names; without it, by their looks. If
    the table has none, some sources with all their rows are scored. Tables count all rows. Charts of points show a sample,
    always the same. The page needs pip install 'phrase-rescore[report]'.
    """
    from phrase_rescore.cli.terminal import byte_bar, command_line, say
    from phrase_rescore.report.run import Options, report
    from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores

    prepare(usable_cores())
    keep_freed_memory()
    asked = Options(table, model_dir, out, figures, phi_column, sample, command_line())
    with byte_bar((table,), quiet, os.path.basename(table)) as bar:
        found = report(asked, bar.update, lambda what: bar.set_postfix_str(what, refresh=True))
    for warning in found.warnings:
        say(f"warning: {warning}")
    if not quiet:
        say(f"{out}: {found.rows:,} rows, {found.size / 1e6:.1f} MB")
