"""Turn the options of ``phrase-rescore info`` into library calls."""

import os

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role


@options.command(short_help="Describe a phrase table, a model or a moses.ini.")
@path_argument("path", role=Role.READ_EITHER, metavar="TABLE|MODEL_DIR|INI")
@path_option(
    "-m", "--model", "model_dir", role=Role.READ_DIRECTORY, metavar="MODEL_DIR",
    help="Count the table's words that this model knows.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with status 1 if some Moses program would mishandle a row, or INI.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object.")
@quiet_option
def command(path: str, model_dir: str | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Describe TABLE ('-': standard input): rows, sources, targets, lengths, range of every score, order, columns of ours,
    and the rows that some Moses program would mishandle. Or describe MODEL_DIR, that of a language model
    too: signature, sizes, training, losses. Or check INI, a moses.ini: whether the files are there, paths are absolute,
    and the numbers of scores in the ini, of weights and of scores in the tables agree.

    \b
    phrase-rescore info phrase-table.gz
    phrase-rescore info phrase-table.gz -m phrase-rescore-model
    phrase-rescore info phrase-rescore-model
    phrase-rescore info moses.ini
    set -o pipefail; zcat phrase-table.gz | phrase-rescore info - --strict

    The table is read once, some 100,000 rows a second. Memory grows with distinct words alone, so numbers of distinct
    phrases above 65,536 are estimates, right to 1 % ('about'). The number of sources is exact if the table is sorted.
    """
    import json

    from phrase_rescore.api import info
    from phrase_rescore.cli.terminal import byte_bar

    with byte_bar((path,), quiet or os.path.isdir(path), os.path.basename(path)) as bar:
        found = info(
            path, model_dir, strict=strict, on_read=bar.update,
            on_rows=lambda rows: bar.set_postfix_str(f"{rows:,} rows", refresh=False),
        )  # fmt: skip
    click.echo(json.dumps(found.as_object(), indent=2) if as_json else "\n".join(found.lines()))
    if strict:
        found.check()
