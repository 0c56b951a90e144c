"""Turn the options of ``phrase-rescore moses-ini`` into library calls."""

from __future__ import annotations

import os

import click

from phrase_rescore.commands.options import TEXT, NumberType, file_argument, file_option, quiet_option
from phrase_rescore.errors import InputError, OptionError

_LARGEST = 1 << 24  # bytes of an ini


class WeightsType(NumberType):
    """Takes ``small``, ``zero`` or numbers with commas between."""

    name = "weights"

    def read(self, text: str) -> str:
        from phrase_rescore.moses.ini import check_weights

        check_weights(text)
        return text


@click.command(short_help="Make a moses.ini for an annotated table.")
@file_argument("ini")
@file_option("--table", required=True, metavar="TABLE", help="The table with its new columns, as text or .gz.")
@file_option("-o", "--out", default="-", metavar="OUT", help="The file to write; may be INI.  [default: standard output]")
@click.option("--feature", type=TEXT, metavar="NAME", help="The phrase table that it replaces.  [default: the only one in INI]")
@file_option(
    "--path", metavar="PATH", help="The path to write: that of a table binarized from TABLE.  [default: TABLE as given]"
)
@click.option(
    "--weights", type=WeightsType(), default="small", show_default=True, metavar="small|zero|W,W,…",
    help="The weights of the new columns. small is 0.01 for scores, -0.01 for counts of words.",
)  # fmt: skip
@quiet_option
def command(
    ini: str, table: str, feature: str | None, path: str | None, weights: str, out: str, quiet: bool
) -> None:  # fmt: skip
    """Write INI for TABLE, which has more score columns than the table in INI. Path and num-features of that feature
    change, and weights are added; every other byte stays.

    \b
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz -o moses.rnn.ini
    phrase-rescore moses-ini moses.ini --table phrase-table.rnn.gz --weights zero -o moses.zero.ini

    INI may be tuned already: tuning then starts from its weights and small new ones. With --weights zero the decoder's
    output must be exactly the old one; try that first. The ini and the table of filter-model-given-input.pl work too.

    The columns are counted in the first 10,000 rows of TABLE. Its path is written as given; Moses resolves it where it is
    started. For a binarized table (Compact, OnDisk, Binary, ProbingPT) TABLE is the text it was made from and --path the
    result; the implementation in INI stays.

    Standard error shows the options that tell MERT and the binarizers of Moses the new number of columns.
    """
    from phrase_rescore.commands.progress import say
    from phrase_rescore.files.atomic import atomic_output
    from phrase_rescore.files.paths import Role, Use, check_paths
    from phrase_rescore.files.streams import display_name, open_input
    from phrase_rescore.moses.ini import find_table, hints, new_weights, warnings, with_table
    from phrase_rescore.moses.score_columns import check_loadable, read_columns

    if table == "-" and path is None:
        raise OptionError("--table - has no name to write into the ini; give it with --path")
    if ini == table == "-":
        raise OptionError("ini and table cannot both be standard input; name one of them")
    uses = Use("INI", ini, Role.READ), Use("--table", table, Role.READ), Use("-o", out, Role.WRITE)
    check_paths(uses[:2])
    check_paths(uses[1:])  # OUT may be INI
    where = display_name(ini)
    with open_input(ini) as stream:
        before = stream.read(_LARGEST + 1)
    if len(before) > _LARGEST:
        raise InputError(where, f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
    old = find_table(before, None if feature is None else os.fsencode(feature), where)
    if path is None:
        if old.is_binarized:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_loadable(table)
    columns = read_columns(table)
    if len(columns) < old.n_columns:
        found = (
            f"{len(columns)} score {'column' if len(columns) == 1 else 'columns'}, where {old} has num-features={old.n_columns}"
        )
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
