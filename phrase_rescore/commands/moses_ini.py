"""``phrase-rescore moses-ini``: options to library calls."""

from __future__ import annotations

import os

import click

from phrase_rescore.commands.options import quiet_option
from phrase_rescore.errors import InputError, OptionError


@click.command(short_help="Make a moses.ini for an annotated table.")
@click.argument("ini")
@click.option("--table", required=True, metavar="TABLE", help="The table with its new columns, as text or .gz.")
@click.option("--feature", metavar="NAME", help="The phrase table it replaces.  [default: the only one in INI]")
@click.option("--path", metavar="PATH", help="Write this path: of a table binarized from TABLE.  [default: TABLE as given]")
@click.option(
    "--weights", default="small", show_default=True, metavar="small|zero|W,W,…",
    help="Weights of the new columns. small: 0.01, and -0.01 where words are counted.",
)  # fmt: skip
@click.option("-o", "--out", default="-", metavar="OUT", help="File to write; INI itself is fine.  [default: standard output]")
@quiet_option
def command(
    ini: str, table: str, feature: str | None, path: str | None, weights: str, out: str, quiet: bool
) -> None:  # fmt: skip
    """Write INI for TABLE, which has more score columns than the table in it: path and num-features of that feature
    change, its weights get more, every other byte stays.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    INI may be tuned already: with the weights that it has and small new ones, tuning starts from there. With --weights zero
    the decoder's output must be the old one exactly; try that first. The ini and the table of filter-model-given-input.pl
    are fine, too.

    The columns are counted in the first 10,000 rows of TABLE. Its path is written as given, and Moses looks for it from
    where it is started. For a binarized table (Compact, OnDisk, Binary, ProbingPT) TABLE is the text it was made from
    and --path what was made; the implementation in INI stays.

    On standard error: the options by which MERT and the binarizers of Moses learn the new number of columns.
    """
    from phrase_rescore.commands.progress import say
    from phrase_rescore.files.atomic import atomic_output
    from phrase_rescore.files.streams import display_name, open_input
    from phrase_rescore.moses.ini import find_table, hints, new_weights, warnings, with_table
    from phrase_rescore.moses.score_columns import check_loadable, read_columns

    if table == "-" and path is None:
        raise OptionError("--table - has no name to write into the ini; give it with --path")
    if ini == table == "-":
        raise OptionError("ini and table cannot both be standard input; name one of them")
    where = display_name(ini)
    with open_input(ini) as stream:
        before = stream.read()
    old = find_table(before, None if feature is None else os.fsencode(feature), where)
    if path is None:
        if old.is_binarized:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_loadable(table)
    columns = read_columns(table)
    if len(columns) < old.n_columns:
        found = f"{len(columns)} score column{'s' * (len(columns) != 1)}, where {old} has num-features={old.n_columns}"
        raise InputError(display_name(table), found, "pass the table that annotate wrote")
    added = columns[old.n_columns :]
    values = new_weights(weights, added)
    new_path = os.fsencode(table if path is None else path)
    after = with_table(before, old, new_path, len(columns), values)
    if out == "-":
        click.echo(after, nl=False)
    else:
        with atomic_output(out) as output:
            output.write(after)
    for warning in warnings(before, old, new_path):
        say(f"warning: {where}: {warning}")
    if quiet:
        return
    if after == before:
        say(f"nothing to do: {old} has {len(columns)} columns and this path already")
        return
    changes = [f"num-features {old.n_columns} -> {len(columns)}, new weights {b' '.join(values).decode()}"] if added else []
    if new_path != old.path:
        changes.append(f"path {os.fsdecode(old.path)} -> {os.fsdecode(new_path)}")
    for line in (f"{old}: {', '.join(changes)}", *hints(old, columns)):
        say(line)
