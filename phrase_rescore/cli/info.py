"""Turn the options of ``phrase-rescore info`` into library calls."""

from __future__ import annotations

import os

import click

from phrase_rescore.cli import options
from phrase_rescore.cli.options import path_argument, path_option, quiet_option
from phrase_rescore.files.paths import Role


@options.command(short_help="Describe a phrase table or a model.")
@path_argument("path", role=Role.READ_EITHER, metavar="TABLE|MODEL_DIR")
@path_option(
    "-m", "--model", "model_dir", role=Role.READ_DIRECTORY, metavar="MODEL_DIR",
    help="Count the table's words that this model knows.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit with status 1 if some Moses program would mishandle a row.")
@click.option("--json", "as_json", is_flag=True, help="Write a JSON object.")
@quiet_option
def command(path: str, model_dir: str | None, strict: bool, as_json: bool, quiet: bool) -> None:
    """Describe TABLE ('-': standard input): rows, sources, targets, lengths, range of every score, order, columns of ours,
    and the rows that some Moses program would mishandle. Or describe MODEL_DIR, that of a language model
    too: signature, sizes, training, losses.

    \b
    phrase-rescore info phrase-table.gz
    phrase-rescore info phrase-table.gz -m phrase-rescore-model
    phrase-rescore info phrase-rescore-model
    set -o pipefail; zcat phrase-table.gz | phrase-rescore info - --strict

    The table is read once, some 100,000 rows a second. Memory grows with distinct words alone, so numbers of distinct
    phrases above 65,536 are estimates, right to 1 % ('about'). The number of sources is exact if the table is sorted.
    """
    import json

    from phrase_rescore.errors import OptionError, RescoreError

    def show(lines: list[str], value: object) -> None:
        click.echo(json.dumps(value, indent=2) if as_json else "\n".join(lines))

    if os.path.isdir(path):
        from phrase_rescore.info import model as model_report

        if model_dir is not None or strict:
            raise OptionError(f"{path} is a model directory; -m and --strict are for tables")
        directory = model_report.ModelDirectory.read(path)
        show(model_report.report(directory), model_report.as_object(directory))
        return

    from phrase_rescore.cli.terminal import byte_bar
    from phrase_rescore.data.coverage import coverage
    from phrase_rescore.info import table
    from phrase_rescore.info.survey import survey_table
    from phrase_rescore.moses.columns import read_sidecar
    from phrase_rescore.runtime import keep_freed_memory

    own, known = read_sidecar(path), None
    if model_dir is not None:
        from phrase_rescore.rnn.checkpoint import load

        model = load(model_dir)
    keep_freed_memory()
    with byte_bar((path,), quiet, os.path.basename(path)) as bar:
        found = survey_table(path, bar.update, lambda survey: bar.set_postfix_str(f"{survey.rows:,} rows", refresh=False))
    if model_dir is not None:
        vocabularies, counts = (model.src_vocab, model.tgt_vocab), (found.survey.src.words, found.survey.tgt.words)
        known = table.ModelCoverage(model_dir, model.signature, *map(coverage, counts, vocabularies, model.factors))
    show(table.report(found, own, known), table.as_object(found, own, known))
    if strict and (kinds := table.problems(found)):
        raise RescoreError(f"{found.table}: problems of {len(kinds)} {'kind' if len(kinds) == 1 else 'kinds'} (--strict)")
