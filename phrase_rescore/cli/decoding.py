"""Declare the options of moses-ini, export-lm, rescore and tune, which bring models to Moses."""

import os
from collections.abc import Mapping
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import FILE, MODEL, TEXT, PathName, Value, device_option, flag, option, quiet_option
from phrase_rescore.errors import OptionError
from phrase_rescore.messages import shown
from phrase_rescore.ranges import COLUMNS, RESTARTS, SEEDS


def _references(text: str) -> list[str]:
    if "" in (paths := text.split(",")):
        raise OptionError(f"{shown(text)} has an empty name of a file")
    return paths


@options.command(
    short_help="Make a moses.ini for an annotated table or an LM.",
    then="mert-moses.pl DEV.SOURCE DEV.REFERENCE MOSES_BIN/moses {out}, with the options above",
)
@click.argument("ini", type=PathName(exists=True, dir_okay=False, allow_dash=True))
@option("--table", FILE, "The table with its new columns, as text or .gz.", "TABLE")
@option("--lm", FILE, "A language model that export-lm wrote. INI gets a feature NeuralLM for it.", "NPLM")
@options.out_option("; may be INI")
@option(
    "--feature", TEXT, "The phrase table that TABLE replaces, as TranslationModel0.  [default: the only one in INI]", "NAME"
)
@option("--path", TEXT, "The path of the table binarized from TABLE, to write into INI.  [default: TABLE]", "PATH")
@option("--columns", COLUMNS, "Without TABLE.columns.json: the last K score columns of TABLE are new.", "K")
@option(
    "--weights", TEXT, "The weights of the new columns. small is 0.04 for scores, 0 for counts of words, 0.1 for --lm.",
    "small|zero|W,W,…", default="small",
)  # fmt: skip
@quiet_option
def moses_ini(ini: str, out: str, quiet: bool, **changes: Any) -> None:
    """Write INI for TABLE, which has more score columns than the table in INI. Path and num-features of that feature
    change, and weights are added; every other byte stays. With --lm a feature NeuralLM and its weight are added.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    phrase-rescore moses-ini moses.ini --lm lm.nplm -o moses.cslm.ini

    INI may be tuned already: tuning then starts from its weights and small new ones. Try --weights zero first: the output of
    the decoder must then stay exactly the same. The ini and the table of filter-model-given-input.pl work too.

    The columns are counted in the first 10,000 rows of TABLE. Paths are written absolute, since mert-moses.pl starts Moses in
    another folder. For a binarized table (Compact, OnDisk, Binary, ProbingPT), TABLE is its text and --path the binarized
    table; the implementation in INI stays.

    Standard error shows the options that MERT and the binarizers of Moses need for the new number of columns.
    """
    from phrase_rescore.cli.terminal import tell, warn
    from phrase_rescore.moses.rewrite_ini import moses_ini

    tell(moses_ini(ini, out, **changes, warn=warn), quiet)


@options.command(
    short_help="Write a language model for the decoder.", then="phrase-rescore moses-ini moses.ini --lm {out} -o moses.lm.ini"
)
@options.lm_option()
@options.out_option("")
@quiet_option
def export_lm(lm: str, out: str, quiet: bool) -> None:
    """Write a language model in NPLM's text format. Moses reads it if it was built --with-nplm.

    \b
    phrase-rescore export-lm -m nlm -o lm.nplm

    moses-ini --lm writes the lines of moses.ini that load it. Without such a Moses, rescore adds the model's scores to
    n-best lists.
    """
    from phrase_rescore.cli.terminal import say, warn
    from phrase_rescore.lm.nplm import export_lm

    written = export_lm(lm, out, warn=warn)
    say(written, quiet or out == "-")


def _after_rescore(values: Mapping[str, Any]) -> str:
    """Return what to type after rescore: never to tune on a test set."""
    if values["best"]:
        return "phrase-rescore evaluate --set test REFERENCE base=BASELINE.out new={out}"
    if values["weights"] or not (values["models"] or values["scores"]):
        return "phrase-rescore rescore {out} --best -o rescored.out"
    if any("test" in os.path.basename(values[name] or "") for name in ("nbest", "out", "source")):
        return "phrase-rescore rescore {out} --weights WEIGHTS.INI --best -o test.rescored.out"
    return "phrase-rescore tune {out} --reference DEV.REFERENCE -o weights.ini"


