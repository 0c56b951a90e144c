"""The whole of ``report``: a table and a model in, one page out, and its pictures."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary
from phrase_rescore.errors import InputError, OptionError, cannot_write
from phrase_rescore.files.atomic import atomic_output, check_writable
from phrase_rescore.files.streams import display_name
from phrase_rescore.inference.phrase_vectors import PhraseEncoder, Side, word_embeddings
from phrase_rescore.inference.scorer import Scorer
from phrase_rescore.inference.translator import Proposal, Proposer
from phrase_rescore.models.checkpoint import LOG, Checkpoint
from phrase_rescore.report import sections, tables
from phrase_rescore.report.charts import MAP_HEIGHT
from phrase_rescore.report.findings import within
from phrase_rescore.report.page import page, readable
from phrase_rescore.report.projection import fitted, label_levels, method_for, project, room_for
from phrase_rescore.report.rows import ScoreColumns, find_columns, read_sources, sample_sources
from phrase_rescore.report.statistics import LONG, TableStatistics
from phrase_rescore.report.summary import Findings, Map, head
from phrase_rescore.report.theme import FULL, Spec, altair, picture
from phrase_rescore.training.log import ModelDirectory, read_runs

_SECTIONS = (
    sections.scores, sections.by_frequency, sections.by_length, tables.targets,
    tables.differences, sections.maps, tables.coverage, sections.training, sections.made,
)  # fmt: skip
MAPPED_WORDS, MAPPED_PHRASES = 1000, 700
_FEWEST_MAPPED = 3
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


def _nothing(what: str) -> None:
    pass


def report(options: Options, on_read: Callable[[int], object] | None = None, on_step: Step = _nothing) -> Findings:
    """Writes the page, and the pictures if asked for; ``on_step`` hears what is being done.

    Raises InputError for a table that cannot be read, ModelError for a model directory that cannot, OptionError where a
    library is missing or there is no writing.
    """
    altair()
    if options.table == "-":
        raise OptionError("report reads its table more than once; name a file")
    check_writable(options.out)
    model = ModelDirectory.read(options.model_dir)
    columns = find_columns(options.table, model.checkpoint, options.phi_column)
    on_step("reading the table")
    statistics, rows, sources = _gather(options, model.checkpoint, columns, on_read, on_step)
    if not rows:
        raise InputError(display_name(options.table), "is empty", "pass a phrase table")
    chosen = tables.choose(statistics)
    on_step("drawing phrases from the model")
    proposals = _proposals(model.checkpoint, [source.src for listed in chosen for source in listed])
    on_step("laying out maps")
    maps = _maps(model.checkpoint, statistics)
    log = os.path.join(options.model_dir, LOG)
    run = read_runs([options.model_dir])[0] if os.path.exists(log) and os.path.getsize(log) else None
    found = Findings(
        options.table, options.command, columns, statistics, model, rows, sources, chosen, proposals, maps, run,
        _warnings(options, model.checkpoint, columns, statistics, rows),
    )  # fmt: skip
    on_step("writing the page")
    parts = [make(found) for make in _SECTIONS]
    with atomic_output(options.out) as stream:
        stream.write(page(f"Report on {os.path.basename(options.table)}", head(found), parts))
    if options.figures is not None:
        on_step("writing pictures")
        _draw({name: spec for part in parts for name, spec in part.specs.items()}, options.figures)
    return found


def _gather(
    options: Options, checkpoint: Checkpoint, columns: ScoreColumns, on_read: Callable[[int], object] | None, on_step: Step
) -> tuple[TableStatistics, int, int]:
    """The statistics, and how many rows and sources the table has."""
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
    options: Options, checkpoint: Checkpoint, columns: ScoreColumns, statistics: TableStatistics, rows: int
) -> list[str]:
    said = []
    if columns.log_p is None:
        of_all = "all its rows were" if statistics.rows == rows else (
            f"a sample was, {statistics.rows:,} of its {rows:,} rows (all rows of {statistics.sources:,} sources)"
        )  # fmt: skip
        said.append(f"The table has no score of a model: {of_all} scored for this page. Annotate it to see all of it.")
    elif not columns.signature:
        said.append(
            f"No .columns.json says whose scores the table has; column {columns.log_p} looks like a model’s and is taken "
            f"for one of {options.model_dir}."
        )
    elif columns.signature != checkpoint.signature:
        said.append(
            f"The table’s scores are of another model ({columns.signature}) than {options.model_dir}: charts and tables of "
            "scores show that one, drawn phrases, maps, words and training this one."
        )
    if checkpoint.inverse:
        said.append(
            "An inverse model: the targets of a source are not compared, since p(source | target) does not share itself out "
            "among them."
        )
    return said


def _proposals(checkpoint: Checkpoint, sources: Sequence[bytes]) -> dict[bytes, list[Proposal]]:
    if not sources:
        return {}
    return dict(zip(sources, Proposer(checkpoint).samples(sources, tables.DRAWN, _SEED), strict=True))


def _maps(checkpoint: Checkpoint, statistics: TableStatistics) -> list[Map]:
    """Words of both sides and, of a model that reads sources, long sources."""
    maps = []
    sides: tuple[tuple[Side, Vocabulary], ...] = (("source", checkpoint.src_vocab), ("target", checkpoint.tgt_vocab))
    for side, vocabulary in sides:
        words, counts = vocabulary.words[:MAPPED_WORDS], vocabulary.counts[:MAPPED_WORDS]
        vectors = word_embeddings(checkpoint, side)[FIRST_WORD : FIRST_WORD + len(words)]
        said = f"The embeddings of the {len(words):,} most frequent {side} words."
        maps.append(_map(f"{side}-words", f"{side.capitalize()} words", said, words, counts, vectors))
    if not checkpoint.inverse:
        listed = dict(statistics.long_sources.ranked())
        kept = within(listed, MAPPED_PHRASES)
        said = (
            f"The vectors c of the {len(kept):,} most frequent sources of {LONG} words and more; of sources within each other "
            "the most frequent one."
        )
        vectors = PhraseEncoder(checkpoint).vectors(kept)
        maps.append(_map("phrases", "Phrases", said, kept, [listed[phrase] for phrase in kept], vectors))
    return [one for one in maps if len(one.records) >= _FEWEST_MAPPED]


def _map(name: str, title: str, said: str, phrases: Sequence[bytes], counts: Sequence[float], vectors: Any) -> Map:
    if len(phrases) < _FEWEST_MAPPED:
        return Map(name, title, said, [], "")
    labels = [readable(phrase) for phrase in phrases]
    places = fitted(project(np.asarray(vectors), _SEED), FULL - min(room_for(labels), FULL / 4), MAP_HEIGHT)
    levels = label_levels(places, labels)
    records = [
        {"x": round(float(x), 2), "y": round(float(y), 2), "label": label, "level": int(level), "count": float(count),
         "words": phrase.count(b" ") + 1}
        for (x, y), label, level, count, phrase in zip(places, labels, levels, counts, phrases, strict=True)
    ]  # fmt: skip
    return Map(name, title, said, records, method_for(len(phrases)))


def _draw(specs: dict[str, Spec], directory: str) -> None:
    """NAME.png and NAME.svg of every chart. Raises OptionError if there is no writing there."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise OptionError(cannot_write(directory, error)) from None
    for name, spec in specs.items():
        for form in ("png", "svg"):
            with atomic_output(os.path.join(directory, f"{name}.{form}")) as stream:
                stream.write(picture(spec, form))
