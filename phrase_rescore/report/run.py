"""The whole of ``report``: a table and a model in, one page out; where words stand on its maps."""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore._version import __version__
from phrase_rescore.data.vocabulary import FIRST_WORD, Vocabulary
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import Path, is_stream
from phrase_rescore.messages import Progress, Say, silent
from phrase_rescore.moses.columns import MIN_LOG_P, sidecar_path
from phrase_rescore.moses.table import read_table
from phrase_rescore.moses.text import readable
from phrase_rescore.report import sections
from phrase_rescore.report.charts import FULL, MAP_HEIGHT, Records, altair, words_map
from phrase_rescore.report.page import page
from phrase_rescore.report.rows import LONG, SampleRows, TableReader
from phrase_rescore.report.sections import Targets
from phrase_rescore.report.training import draw_training, training_chart
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import PhraseEncoder, Scorer, Side, word_embeddings
from phrase_rescore.runtime import prepare

_SAME = 0.01  # nats between a score and what few digits of it say


@dataclass(frozen=True)
class ReportSummary:
    """What was written."""

    rows: int | None  # whose scores the page shows; None of a training
    size: int  # of the page or picture, in bytes
    warnings: list[str]


def report(
    table: Path | None, model_dir: Path, out: Path = "report.html", *, phi_column: int | None = None, sample: int = 50_000,
    threads: int | None = None, command: str = "", on_read: Progress | None = None, on_step: Say = silent,
) -> ReportSummary:  # fmt: skip
    """Write one HTML page that sets the model's scores against the table's, as ``phrase-rescore report`` does.

    Without a table, draw the losses of a training, of any kind of model, as ``out``, .png or .svg.
    ``sample`` is the number of rows that the page shows, ``command`` the line that it quotes. ``on_step`` gets the name of
    each step. Raises InputError and ModelError for a table, log or model that cannot be read, OptionError where a library is
    missing.
    """
    prepare(threads)
    model_dir, out = os.fspath(model_dir), os.fspath(out)
    altair()
    if table is None:
        return ReportSummary(None, draw_training(model_dir, out), [])
    table = os.fspath(table)
    if is_stream(table):
        raise OptionError("ANNOTATED_TABLE is read more than once; name a file")
    checkpoint = load(model_dir)
    reader = TableReader(table, checkpoint, phi_column, sample)
    scorer = Scorer(checkpoint)
    if reader.log_p is None:
        _check_phi(reader, scorer)
    on_step("reading the table")
    rows = reader.read(on_read)
    if reader.log_p is None:
        on_step(f"scoring {len(rows):,} rows")
        rows.log_p = scorer.log_probs(scorer.encode_phrases(list(rows.src), list(rows.tgt)))
    compared = None if checkpoint.inverse else Targets(rows)
    warnings = list(_warnings(model_dir, checkpoint, reader, rows))
    scores, scatter = sections.scores(rows, reader.rows, checkpoint.sides)
    facts = {
        "path": table, "command": command, "version": __version__, "directory": model_dir, "long": LONG, "warnings": warnings,
        "reader": reader, "checkpoint": checkpoint, "sections": sections, "scores": scores, "targets": None,
        "disagreements": None, "summary": sections.summary(rows, compared, reader.sides, checkpoint),
    }  # fmt: skip
    if compared is not None:
        on_step("drawing phrases from the model")
        facts |= {"targets": sections.targets(rows, checkpoint), "disagreements": sections.disagreements(compared)}
    on_step("laying out maps")
    maps = list(draw_maps(checkpoint, reader.long_sources))
    facts |= {"maps": maps, "coverage": sections.coverage(reader.sides, checkpoint.unk_shares)}
    charts = {"scatter": scatter} | {one["name"]: words_map(one["records"]) for one in maps}
    with contextlib.suppress(InputError):  # a model needs no log
        charts["losses"] = training_chart(model_dir)
    text = page(f"Report on {os.path.basename(table)}", charts, facts)
    on_step("writing the page")
    with atomic_output(out) as stream:
        stream.write(text)
    return ReportSummary(len(rows), len(text), warnings)


def _check_phi(reader: TableReader, scorer: Scorer) -> None:
    """Raise InputError if the column of φ has the model's scores."""
    rows = next(read_table(reader.table, len(reader.columns), block_rows=100))
    log_p = np.maximum(scorer.log_probs(scorer.encode_phrases(rows.src, rows.tgt)), MIN_LOG_P)
    logs = np.maximum(reader.columns.logs(rows.values(len(reader.columns))), MIN_LOG_P)
    apart = np.abs(logs[:, reader.phi.number - 1] - log_p)
    if apart.max() < _SAME < np.ptp(log_p):
        found = f"column {reader.phi.number} has the scores of this model, and is taken for φ of the table"
        hint = f"put {sidecar_path(reader.table)} beside the table, or name the column of φ with --phi-column"
        raise InputError(reader.table, found, hint)


