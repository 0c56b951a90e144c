"""The whole of ``report``: a table and a model in, one page out, and its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from phrase_rescore._version import __version__
from phrase_rescore.errors import OptionError, cannot_write
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import is_stream
from phrase_rescore.nn.storage import LOG
from phrase_rescore.pages.page import page
from phrase_rescore.pages.theme import Spec, altair, picture
from phrase_rescore.report import sections
from phrase_rescore.report.maps import draw_maps
from phrase_rescore.report.rows import ReportColumns, find_columns, read_sources, sample_sources
from phrase_rescore.report.sections import Section
from phrase_rescore.report.statistics import LONG, TableStatistics
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.rnn.translator import Translator
from phrase_rescore.training.log import read_run

_SEED = 1


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    table: str
    model_dir: str
    out: str
    figures: str | None = None  # directory
    phi_column: int | None = None  # from 1; None: the usual place
    sample: int = 50_000  # rows to score of a table that has no score of a model
    command: str = ""


Step = Callable[[str], object]


@dataclass(frozen=True)
class Report:
    """What was written."""

    rows: int  # whose scores the page shows
    size: int  # of the page, in bytes
    warnings: list[str]


def report(options: Options, on_read: Callable[[int], object] | None = None, on_step: Step = lambda what: None) -> Report:
    """Write the page, and the pictures if a directory is named; ``on_step`` hears what is being done.

    Raises InputError for a table that cannot be read, ModelError for a model directory that cannot, OptionError where a
    library is missing or an output cannot be written.
    """
    altair()
    if is_stream(options.table):
        raise OptionError("ANNOTATED_TABLE is read more than once; name a file")
    checkpoint = load(options.model_dir)
    columns = find_columns(options.table, checkpoint, options.phi_column)
    on_step("reading the table")
    statistics, rows, sources = _gather(options, checkpoint, columns, on_read, on_step)
    warnings = _warnings(options, checkpoint, columns, statistics, rows)
    parts = _sections(options, checkpoint, statistics, on_step)
    of = f"{rows:,} rows of {sources:,} sources"
    if columns.log_p is None:
        of = f"{statistics.rows:,} of {rows:,} rows (all those of {statistics.sources:,} of {sources:,} sources)"
    facts = {name: section.facts for name, section in parts.items()} | {
        "summary": sections.summary(statistics, checkpoint)
        | {"table": options.table, "rows": rows, "sources": sources, "warnings": warnings},
        "made": {
            "command": options.command, "version": __version__, "table": options.table, "read": of, "columns": columns,
            "directory": options.model_dir, "signature": checkpoint.signature,
        },
        "long": LONG,
    }  # fmt: skip
    charts = {name: spec for section in parts.values() for name, spec in section.charts.items()}
    text = page("report", f"Report on {os.path.basename(options.table)}", charts, facts)
    pictures = _pictures(charts, options.figures) if options.figures is not None else {}
    if os.path.realpath(options.out) in map(os.path.realpath, pictures):
        raise OptionError(f"-o {options.out} is a picture of --figures {options.figures}; name another file")
    on_step("writing the page")
    with atomic_output(options.out) as stream:
        stream.write(text)
    if options.figures is not None:
        on_step("writing pictures")
        _draw(pictures, options.figures)
    return Report(statistics.rows, len(text), warnings)


def _sections(options: Options, checkpoint: Checkpoint, statistics: TableStatistics, on_step: Step) -> dict[str, Section]:
    """The sections by the names that the template knows them by, in the page's order."""
    sides = checkpoint.sides
    parts = {
        "scores": sections.scores(statistics, sides),
        "frequency": sections.frequency(statistics),
        "length": sections.length(statistics, sides),
        "targets": Section(None),
        "disagreements": Section(None),
    }
    if statistics.grouped:
        chosen = sections.choose(statistics)
        on_step("drawing phrases from the model")
        phrases = [source.src for listed in chosen for source in listed]
        samples = Translator(checkpoint).samples(phrases, sections.DRAWN, _SEED) if phrases else []
        drawn = dict(zip(phrases, samples, strict=True))
        parts |= {"targets": sections.targets(chosen, drawn), "disagreements": sections.disagreements(statistics)}
    on_step("laying out maps")
    maps = draw_maps(checkpoint, dict(statistics.long_sources.ranked()))
    log = os.path.join(options.model_dir, LOG)
    run = read_run(options.model_dir) if os.path.exists(log) and os.path.getsize(log) else None
    return parts | {
        "maps": sections.maps(maps),
        "coverage": sections.coverage(statistics.coverage, statistics.rows, checkpoint.unk_shares),
        "training": sections.training(run),
    }


def _gather(
    options: Options, checkpoint: Checkpoint, columns: ReportColumns, on_read: Callable[[int], object] | None, on_step: Step
) -> tuple[TableStatistics, int, int]:
    """Take the statistics; also return how many rows and sources the table has."""
    statistics = TableStatistics(checkpoint, grouped=not checkpoint.inverse)
    parts = read_sources(options.table, columns, on_read)
    if columns.log_p is not None:
        for rows in parts:
            statistics.add(rows)
        return statistics, statistics.rows, statistics.sources
    sample, n_rows, n_sources = sample_sources(parts, options.sample)
    on_step(f"scoring {len(sample):,} rows")
    scorer = Scorer(checkpoint)
    statistics.add(sample.scored(scorer.log_probs(scorer.encode_phrases(sample.src, sample.tgt))))
    return statistics, n_rows, n_sources


def _warnings(
    options: Options, checkpoint: Checkpoint, columns: ReportColumns, statistics: TableStatistics, rows: int
) -> list[str]:
    said = []
    if columns.log_p is None:
        of_all = "all its rows were" if statistics.rows == rows else (
            f"a sample was, {statistics.rows:,} of its {rows:,} rows (all rows of {statistics.sources:,} sources)"
        )  # fmt: skip
        said.append(f"The table has no score of a model: {of_all} scored for this page. Annotate it to see all of it.")
    elif not columns.log_p.model:
        said.append(
            f"No .columns.json says whose scores the table has; column {columns.log_p.number} looks like a model’s and is "
            f"taken to be that of {options.model_dir}."
        )
    elif columns.log_p.model != checkpoint.signature:
        said.append(
            f"The table’s scores are of another model ({columns.log_p.model}) than {options.model_dir}: charts and tables of "
            "scores show that one, drawn phrases, maps, words and training this one."
        )
    if checkpoint.inverse:
        said.append(
            "An inverse model: the targets of a source are not compared, since p(source | target) does not sum to 1 over them."
        )
    return said


def _pictures(specs: dict[str, Spec], directory: str) -> dict[str, tuple[Spec, str]]:
    """Name the pictures of every chart, NAME.png and NAME.svg: by path, what is drawn and the format."""
    forms = ("png", "svg")
    return {os.path.join(directory, f"{name}.{form}"): (spec, form) for name, spec in specs.items() for form in forms}


def _draw(pictures: dict[str, tuple[Spec, str]], directory: str) -> None:
    """Write the pictures. Raises OptionError if the directory cannot be written."""
    try:
        os.makedirs(os.path.realpath(directory), exist_ok=True)  # a link may lead to what is not there yet
    except OSError as error:
        raise OptionError(cannot_write(directory, error)) from None
    for path, (spec, form) in pictures.items():
        with atomic_output(path) as stream:
            stream.write(picture(spec, form))
