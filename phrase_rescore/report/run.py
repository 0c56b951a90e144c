"""The whole of ``report``: a table and a model in, one page out, and its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phrase_rescore._version import __version__
from phrase_rescore.errors import OptionError, writing
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import is_stream
from phrase_rescore.report import sections
from phrase_rescore.report.maps import draw_maps
from phrase_rescore.report.page import page
from phrase_rescore.report.rows import LONG, SampleRows, TableReader
from phrase_rescore.report.sections import Section
from phrase_rescore.report.statistics import Targets
from phrase_rescore.report.theme import Spec, altair, picture
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.rnn.translator import Translator

SAMPLE = 50_000  # rows of which the page is made, unless others are asked for
_SEED = 1


@dataclass(frozen=True)
class ReportSummary:
    """What was written."""

    rows: int  # whose scores the page shows
    size: int  # of the page, in bytes
    warnings: list[str]


def report(
    table: str, model_dir: str, out: str, figures: str | None = None, phi_column: int | None = None, sample: int = SAMPLE,
    command: str = "",
    on_read: Callable[[int], object] | None = None, on_step: Callable[[str], object] = lambda what: None,
) -> ReportSummary:  # fmt: skip
    """Write the page, and the pictures if a directory is named; ``on_step`` hears what is being done.

    ``phi_column`` counts from 1; None: the usual place. ``sample``: rows of which the page is made. ``command``: the line that
    asked, for the page.

    Raises InputError for a table that cannot be read, ModelError for a model directory that cannot, OptionError where a
    library is missing or an output cannot be written.
    """
    altair()
    if is_stream(table):
        raise OptionError("ANNOTATED_TABLE is read more than once; name a file")
    if figures is not None and os.path.realpath(figures) == os.path.realpath(model_dir):
        raise OptionError(f"--figures {figures} is the directory of -m; name another for the pictures")
    checkpoint = load(model_dir)
    reader = TableReader(table, checkpoint, phi_column, sample)
    on_step("reading the table")
    rows = reader.read(on_read)
    if reader.log_p is None:
        on_step(f"scoring {len(rows):,} rows")
        scorer = Scorer(checkpoint)
        rows.log_p = scorer.log_probs(scorer.encode_phrases(list(rows.src), list(rows.tgt)))
    targets = None if checkpoint.inverse else Targets(rows)
    warnings = _warnings(model_dir, checkpoint, reader, rows)
    parts = _sections(checkpoint, reader, rows, targets, on_step)
    facts = {name: section.facts for name, section in parts.items()} | {
        "summary": sections.summary(rows, targets, reader, checkpoint)
        | {"table": table, "rows": reader.rows, "sources": reader.sources, "warnings": warnings},
        "made": {
            "command": command, "version": __version__, "table": table,
            "read": f"{reader.rows:,} rows of {reader.sources:,} sources",
            "phi": reader.phi, "log_p": reader.log_p, "directory": model_dir,
            "signature": checkpoint.signature,
        },
        "long": LONG,
    }  # fmt: skip
    charts = {name: spec for section in parts.values() for name, spec in section.charts.items()}
    text = page(f"Report on {os.path.basename(table)}", charts, facts)
    pictures = {} if figures is None else {
        os.path.join(figures, f"{name}.{form}"): (spec, form) for name, spec in charts.items() for form in ("png", "svg")
    }  # fmt: skip
    if os.path.realpath(out) in map(os.path.realpath, pictures):
        raise OptionError(f"-o {out} is a picture of --figures {figures}; name another file")
    on_step("writing the page")
    with atomic_output(out) as stream:
        stream.write(text)
    if figures is not None:
        on_step("writing pictures")
        _draw(pictures, figures)
    return ReportSummary(len(rows), len(text), warnings)


def _sections(
    checkpoint: Checkpoint, reader: TableReader, rows: SampleRows, targets: Targets | None, on_step: Callable[[str], object]
) -> dict[str, Section]:
    """The sections by the names that the template knows them by, in the page's order."""
    parts = {
        "scores": sections.scores(rows, reader, checkpoint.sides),
        "frequency": sections.frequency(rows),
        "targets": Section(None),
        "disagreements": Section(None),
    }
    if targets is not None:
        chosen = sections.choose(rows)
        on_step("drawing phrases from the model")
        phrases = [bytes(source.src[0]) for listed in chosen for source in listed]
        samples = Translator(checkpoint).samples(phrases, sections.DRAWN, _SEED) if phrases else []
        drawn = dict(zip(phrases, samples, strict=True))
        parts |= {"targets": sections.targets(chosen, drawn), "disagreements": sections.disagreements(targets)}
    on_step("laying out maps")
    return parts | {
        "maps": sections.maps(list(draw_maps(checkpoint, reader.long_sources))),
        "coverage": sections.coverage(reader.sides, reader.rows, checkpoint.unk_shares),
    }


def _warnings(model_dir: str, checkpoint: Checkpoint, reader: TableReader, rows: SampleRows) -> list[str]:
    said = []
    if reader.log_p is None:
        of_all = "all its rows were" if len(rows) == reader.rows else (
            f"a sample was, {len(rows):,} of its {reader.rows:,} rows (all rows of {len(rows.starts):,} sources)"
        )  # fmt: skip
        said.append(f"The table has no score of a model: {of_all} scored for this page. Annotate it to see all of it.")
    elif not reader.log_p.model:
        said.append(
            f"No .columns.json says whose scores the table has; column {reader.log_p.number} looks like a model’s and is "
            f"taken to be that of {model_dir}."
        )
    elif reader.log_p.model != checkpoint.signature:
        said.append(
            f"The table’s scores are of another model ({reader.log_p.model}) than {model_dir}: charts and tables of scores "
            "show that one, drawn phrases, maps and words this one."
        )
    if checkpoint.inverse:
        said.append(
            "An inverse model: the targets of a source are not compared, since p(source | target) does not sum to 1 over them."
        )
    return said


def _draw(pictures: Mapping[str, tuple[Spec, str]], directory: str) -> None:
    """Write the pictures. Raises OptionError if the directory cannot be written."""
    with writing(directory, OptionError):
        os.makedirs(os.path.realpath(directory), exist_ok=True)  # a link may lead to what is not there yet
    for path, (spec, form) in pictures.items():
        with atomic_output(path) as stream:
            stream.write(picture(spec, form))