def _warnings(model_dir: str, checkpoint: Checkpoint, reader: TableReader, rows: SampleRows) -> Iterator[str]:
    if doubt := reader.columns.doubt:
        yield f"{doubt}: they are not used"
    if reader.log_p is None:
        sample = f"a sample was, {len(rows):,} of its {reader.rows:,} rows (all rows of {len(rows.starts):,} sources)"
        of_all = "all its rows were" if len(rows) == reader.rows else sample
        yield f"The table has no score of a model: {of_all} scored for this page. Annotate the table to see all rows."
    elif reader.log_p.added and reader.log_p.added.model != checkpoint.signature:
        found = f"The table’s scores are of another model ({reader.log_p.added.model}) than {model_dir}"
        yield f"{found}: charts and tables of scores show that one, drawn phrases, maps and words this one."
    if checkpoint.inverse:
        why = "since p(source | target) does not sum to 1 over them"
        yield f"An inverse model: the targets of a source are not compared, {why}."


MAPPED_WORDS, MAPPED_PHRASES = 1000, 700
LEVELS = 6  # of zoom, each twice as near as the one before
_FEWEST = 3  # vectors of a map
_FEWEST_TSNE = 30  # vectors that have neighbourhoods worth drawing
_CHARACTER, _LINE, _GAP = 6.6, 14.0, 6.0  # pixels of a label
_MARGIN = 0.04
_SEED = 1

Floats = NDArray[Any]


def draw_maps(checkpoint: Checkpoint, long_sources: Mapping[bytes, float]) -> Iterator[dict[str, Any]]:
    """Map the words of both sides and, of a model that reads sources, the most frequent of its ``long_sources``."""
    sides: tuple[tuple[Side, Vocabulary], ...] = ("source", checkpoint.src_vocab), ("target", checkpoint.tgt_vocab)
    for side, vocabulary in sides:
        words, counts = vocabulary.words[:MAPPED_WORDS], vocabulary.counts[:MAPPED_WORDS]
        vectors = word_embeddings(checkpoint, side)[FIRST_WORD : FIRST_WORD + len(words)]
        yield from _drawn(f"{side}-words", f"{side.capitalize()} words", words, counts, vectors)
    if not checkpoint.inverse:
        kept = sorted(long_sources, key=lambda phrase: (-long_sources[phrase], phrase))[:MAPPED_PHRASES]
        vectors = PhraseEncoder(checkpoint).vectors(checkpoint.as_read(kept))
        yield from _drawn("phrases", "Phrases", kept, [long_sources[phrase] for phrase in kept], vectors)


def _drawn(name: str, title: str, phrases: Sequence[bytes], counts: Sequence[float], vectors: Floats) -> Records:
    if len(phrases) < _FEWEST:
        return []
    labels = [readable(phrase) for phrase in phrases]
    places = project(vectors)
    low, high = places.min(axis=0), places.max(axis=0)
    share = (places - low) / np.where(high > low, high - low, 1.0)
    room = min(_GAP + _CHARACTER * max(map(len, labels)), FULL / 4)  # for labels, right of the last points
    places = (_MARGIN + (1 - 2 * _MARGIN) * share) * np.array([FULL - room, MAP_HEIGHT])
    levels = label_levels(places, labels)
    records = [
        {"x": round(float(x), 2), "y": round(float(y), 2), "label": label, "level": int(level), "count": float(count)}
        for (x, y), label, level, count in zip(places, labels, levels, counts, strict=True)
    ]  # fmt: skip
    return [{"name": name, "title": title, "records": records}]


def project(vectors: Floats) -> Floats:
    """Lay out vectors (n, d): places (n, 2) where near ones are near, by cosine distance; few ones by their main axes."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.asarray(vectors / np.where(norms > 0, norms, 1.0), np.float64)
    if len(unit) < _FEWEST_TSNE:
        u, s, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
        places = np.zeros((len(unit), 2))
        places[:, : min(2, len(s))] = (u * s)[:, :2]
        return places
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's, which concern nobody here
        from openTSNE import TSNE

        perplexity = min(30.0, (len(unit) - 1) / 3)
        tsne = TSNE(
            perplexity=perplexity, initialization="pca", neighbors="exact", negative_gradient_method="bh", random_state=_SEED,
            n_jobs=1,  # two threads are slower where other programs run, and its results depend on their number
        )  # fmt: skip
        return np.asarray(tsne.fit(unit))


def label_levels(places: Floats, labels: Sequence[str]) -> NDArray[np.int64]:
    """Find the zoom (0, 1, …) from which on each label has room beside its point in ``places`` (n, 2), in pixels.

    0 is the whole map, 1 twice as near. Earlier labels come first. A label that never has room gets LEVELS.
    """
    levels = np.full(len(labels), LEVELS, np.int64)
    widths = np.array([_CHARACTER * len(label) + _GAP for label in labels])
    for level in range(LEVELS):
        scale = 0.5**level
        left, right = places[:, 0], places[:, 0] + (widths + _GAP) * scale
        for i in np.flatnonzero(levels == LEVELS).tolist():
            there = levels <= level
            apart = (left[there] > right[i]) | (right[there] < left[i])
            if (apart | (np.abs(places[there, 1] - places[i, 1]) > _LINE * scale)).all():
                levels[i] = level
    return levels
