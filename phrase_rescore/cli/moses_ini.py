"""Turn the options of ``phrase-rescore moses-ini`` into library calls."""

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, NumberType, path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role


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
@path_option("--table", role=Role.READ, metavar="TABLE", help="The table with its new columns, as text or .gz.")
@path_option(
    "--lm", role=Role.READ, metavar="NPLM", help="A language model that export-lm wrote: it becomes a feature NeuralLM.",
)  # fmt: skip
@path_option(
    "-o", "--out", role=Role.WRITE, may_be="INI", default="-", metavar="OUT",
    help="The file to write; may be INI.  [default: standard output]",
)  # fmt: skip
@click.option("--feature", type=TEXT, metavar="NAME", help="The phrase table that it replaces.  [default: the only one in INI]")
@path_option(
    "--path", role=None, metavar="PATH",
    help="The path to write: that of a table binarized from TABLE.  [default: TABLE]",
)  # fmt: skip
@click.option("--own-columns", is_flag=True, help="Take new columns of your own, which no model added.")
@click.option("--keep-relative", is_flag=True, help="Write relative paths as given.  [default: absolute]")
@click.option(
    "--weights", type=NumberType("weights", _weights), default="small", show_default=True, metavar="small|zero|W,W,…",
    help="The weights of the new columns. small is 0.01 for scores, -0.01 for counts of words, 0.1 for --lm.",
)  # fmt: skip
@quiet_option
def command(
    ini: str, table: str | None, lm: str | None, feature: str | None, path: str | None, own_columns: bool,
    keep_relative: bool, weights: str, out: str, quiet: bool,
) -> None:  # fmt: skip
    """Write INI for TABLE, which has more score columns than the table in INI. Path and num-features of that feature
    change, and weights are added; every other byte stays. With --lm a feature NeuralLM and its weight are added.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    phrase-rescore moses-ini moses.ini --lm lm.nplm -o moses.cslm.ini

    INI may be tuned already: tuning then starts from its weights and small new ones. With --weights zero the decoder's
    output must be exactly the old one; try that first. The ini and the table of filter-model-given-input.pl work too.

    The columns are counted in the first 10,000 rows of TABLE. Paths are written absolute, as mert-moses.pl starts Moses in
    another folder. A PhraseDictionaryGroup changes with its member. For a binarized table (Compact, OnDisk, Binary,
    ProbingPT) TABLE is the text it was made from and --path the result; the implementation in INI stays.

    Standard error shows the options that tell MERT and the binarizers of Moses the new number of columns.
    """
    from phrase_rescore.api import moses_ini
    from phrase_rescore.cli.terminal import say

    told = moses_ini(
        ini, out, table=table, lm=lm, feature=feature, path=path, weights=weights, own_columns=own_columns,
        keep_relative=keep_relative,
    )  # fmt: skip
    for line in told:
        if not quiet or line.startswith("warning: "):
            say(line)
