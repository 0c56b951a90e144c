"""Declare the options of ``phrase-rescore why``."""

import os
from collections.abc import Iterable
from typing import Any

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import PathName, number_option, path_option, quiet_option, sidecar_of
from phrase_rescore.errors import printable
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import SHOWN_SEGMENTS


class SystemType(PathName):
    """Takes a system's name and the name of its output."""

    name = "system"

    def paths(self, value: Any) -> Iterable[str]:
        _, path = value
        return [path]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        system, _, path = value.partition("=")
        if not (system and path):
            self.fail(f"{value!r} is not SYSTEM=OUT, say, baseline=test.baseline.out", param, ctx)
        return printable(os.fsencode(system), 1000), path


@options.command(short_help="Tell where a new score helped and where not, phrase by phrase.")
@click.argument("systems", type=SystemType(Role.READ), nargs=-1, required=True, metavar="SYSTEM=OUT...")
@path_option(
    "--source", role=Role.READ, required=True, metavar="FILE", help="The text that both translated, as the decoder got it."
)
@path_option(
    "--reference", role=Role.READ, required=True, metavar="FILE",
    help="Its translation, tokenized and escaped as the outputs are.",
)  # fmt: skip
@path_option(
    "--table", role=Role.READ, derived=sidecar_of, required=True, metavar="TABLE",
    help="The annotated table that they used, whole or filtered.",
)  # fmt: skip
@number_option(
    "--segments", range=SHOWN_SEGMENTS, default=10, show_default=True, metavar="N",
    help="Segments to show of those that gained most, and as many of those that lost most.",
)  # fmt: skip
@quiet_option
def command(systems: tuple[tuple[str, str], ...], table: str, quiet: bool, **asked: Any) -> None:
    """Compare the outputs of two systems on one text, phrase by phrase, to tell why a new score helped or did not. The first
    system is the one to compare with.

    \b
    moses -config mert-work/moses.ini -input-file test.en -t > test.rnn.seg
    phrase-rescore why --source test.en --reference test.fr \\
        --table phrase-table.rnn.gz baseline=test.baseline.seg rnn=test.rnn.seg

    OUT says which phrases the decoder used: it is what moses writes with -t, or with -tt, or an n-best list with
    -t or -include-segmentation-in-n-best, of which the best entry of every segment counts.

    It shows how much is won and lost in how many segments; what the second system does where the two differ, and how many
    right words each kind of change wins; the sums of the table's columns; and the segments that gained and lost most, with the
    columns of the phrases that differ.
    """
    from phrase_rescore.api import why
    from phrase_rescore.cli.terminal import byte_bar, say
    from phrase_rescore.evaluation.why_text import lines

    with byte_bar((table,), quiet, os.path.basename(table)) as bar:
        found = why(systems=systems, table=table, on_read=bar.update, **asked)
    for warning in found.warnings:
        say(f"warning: {warning}")
    click.echo("\n".join(lines(found)))
