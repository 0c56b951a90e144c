"""Declare the options of moses-ini, export-lm, rescore and tune, which bring models to Moses."""

import os
from typing import Any

import click
from cloup import option_group

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, NumberType, PathName, device_option, path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import RESTARTS, SEEDS


def _weights(text: str) -> str:
    """Take ``small``, ``zero`` or numbers with commas between."""
    from phrase_rescore.moses.rewrite_ini import check_weights

    check_weights(text)
    return text


@options.command(
    short_help="Make a moses.ini for an annotated table or an LM.",
    then="mert-moses.pl DEV.SOURCE DEV.REFERENCE MOSES_BIN/moses {out}, with the options above",
)
@path_argument("ini")
@path_option("--table", metavar="TABLE", help="The table with its new columns, as text or .gz.")
@path_option("--lm", metavar="NPLM", help="A language model that export-lm wrote. INI gets a feature NeuralLM for it.")
@path_option(
    "-o", "--out", role=Role.WRITE, may_be="INI", default="-", metavar="OUT",
    help="The file to write; may be INI.  [default: standard output]",
)  # fmt: skip
@click.option(
    "--feature",
    type=TEXT,
    metavar="NAME",
    help="The phrase table that TABLE replaces, as TranslationModel0.  [default: the only one in INI]",
)
@path_option(
    "--path", role=None, metavar="PATH", help="The path of the table binarized from TABLE, to write into INI.  [default: TABLE]"
)
@options.flag("--own-columns", help="Accept new columns that no model added.")
@options.flag("--keep-relative", help="Write relative paths as given.  [default: absolute]")
@click.option(
    "--weights", type=NumberType("weights", _weights), default="small", show_default=True, metavar="small|zero|W,W,…",
    help="The weights of the new columns. small is 0.04 for scores, 0 for counts of words, 0.1 for --lm.",
)  # fmt: skip
@quiet_option
def moses_ini(
    ini: str, table: str | None, lm: str | None, feature: str | None, path: str | None, own_columns: bool,
    keep_relative: bool, weights: str, out: str, quiet: bool,
) -> None:  # fmt: skip
    """Write INI for TABLE, which has more score columns than the table in INI. Path and num-features of that feature
    change, and weights are added; every other byte stays. With --lm a feature NeuralLM and its weight are added.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    phrase-rescore moses-ini moses.ini --lm lm.nplm -o moses.cslm.ini

    INI may be tuned already: tuning then starts from its weights and small new ones. Try --weights zero first: the output of
    the decoder must then stay exactly the same. The ini and the table of filter-model-given-input.pl work too.

    The columns are counted in the first 10,000 rows of TABLE. Paths are written absolute, since mert-moses.pl starts Moses in
    another folder. A PhraseDictionaryGroup changes with its member. For a binarized table (Compact, OnDisk, Binary,
    ProbingPT), TABLE is its text and --path the binarized table; the implementation in INI stays.

    Standard error shows the options that MERT and the binarizers of Moses need for the new number of columns.
    """
    from phrase_rescore.api import moses_ini
    from phrase_rescore.cli.terminal import tell

    lines = moses_ini(
        ini, out, table=table, lm=lm, feature=feature, path=path, weights=weights, own_columns=own_columns,
        keep_relative=keep_relative,
    )  # fmt: skip
    tell(lines, quiet)


@options.command(
    short_help="Write a language model for the decoder.",
    then=lambda values: "phrase-rescore moses-ini moses.ini --lm {out} -o moses.lm.ini",
)
@options.lm_option()
@path_option("-o", "--out", role=Role.WRITE, default="-", metavar="OUT", help="The file to write.  [default: standard output]")
@quiet_option
def export_lm(lm: str, out: str, quiet: bool) -> None:
    """Write a language model in NPLM's text format. Moses reads it if it was built --with-nplm.

    \b
    phrase-rescore export-lm -m lm -o lm.nplm

    These lines of moses.ini load it:

    \b
    [feature]
    NeuralLM factor=0 name=CSLM0 order=7 path=/abs/lm.nplm
    [weight]
    CSLM0= 0.1

    Without such a Moses, rescore adds the model's scores to n-best lists.
    """
    from phrase_rescore.api import export_lm
    from phrase_rescore.cli.terminal import say, warn

    written = export_lm(lm, out, warn=warn)
    if not quiet and out != "-":
        say(written)


