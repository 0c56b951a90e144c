"""Declare the options of ``phrase-rescore curves``."""

import os
from collections.abc import Iterable
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import PathName, path_option, quiet_option
from phrase_rescore.errors import OptionError, counted
from phrase_rescore.files.paths import Role


class RunType(PathName):
    """Takes the name of a model directory or a log, perhaps with a name of its own before it."""

    name = "run"

    def paths(self, value: Any) -> Iterable[str]:
        from phrase_rescore.training.log import split_argument

        return split_argument(value)[1:]


@options.command(short_help="Draw the training curves of runs.")
@click.argument("runs", type=RunType(Role.READ_EITHER), nargs=-1, required=True, metavar="RUN...")
@path_option("-o", "--out", role=Role.WRITE, metavar="FILE", help="The picture to write: PNG or SVG, by the end of its name.")
@click.option("--table", is_flag=True, help="Write the figures of every run to standard output, with or without a picture.")
@click.option(
    "--x", type=click.Choice(["steps", "hours", "pairs"]), default="steps", show_default=True, help="The horizontal axis."
)
@click.option(
    "--y", type=click.Choice(["loss", "perplexity"]), default="loss", show_default=True,
    help="loss draws nats per pair, or per word of a language model, of training as well. "
    "perplexity draws held-out perplexity per word.",
)  # fmt: skip
@click.option("--log-x", is_flag=True, help="Make the horizontal axis logarithmic.")
@quiet_option
def command(runs: tuple[str, ...], out: str | None, table: bool, quiet: bool, **chart: Any) -> None:
    """Draw the loss of every RUN in the course of training: held-out solid, training dashed, the best step a star. A RUN is
    a model directory or a log like its train.log.jsonl. NAME=RUN gives it a name in the picture.

    \b
    phrase-rescore curves phrase-rescore-model -o curves.png
    phrase-rescore curves small=model-500 large=model-1000 --x hours -o curves.svg
    phrase-rescore curves model-* --table

    --table writes a line for every run, with tabs between: name, steps, best step, held-out loss per pair, or per word of a
    language model (nats), and perplexity per word at that step, hours.
    Pictures need Altair: pip install '.[report]' in the checkout.
    """
    from phrase_rescore.api import curves
    from phrase_rescore.cli.terminal import say

    if out is None and not table:
        raise OptionError("nothing to write; name a picture with -o curves.png, or ask for figures with --table")
    found = curves(runs, out, **chart)
    if table:
        click.echo(os.fsencode("".join(run.line() + "\n" for run in found)), nl=False)
    if out is not None and not quiet:
        say(f"{out}: {counted(len(found), 'run')}")
