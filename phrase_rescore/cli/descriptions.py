"""Declare the options of info and report, which describe tables and models."""

import os
import shlex
import sys
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import FILE, MODEL, OUTPUT, PathName, flag, model_option, option, quiet_option
from phrase_rescore.ranges import COLUMNS, SAMPLE_ROWS


@options.command(short_help="Describe a phrase table, a model or a moses.ini.")
@click.argument("path", type=PathName(exists=True, allow_dash=True), metavar="TABLE|MODEL_DIR|INI")
@option("-m --model model_dir", MODEL, "Count the table's words that this model knows.", "MODEL_DIR")
@flag("--strict", "Exit with status 1 if a Moses program would mishandle a row, or INI.")
@flag("--json as_json", "Write a JSON object.")
@quiet_option
def info(path: str, model_dir: str | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Describe TABLE ('-': standard input): rows, sources, targets, range of every score, columns that annotate appended,
    and the rows that a Moses program would mishandle. Or describe MODEL_DIR, a model of any kind: signature, sizes,
    training, losses. Or check INI, a moses.ini: its files exist, its paths are absolute, and num-features, weights and
    score columns agree.

    \b
    phrase-rescore info phrase-table.gz
    phrase-rescore info phrase-table.gz -m phrase-rescore-model
    phrase-rescore info phrase-rescore-model
    phrase-rescore info moses.ini
    set -o pipefail; zcat phrase-table.gz | phrase-rescore info - --strict

    The table is read once, some 100,000 rows a second. Memory grows only with distinct words. So numbers of distinct
    phrases above 65,536 are estimates, right to 1 % ('about'). The number of sources is exact if the table is sorted.
    """
    import json

    from phrase_rescore.cli.terminal import byte_bar
    from phrase_rescore.info.run import info

    with byte_bar((path,), quiet or os.path.isdir(path)) as bar:
        described = info(path, model_dir, strict=strict, on_read=bar.update)
    click.echo(json.dumps(described.as_object(), indent=2) if as_json else "\n".join(described.lines()))
    if strict:
        described.check()


@options.command(short_help="Write a page that compares the model's scores with the table's.")
@click.argument("table", type=FILE, metavar="ANNOTATED_TABLE")
@model_option()
@option("-o --out", OUTPUT, "The page to write.", default="report.html")
@option(
    "--phi-column", COLUMNS, "The score column with the table's own probability.  [default: 3, φ(target|source), or the last "
    "of fewer; of an inverse model 1]",
)  # fmt: skip
@option("--sample", SAMPLE_ROWS, "Rows that the page shows, 100 or more; whole sources.", "ROWS", default=50_000)
@quiet_option
def report(table: str, quiet: bool, **asked: Any) -> None:
    """Write one HTML page that helps to decide about the new feature. It shows the model's scores against the table's φ, by
    frequency; the best targets by either; phrases drawn from the model; where the two disagree most; maps of words and
    phrases; unknown words. The page opens from disk and loads nothing from the network.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore report phrase-table.rnn.gz -o report.html

    The model's scores are read from the columns that TABLE.columns.json names. Without it, the model scores
    the sample. Scores are those of a sample: all rows of some sources, always the same. Maps and unknown words are those of
    the whole table. It needs pip install '.[report]' in the checkout.
    """
    from phrase_rescore.cli.terminal import byte_bar, say, warn
    from phrase_rescore.report.run import report

    command = shlex.join(["phrase-rescore", *sys.argv[1:]])
    with byte_bar((table,), quiet) as bar:
        summary = report(table, command=command, on_read=bar.update, on_step=bar.set_postfix_str, **asked)
    warn(*summary.warnings)
    say(f"{asked['out']}: {summary.rows:,} rows, {summary.size / 1e6:.1f} MB", quiet)
