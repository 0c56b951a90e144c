"""``phrase-rescore annotate``: options to one library call."""

from __future__ import annotations

import os

import click

from phrase_rescore.commands.options import DEFAULT_MODEL, Subset, on_bad_row_option, quiet_option
from phrase_rescore.errors import OptionError
from phrase_rescore.files.atomic import GZIP_LEVELS
from phrase_rescore.moses.score_columns import FEATURES
from phrase_rescore.runtime import PRECISIONS, check_precision, prepare, resolve_devices, usable_cores


@click.command(short_help="Append the two columns to a phrase table.")
@click.argument("table")
@click.option(
    "-m", "--model", "model_dirs", metavar="MODEL_DIR", multiple=True, default=[DEFAULT_MODEL], show_default=True,
    help="The model directory. May be repeated: each model adds its columns, in the order given.",
)  # fmt: skip
@click.option(
    "--features", type=Subset(FEATURES), default=",".join(FEATURES), show_default=True,
    help="What every model adds: score, count or both.",
)  # fmt: skip
@click.option(
    "-o", "--out", default="-", metavar="OUT", help="File to write, gzip if it ends in .gz.  [default: standard output]"
)
@click.option(
    "--scale", type=click.Choice(["exp", "log"]), default="exp", show_default=True,
    help="exp: p and exp(count), what Moses loads. log: plain log p and count, for people; Moses would drop the pairs.",
)  # fmt: skip
@click.option("--digits", type=click.IntRange(2, 17), default=7, show_default=True, help="Significant digits of the columns.")
@click.option(
    "--unknown-side", type=click.Choice(["output", "input", "both"]), default="output", show_default=True,
    help="Whose unknown words are counted: the side that the model predicts, the one it reads, or both.",
)  # fmt: skip
@click.option("--replace", type=click.IntRange(min=0), default=0, metavar="K", help="Drop the last K score columns first.")
@click.option("--fix-blanks", is_flag=True, help="Write single blanks between scores where there are tabs or doubled blanks.")
@on_bad_row_option
@click.option(
    "--dropped", metavar="FILE", help="Where dropped rows are kept.  [default: OUT.dropped; without OUT, TABLE.dropped here]"
)
@click.option("--expect-rows", metavar="N|FILE", help="Fail unless N rows, or as many as FILE has, went through.")
@click.option("--columns-json", metavar="FILE", help="What the columns mean.  [default: OUT.columns.json]")
@click.option("--resume", is_flag=True, help="Go on with what an interrupted run left of OUT; begin, if there is nothing.")
@click.option("--strict", is_flag=True, help="Fail if the table's words do not fit the model.")
@click.option("--allow-untrained-unk", is_flag=True, help="Score unknown words even if UNK was never seen in training.")
@click.option(
    "--block-size",
    type=click.IntRange(min=1),
    default=None,
    metavar="ROWS",
    help="Rows of a unit of work.  [default: 2048 on CPUs, 32768 on GPUs]",
)
@click.option(
    "--gzip-level",
    type=click.Choice(GZIP_LEVELS),
    default="6",
    show_default=True,
    help="How hard to compress: fast (2) takes a third of the time of 6, and files are a quarter larger.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Blocks in work at a time.  [default: usable cores / threads]"
)
@click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True,
    help="Cores that score one block: less memory than as many jobs, but slower, and other last digits.",
)  # fmt: skip
@click.option(
    "--device", default="auto", show_default=True, metavar="auto|cpu|cuda[:N],…",
    help="Where to score. auto: every GPU, else the CPU. Several devices share the table's blocks.",
)  # fmt: skip
@click.option(
    "--precision", type=click.Choice(PRECISIONS), default="float32", show_default=True,
    help="Of the large products. tf32, bf16: GPUs (bf16: CPUs that have it). int8: CPUs. Faster, and log p differs a little.",
)  # fmt: skip
@quiet_option
def command(
    table: str, model_dirs: tuple[str, ...], features: tuple[str, ...], out: str, scale: str, digits: int, unknown_side: str,
    replace: int, fix_blanks: bool, on_bad_row: str, dropped: str | None, expect_rows: str | None, columns_json: str | None,
    resume: bool, strict: bool, allow_untrained_unk: bool, block_size: int | None, gzip_level: str, jobs: int | None,
    threads: int, device: str, precision: str, quiet: bool,
) -> None:  # fmt: skip
    """Append p(target | source) and exp(number of unknown words) to the scores of every row of TABLE ('-': standard
    input), in this order, always last. Rows in, rows out, same order; every other byte stays. An inverse model
    ('train --inverse') adds p(source | target) and counts unknown words of the source.

    \b
    phrase-rescore annotate phrase-table.gz -o phrase-table.rnn.gz
    phrase-rescore annotate phrase-table.gz -m forward -m inverse -o phrase-table.rnn.gz
    set -o pipefail; zcat phrase-table.gz | phrase-rescore annotate - | gzip > phrase-table.rnn.gz

    UNITS. Moses takes the natural logarithm of every column, so probabilities are written and what MERT tunes is log p and the
    count. p is clamped at 1.2e-38 (log -87.3), the count at 88. With --scale log the columns are for people and other
    tools: Moses would lose every pair of such a table without a message.

    OUT appears under its name only when complete. Rows on standard output cannot be taken back: a failure ends
    with 'OUTPUT IS INCOMPLETE: n rows' and exit status 1, so begin pipelines with 'set -o pipefail'.
    """
    from phrase_rescore.annotation.annotator import Compute, Statistics
    from phrase_rescore.annotation.pipeline import BLOCK_ROWS, GPU_BLOCK_ROWS, workers
    from phrase_rescore.annotation.run import Files, annotate, expected_rows
    from phrase_rescore.commands.progress import byte_bar, say
    from phrase_rescore.moses.score_columns import Format

    cores = usable_cores()
    jobs = jobs or max(1, cores // threads)
    if jobs * threads > cores:
        raise OptionError(f"--jobs {jobs} with --threads {threads} take {jobs * threads} cores; this process may use {cores}")
    compute = Compute(resolve_devices(device), threads, precision)
    for name in dict.fromkeys(compute.devices):
        if warning := check_precision(precision, name):
            say(f"warning: {warning}")
    default_block = BLOCK_ROWS if compute.devices[0] == "cpu" else GPU_BLOCK_ROWS
    prepare(threads)
    form = Format(scale, digits, unknown_side, features, replace, fix_blanks, on_bad_row == "drop", allow_untrained_unk)
    bar = byte_bar((table,), quiet, os.path.basename(table))

    def on_block(statistics: Statistics) -> None:
        bar.set_postfix_str(f"{statistics.rows:,} rows", refresh=False)

    try:
        with workers(jobs) as executor:
            summary = annotate(
                Files(table, model_dirs, out, columns_json, dropped), form, executor, jobs, compute, strict=strict,
                expect_rows=expected_rows(expect_rows), resume=resume, block_rows=block_size or default_block,
                gzip_level=gzip_level, on_read=bar.update, on_block=on_block,
                warn=lambda message: say(f"warning: {message}"),
            )  # fmt: skip
    finally:
        bar.close()
    if not quiet:
        for line in summary.lines():
            say(line)
