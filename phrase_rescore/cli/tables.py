"""Declare the options of annotate and strip, which write phrase tables."""

from functools import partial
from typing import Any

import click
from cloup import option_group

from phrase_rescore.annotation.options import AnnotateOptions
from phrase_rescore.cli import options
from phrase_rescore.cli.options import FILE, MODEL, TEXT, flag, option, setting
from phrase_rescore.moses.columns import FEATURES, ColumnFormat
from phrase_rescore.ranges import COLUMNS


@options.command(
    short_help="Append the two columns to a phrase table.",
    then="phrase-rescore moses-ini moses.ini --table {out} -o moses.rnn.ini",
)
@click.argument("table", type=FILE)
@option_group(
    "Most used",
    option(
        "-m --model models", MODEL, metavar="MODEL_DIR", multiple=True,
        callback=lambda ctx, param, given: given or (() if ctx.params["scores"] else (options.DEFAULT_MODEL,)),
        help="The model directory. May be repeated: each model appends its columns, in the order given.  "
        f"[default: {options.DEFAULT_MODEL}, none with --scores]",
    ),
    options.out_option(),
    flag("--resume", "Continue an interrupted run that wrote OUT. Start over if it left nothing."),
)  # fmt: skip
@option_group(
    "New columns",
    option("--features", options.subset(FEATURES), "The columns that every model appends.", default=",".join(FEATURES)),
    setting(ColumnFormat, "scale", "exp writes p and exp(count), for Moses. log writes log p and the count, for people."),
    setting(ColumnFormat, "digits", "Significant digits of the numbers, 2 to 17."),
    setting(
        ColumnFormat, "replace", "Remove the last K score columns first. TABLE.columns.json, if it exists, must name them.", "K"
    ),
    option(
        "--scores", FILE, multiple=True, is_eager=True,
        help="Append the numbers of FILE, one for every row, as a column: probabilities of any other model. May be repeated.",
    ),
    flag("--log", "The numbers of --scores are natural logarithms."),
)  # fmt: skip
@option_group(
    "Checks",
    options.on_bad_row_option,
    setting(AnnotateOptions, "expect_rows", "Fail unless N rows are written.", "N"),
    flag("--strict", "Fail if the table's words do not fit the model."),
    flag("--allow-untrained-unk", "Score unknown words even if UNK was never seen in training."),
)  # fmt: skip
@option_group(
    "Machine",
    option(
        "--device", TEXT, "The devices that score. They share the table's blocks. auto takes every GPU, else the CPU.",
        metavar="auto|cpu|cuda[:N],…", default="auto",
    ),
    setting(
        AnnotateOptions, "precision", "The precision of large products. tf32 needs a GPU, bf16 a GPU or CPU that has it. "
        "Both are faster and change log p a little.",
    ),
    setting(AnnotateOptions, "jobs", "Blocks in work at a time.  [default: usable cores / threads, 8 for a GPU]"),
    option(
        "--cluster", TEXT, "Score on the workers of a Dask cluster: tcp://HOST:PORT, file:SCHEDULER.json, local:WORKERS, or "
        "slurm:JOBS and others with the settings of dask-jobqueue (docs/cluster.md).", "PLACE",
    ),
    setting(
        AnnotateOptions, "threads",
        "Cores that score one block. They need less memory than more jobs, are slower, and change the last digits.",
    ),
    setting(AnnotateOptions, "block_rows", "Rows of a block.  [default: 2048 on CPUs, 32768 on GPUs]", "ROWS", "--block-size"),
    setting(
        AnnotateOptions, "gzip_level",
        "The level of compression. fast takes a third of the time of 6 and makes files a quarter larger.", "fast|1-9",
    ),
)  # fmt: skip
@options.quiet_option
def annotate(table: str, models: tuple[str, ...], out: str, quiet: bool, **chosen: Any) -> None:
    """Append p(target | source) and exp(number of unknown words), in this order, to the scores of every row of TABLE
    ('-': standard input). Rows keep their order and every other byte. An inverse model ('train --inverse') appends
    p(source | target) and counts unknown words of the source.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore annotate phrase-table.gz -m forward -m inverse -o phrase-table.rnn.gz
    phrase-rescore annotate phrase-table.gz --scores log-p --log -o phrase-table.other.gz
    set -o pipefail; zcat phrase-table.gz | phrase-rescore annotate - | gzip > phrase-table.rnn.gz

    UNITS. Moses takes the natural logarithm of every column. So annotate writes probabilities, and MERT tunes log p and the
    count. p is clamped at 1.2e-38 (log -87.3), the count at 88. The columns of --scale log are for people and other
    tools: Moses would drop every pair of such a table without a message.

    OUT appears under its name only when it is complete. Rows on standard output cannot be taken back: a failure
    after the first ends with 'OUTPUT IS INCOMPLETE: n rows' and exit status 1. Begin pipelines with 'set -o pipefail'.
    """
    from phrase_rescore.api import AnnotateObserver, annotate
    from phrase_rescore.cli.terminal import byte_bar, say, tell, warn

    with byte_bar((table,), quiet) as bar:
        observer = AnnotateObserver(partial(say, quiet=quiet), warn, bar.update)
        summary = annotate(table, models, out, observer=observer, **chosen)
    if not quiet:
        warn(*summary.warnings)
        tell(summary.lines())


@options.command(short_help="Remove the columns that annotate appended.")
@click.argument("table", type=FILE)
@option(
    "--columns", COLUMNS, "Remove the last K score columns. TABLE.columns.json, if it exists, must name them.  [default: all "
    "that it names at the end]", "K",
)  # fmt: skip
@options.out_option()
@options.quiet_option
def strip(table: str, columns: int | None, out: str, quiet: bool) -> None:
    """Write TABLE without the score columns that annotate appended. Every other byte stays.

    \b
    phrase-rescore strip phrase-table.rnn.gz -o phrase-table.gz
    set -o pipefail; phrase-rescore strip phrase-table.rnn.gz | cmp - <(zcat phrase-table.gz)
    """
    from phrase_rescore.annotation.strip import strip
    from phrase_rescore.cli.terminal import byte_bar, say

    with byte_bar((table,), quiet) as bar:
        rows, removed = strip(table, out, columns=columns, on_read=bar.update)
    say(f"{rows:,} rows without column{'s' if len(removed) > 1 else ''} {', '.join(removed)}", quiet)