def _after_rescore(values: dict[str, Any]) -> str:
    if values["best"]:
        return "phrase-rescore evaluate --set test REFERENCE rescored={out}"
    tune = "phrase-rescore tune {out} --reference DEV.REFERENCE -o weights.ini"
    return tune if (values["models"] or values["scores"]) and not values["weights"] else ""


@options.grouped_command(
    short_help="Add the scores of models to an n-best list.",
    then=_after_rescore,
)
@path_argument("nbest", metavar="NBEST")
@option_group(
    "Most used",
    path_option(
        "-m", "--model", "models", role=Role.READ_DIRECTORY, made_by="train-lm CORPUS", metavar="MODEL", multiple=True,
        help="A language model, or a model of phrase pairs. May be repeated: each model adds a feature.",
    ),
    options.out_option(),
    path_option("--source", help="The decoded text, which models of phrase pairs need. --best then writes as many lines."),
)  # fmt: skip
@option_group(
    "Features",
    click.option(
        "--label", "labels", type=TEXT, metavar="LABEL", multiple=True,
        help="The label of the feature of the first -m, of the second, …, of --scores.  "
        "[default: CSLM0, …, RNN0, …, SCORE0, …]",
    ),
    options.flag("--whole", help="Score source and hypothesis as one pair, not phrase by phrase, with models of pairs."),
    path_option(
        "--scores", multiple=True,
        help="Add the numbers of FILE, one an entry: probabilities of any other model. May be repeated.",
    ),
    options.flag("--log", help="The numbers of --scores are natural logarithms."),
    options.flag("--replace", help="Overwrite a feature that the list already has."),
)  # fmt: skip
@option_group(
    "Totals",
    path_option(
        "--weights", metavar="INI",
        help="Recompute the totals with the weights of INI: a [weight] section with a line for every feature of the list, "
        "the new one too (CSLM0= 0.05).",
    ),
    options.flag("--sort", help="Sort the entries of every segment by total."),
    options.flag("--best", help="Write the words of the best entry of every segment, one a line, instead of the list."),
)  # fmt: skip
@device_option("cpu")
@quiet_option
def rescore(nbest: str, models: tuple[str, ...], out: str, quiet: bool, **chosen: Any) -> None:
    """Add the scores of models to every entry of NBEST, an n-best list of Moses. Every other byte stays.

    \b
    phrase-rescore rescore dev.nbest.gz -m lm -o dev.lm.nbest.gz
    phrase-rescore tune dev.lm.nbest.gz --reference dev.fr -o weights.ini
    phrase-rescore rescore test.nbest.gz -m lm --weights weights.ini --best > test.out
    phrase-rescore rescore dev.nbest.gz --scores dev.log-p --log -o dev.other.nbest.gz

    A language model adds log p of the hypothesis, natural log, </s> included: CSLM0= -31.4. A model of phrase pairs adds two
    values, the sums of log p and of unknown words over the phrase pairs, as the columns of annotate do: RNN0= -20.1 1. It
    needs the segmentation: run moses with -include-segmentation-in-n-best, or with -t. With --whole it needs none and scores
    sentence pairs; train that model on TSV. --scores adds the numbers of any other program, one for every entry.

    tune writes the INI of --weights; any ini with a section [weight] will do. Its section [weight-file] may name a file of
    sparse weights, lines LABEL W. A sparse feature (its label has an underscore) without a weight counts as 0, with a warning.
    """
    from phrase_rescore.api import rescore
    from phrase_rescore.cli.terminal import byte_bar, say, warn

    with byte_bar((nbest,), quiet, os.path.basename(nbest)) as bar:
        summary = rescore(nbest, out, models, on_read=bar.update, **chosen)
    for warning in summary.warnings:
        warn(warning)
    if not quiet:
        say(f"{summary.entries:,} entries of {summary.segments:,} segments")
        for label, line in summary.features.items():
            say(f"{label}: {line}")


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
@options.number_option(
    "--restarts", range=RESTARTS, default=5, help="Also start from N random weights; on each half from half as many."
)
@options.number_option("--seed", range=SEEDS, default=1, help="The seed of random weights.")
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
