"""The whole of ``report``: a table and a model in, one page out, and its pictures."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from phrase_rescore._version import __version__
from phrase_rescore.errors import OptionError, writing
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import is_stream
from phrase_rescore.report import sections
from phrase_rescore.report.charts import words_map
from phrase_rescore.report.maps import draw_maps
from phrase_rescore.report.page import page
from phrase_rescore.report.rows import LONG, SampleRows, TableReader
from phrase_rescore.report.sections import Targets
from phrase_rescore.report.theme import altair, picture
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import Scorer

SAMPLE = 50_000  # rows of which the page is made, unless others are asked for


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
    compared = None if checkpoint.inverse else Targets(rows)
    warnings = _warnings(model_dir, checkpoint, reader, rows)
    summary = sections.summary(rows, compared, reader, checkpoint)
    scores, scatter = sections.scores(rows, reader, checkpoint.sides)
    facts = {
        "path": table, "command": command, "version": __version__, "directory": model_dir, "long": LONG, "warnings": warnings,
        "phi": reader.phi, "log_p": reader.log_p, "summary": summary, "scores": scores,
        "frequency": sections.frequency(rows), "targets": None, "disagreements": None,
    }  # fmt: skip
    if compared is not None:
        on_step("drawing phrases from the model")
        facts |= {"targets": sections.targets(rows, checkpoint), "disagreements": sections.disagreements(compared)}
    on_step("laying out maps")
    maps = list(draw_maps(checkpoint, reader.long_sources))
    facts |= {"maps": maps, "coverage": sections.coverage(reader.sides, reader.rows, checkpoint.unk_shares)}
    charts = {"scatter": scatter} | {one.name: words_map(one.records, by_length=one.name == "phrases") for one in maps}
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
        with writing(figures, OptionError):
            os.makedirs(os.path.realpath(figures), exist_ok=True)  # a link may lead to what is not there yet
        for path, (spec, form) in pictures.items():
            with atomic_output(path) as stream:
                stream.write(picture(spec, form))
    return ReportSummary(len(rows), len(text), warnings)


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
