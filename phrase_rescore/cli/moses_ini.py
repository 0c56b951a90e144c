"""Turn the options of ``phrase-rescore moses-ini`` into library calls."""

from __future__ import annotations

import os

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import TEXT, NumberType, path_argument, path_option, quiet_option
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.paths import Role


class WeightsType(NumberType):
    """Takes ``small``, ``zero`` or numbers with commas between."""

    name = "weights"

    def read(self, text: str) -> str:
        from phrase_rescore.moses.ini import check_weights

        check_weights(text)
        return text


@options.command(short_help="Make a moses.ini for an annotated table or an LM.")
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
    help="The path to write: that of a table binarized from TABLE.  [default: TABLE as given]",
)  # fmt: skip
@click.option(
    "--weights", type=WeightsType(), default="small", show_default=True, metavar="small|zero|W,W,…",
    help="The weights of the new columns. small is 0.01 for scores, -0.01 for counts of words, 0.1 for --lm.",
)  # fmt: skip
@quiet_option
def command(
    ini: str, table: str | None, lm: str | None, feature: str | None, path: str | None, weights: str, out: str, quiet: bool
) -> None:  # fmt: skip
    """Write INI for TABLE, which has more score columns than the table in INI. Path and num-features of that feature
    change, and weights are added; every other byte stays. With --lm a feature NeuralLM and its weight are added.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    phrase-rescore moses-ini moses.ini --lm lm.nplm -o moses.cslm.ini

    INI may be tuned already: tuning then starts from its weights and small new ones. With --weights zero the decoder's
    output must be exactly the old one; try that first. The ini and the table of filter-model-given-input.pl work too.

    The columns are counted in the first 10,000 rows of TABLE. Its path is written as given; Moses resolves it where it is
    started. For a binarized table (Compact, OnDisk, Binary, ProbingPT) TABLE is the text it was made from and --path the
    result; the implementation in INI stays.

    Standard error shows the options that tell MERT and the binarizers of Moses the new number of columns.
    """
    from phrase_rescore.cli.terminal import say
    from phrase_rescore.files.inputs import display_name
    from phrase_rescore.files.outputs import atomic_output
    from phrase_rescore.lm.nplm import read_order
    from phrase_rescore.moses.ini import read_ini, with_neural_lm

    if table is None and lm is None:
        raise OptionError("nothing to do; name a table with --table, or a language model with --lm")
    if table is None and (feature or path):
        raise OptionError(f"{'--feature' if feature else '--path'} is of the phrase table; name it with --table")
    if table == "-" and path is None:
        raise OptionError("--table - has no name to write into the ini; give it with --path")
    if ini == table == "-":
        raise OptionError("ini and table cannot both be standard input; name one of them")
    where, before = display_name(ini), read_ini(ini)
    after, told = before, list[str]()
    if table is not None:
        after, told = _with_table(before, where, table, feature, path, weights)
    if lm is not None:
        if table is None and weights not in ("small", "zero") and "," in weights:
            raise OptionError(f"--weights {weights}: a language model has one weight")
        weight = {"small": b"0.1", "zero": b"0"}.get(weights, b"0.1" if table is not None else weights.encode())
        after, name = with_neural_lm(after, os.fsencode(lm), read_order(lm), weight, where)
        told.append(f"{name.decode()}: a feature NeuralLM of {lm}, weight {weight.decode()}; Moses must be built --with-nplm")
    if out == "-":
        click.echo(after, nl=False)
    else:
        with atomic_output(out) as output:
            output.write(after)
    for line in told:
        if not quiet or line.startswith("warning: "):
            say(line)


def _with_table(
    before: bytes, where: str, table: str, feature: str | None, path: str | None, weights: str
) -> tuple[bytes, list[str]]:
    """Return the ini for the table, and what is to be said of it."""
    from phrase_rescore.files.inputs import display_name
    from phrase_rescore.moses.columns import RANGE_ROWS, TableColumns, check_compression
    from phrase_rescore.moses.ini import find_table, hints, new_weights, warnings, with_table

    old = find_table(before, None if feature is None else os.fsencode(feature), where)
    if path is None:
        if old.is_binarized:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_compression(table)
    found_columns = TableColumns.read(table, RANGE_ROWS)
    found_columns.check_loadable()
    columns = found_columns.columns
    if len(columns) < old.n_columns:
        found = (
            f"{len(columns)} score {'column' if len(columns) == 1 else 'columns'}, where {old} has num-features={old.n_columns}"
        )
        raise InputError(display_name(table), found, "pass the table that annotate wrote")
    added = columns[old.n_columns :]
    values = new_weights(weights, added)
    new_path = os.fsencode(table if path is None else path)
    after = with_table(before, old, new_path, len(columns), values)
    told = [f"warning: {where}: {warning}" for warning in warnings(before, old, new_path)]
    if after == before:
        return after, [*told, f"nothing to do: {old} has {len(columns)} columns and this path already"]
    changes = [f"num-features {old.n_columns} -> {len(columns)}, new weights {b' '.join(values).decode()}"] if added else []
    if new_path != old.path:
        changes.append(f"path {os.fsdecode(old.path)} -> {os.fsdecode(new_path)}")
    return after, [*told, f"{old}: {', '.join(changes)}", *hints(old, columns)]
