"""Turn the options of ``phrase-rescore rescore`` into library calls."""

import os
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, device_option, out_option, path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role


@options.command(
    short_help="Add the scores of models to an n-best list.",
    then=lambda values: "phrase-rescore evaluate --set test REFERENCE rescored={out}" if values["best"] else "",
)
@path_argument("nbest", metavar="NBEST")
@path_option(
    "-m", "--model", "models", role=Role.READ_DIRECTORY, made_by="train-lm CORPUS", metavar="MODEL", multiple=True,
    help="A language model, or a model of phrase pairs. May be repeated: a feature each.",
)  # fmt: skip
@out_option()
@path_option(
    "--source", role=Role.READ, metavar="FILE",
    help="The text that was decoded, for models of phrase pairs; --best then writes as many lines.",
)  # fmt: skip
@click.option(
    "--label", "labels", type=TEXT, metavar="LABEL", multiple=True,
    help="The label of the feature of the first -m, of the second, …  [default: CSLM0, CSLM1, …, RNN0, RNN1, …]",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Renew a feature that the list has already.")
@path_option(
    "--weights", role=Role.READ, metavar="INI", help="Recompute the totals, of the features in the list, by [weight] of INI."
)
@click.option("--sort", is_flag=True, help="Sort the entries of every segment by total.")
@click.option("--best", is_flag=True, help="Write the words of the best entries, a line a segment, instead of the list.")
@device_option("cpu")
@quiet_option
def command(nbest: str, models: tuple[str, ...], out: str, quiet: bool, **options: Any) -> None:
    """Add the scores of models to every entry of NBEST, an n-best list of Moses. Every other byte stays.

    \b
    phrase-rescore rescore test.nbest.gz -m lm -o test.cslm.nbest.gz
    phrase-rescore rescore test.nbest.gz -m lm --weights rescore.ini --best > test.out

    A language model adds log p of the hypothesis, natural log, </s> included: CSLM0= -31.4. A model of phrase pairs adds two
    values, the sums of log p and of unknown words over the phrase pairs, as the columns of annotate do: RNN0= -20.1 1. It
    needs the segmentation: run moses with -include-segmentation-in-n-best, or with -t.

    INI of --weights needs a section [weight] alone, with a line LABEL= W … for every feature of the list: the weights that mert
    finds on a list of the tuning set.
    """
    from phrase_rescore.api import rescore
    from phrase_rescore.cli.terminal import byte_bar, say

    with byte_bar((nbest,), quiet, os.path.basename(nbest)) as bar:
        summary = rescore(nbest, out, models, on_read=bar.update, **options)
    for warning in summary.warnings:
        say(f"warning: {warning}")
    if not quiet:
        say(f"{summary.entries:,} entries of {summary.segments:,} segments")
        for label, line in summary.features.items():
            say(f"{label}: {line}")
