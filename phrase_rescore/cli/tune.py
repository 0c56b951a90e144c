"""Declare the options of ``phrase-rescore tune``."""

from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import PathName, number_option, path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import RESTARTS, SEEDS


@options.command(
    short_help="Find weights on n-best lists of a tuning set.",
    then="phrase-rescore rescore TEST.NBEST --weights {out} --best -o test.rescored.out, with the -m that made these lists",
)
@path_argument("nbest", metavar="NBEST...", nargs=-1, required=True)
@click.option(
    "--reference", type=PathName(Role.READ, paths=lambda names: names.split(",")), required=True, metavar="REF",
    help="The translation of the tuning set, tokenized as the lists are; REF,REF for several.",
)  # fmt: skip
@path_option("-o", "--out", role=Role.WRITE, default="-", metavar="INI", help="The file to write.  [default: standard output]")
@path_option("--weights", metavar="INI", help="Start from [weight] of INI.  [default: the weights that made the totals]")
@options.choice_option(
    "--tokenize", values=("none", "13a", "intl", "char", "zh"), default="none", help="The tokenization of BLEU."
)
@number_option(
    "--restarts", range=RESTARTS, default=5, help="Also start from N random weights; on each half from half as many."
)
@number_option("--seed", range=SEEDS, default=1, help="The seed of random weights.")
@quiet_option
def tune(nbest: tuple[str, ...], reference: str, out: str, quiet: bool, **settings: Any) -> None:
    """Find the weights with which the best entries of NBEST, n-best lists of a tuning set, have the highest BLEU.

    \b
    phrase-rescore rescore dev.nbest.gz -m lm -o dev.lm.nbest.gz
    phrase-rescore tune dev.lm.nbest.gz --reference dev.fr -o weights.ini
    phrase-rescore rescore test.nbest.gz -m lm --weights weights.ini --best > test.out

    The lists may be from Moses or from any decoder that labels features, F0= -3.2. Several lists of the same text are merged.
    INI has a section [weight] with a line LABEL= W … for every feature. Give it to rescore --weights.

    The gain is measured on halves: weights tuned on one half of the segments choose in the other. It is the gain over weights
    without the new features, those that the totals of the lists do not count; if there are none, over the totals. p is the
    probability of a difference as large by chance.
    """
    from phrase_rescore.api import tune
    from phrase_rescore.cli.terminal import byte_bar, count_bar, tell

    with byte_bar(nbest, quiet, "reading") as bar, count_bar("tuning", "climbs", quiet, scale=False) as climbs:

        def on_climb() -> None:
            bar.close()
            climbs.update()

        found = tune(nbest, reference.split(","), out, **settings, on_read=bar.update, on_climb=on_climb)
    tell(found.lines(), quiet)