@options.command(short_help="Add the scores of models to an n-best list.", then=_after_rescore)
@click.argument("nbest", type=FILE)
@option_group(
    "Most used",
    option(
        "-m --model models", MODEL, metavar="MODEL", multiple=True,
        help="A model of train-lm, train-nmt or train. May be repeated: each model adds a feature.",
    ),
    options.out_option(),
    option("--source", FILE, "The decoded text, which all but language models need. --best then writes as many lines."),
)  # fmt: skip
@option_group(
    "Features",
    option(
        "--label labels", TEXT, "The label of the feature of the first -m, of the second, …, of --scores.  "
        "[default: CSLM0, …, NMT0, …, RNN0, …, SCORE0, …]", "LABEL", multiple=True,
    ),
    option(
        "--scores", FILE, "Add the numbers of FILE, one an entry: probabilities of any other model. May be repeated.",
        multiple=True,
    ),
    flag("--log", "The numbers of --scores are natural logarithms."),
    flag("--replace", "Overwrite a feature that the list already has."),
)  # fmt: skip
@option_group(
    "Totals",
    option(
        "--weights", FILE, "Recompute the totals with the weights of INI: a [weight] section with a line for every feature of "
        "the list, the new one too (CSLM0= 0.05).", "INI",
    ),
    flag("--sort", "Sort the entries of every segment by total."),
    flag("--best", "Write the words of the best entry of every segment, one a line, instead of the list."),
)  # fmt: skip
@options.force_option
@device_option("cpu")
@options.threads_option
@quiet_option
def rescore(nbest: str, models: tuple[str, ...], out: str, quiet: bool, **chosen: Any) -> None:
    """Add the scores of models to every entry of NBEST, an n-best list of Moses. Every other byte stays.

    \b
    phrase-rescore rescore dev.nbest.gz -m nlm -m nmt --source dev.en -o dev.all.nbest.gz
    phrase-rescore tune dev.all.nbest.gz --reference dev.fr -o weights.ini
    phrase-rescore rescore test.nbest.gz -m nlm -m nmt --source test.en --weights weights.ini --best > test.all.out
    phrase-rescore rescore dev.nbest.gz --scores dev.log-p --log -o dev.other.nbest.gz

    A language model adds log p of the hypothesis, natural log, </s> included: CSLM0= -31.4. A translation model adds log p of
    the hypothesis given the source: NMT0= -28.6. A model of phrase pairs adds two values, the sums of log p and of unknown
    words over the phrase pairs, as the columns of annotate do: RNN0= -20.1 1. It needs the segmentation: run moses with
    -include-segmentation-in-n-best, or with -t.
    --scores adds the numbers of any other program, one for every entry.

    Before the work the list and the files are compared. What hardly can belong together is an error, such as a source of
    another text or a list that lacks a feature of INI. --force makes it a warning.

    tune writes the INI of --weights; any ini with a section [weight] will do. Its section [weight-file] may name a file of
    sparse weights, lines LABEL W. A sparse feature (its label has an underscore) without a weight counts as 0, with a warning.
    """
    from phrase_rescore.api import rescore
    from phrase_rescore.cli.terminal import byte_bar, say, warn

    with byte_bar((nbest,), quiet) as bar:
        summary = rescore(nbest, out, models, on_read=bar.update, warn=warn, **chosen)
    warn(*summary.warnings)
    say(f"{summary.entries:,} entries of {summary.segments:,} segments", quiet)


class _IniOrNone(PathName):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "none" else super().convert(value, param, ctx)


@options.command(
    short_help="Find weights on n-best lists of a tuning set.",
    then="phrase-rescore rescore TEST.NBEST -m MODEL ... --source TEST.SOURCE --weights {out} --best -o test.rescored.out",
)
@click.argument("nbest", type=FILE, metavar="NBEST...", nargs=-1, required=True)
@option(
    "--reference references", Value("REF", _references), metavar="REF", required=True,
    help="The translation of the tuning set, tokenized as the lists are; REF,REF for several.",
)  # fmt: skip
@options.out_option("", "INI")
@option(
    "--weights", _IniOrNone(exists=True, dir_okay=False, allow_dash=True), metavar="INI|none",
    help="Start from [weight] of INI, or with none from random weights.  [default: the weights that made the totals]",
)  # fmt: skip
@option("--tokenize", ("none", "13a", "intl", "char", "zh"), "The tokenization of BLEU.", default="none")
@option("--restarts", RESTARTS, "Also start from N random weights; on each half from half as many.", default=5)
@option("--seed", SEEDS, "The seed of random weights.", default=1)
@options.force_option
@quiet_option
def tune(nbest: tuple[str, ...], references: list[str], out: str, quiet: bool, **settings: Any) -> None:
    """Find the weights with which the best entries of NBEST, n-best lists of a tuning set, have the highest BLEU.

    \b
    phrase-rescore rescore dev.nbest.gz -m nlm -m nmt --source dev.en -o dev.all.nbest.gz
    phrase-rescore tune dev.all.nbest.gz --reference dev.fr -o weights.ini
    phrase-rescore rescore test.nbest.gz -m nlm -m nmt --source test.en --weights weights.ini --best > test.all.out

    The lists may be from Moses or from any decoder that labels features, F0= -3.2. Several lists of the same text are merged.
    INI has a section [weight] with a line LABEL= W … for every feature. Give it to rescore --weights.

    The gain is measured on halves: weights tuned on one half of the segments choose in the other. It is the gain over weights
    tuned likewise without the new features: those that the totals of the lists do not count, or that the INI of --weights
    lacks. p is the probability of a difference as large by chance. Where the totals count every feature nothing is new: run
    rescore first, or tune from nothing with --weights none.
    """
    from phrase_rescore.api import tune
    from phrase_rescore.cli.terminal import byte_bar, share_bar, tell, warn

    with byte_bar(nbest, quiet, "reading") as bar, share_bar("tuning", quiet) as climbs:

        def on_climb(done: float) -> None:
            if not done:  # all is read: time begins
                bar.close()
                climbs.reset()
            climbs.reach(done)

        summary = tune(nbest, references, out, **settings, on_read=bar.update, on_climb=on_climb)
    warn(*summary.warnings)
    tell(summary.lines(), quiet)
