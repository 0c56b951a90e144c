"""The commands as functions: what ``import phrase_rescore`` offers to programs, without a command line.

Every function raises the exceptions of ``phrase_rescore.errors`` and writes nothing to standard output or standard error. Those
that compute set torch's threads and treatment of denormal numbers for the process. ``on_read`` gets the bytes of each read.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from phrase_rescore.errors import InputError, ModelError, OptionError, RescoreError, RowError
from phrase_rescore.files.paths import Path, beside, check_apart
from phrase_rescore.lm.config import PRESETS as LM_PRESETS
from phrase_rescore.messages import Progress, Say, silent
from phrase_rescore.moses.columns import ColumnFormat
from phrase_rescore.nmt.config import PRESETS as NMT_PRESETS
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.runtime import prepare, prepare_parts, resolve_device
from phrase_rescore.training.config import AnySettings, Observer

if TYPE_CHECKING:
    from phrase_rescore.annotation.annotator import Statistics
    from phrase_rescore.annotation.record import AnnotateObserver, Summary
    from phrase_rescore.annotation.strip import strip
    from phrase_rescore.evaluation.run import evaluate
    from phrase_rescore.info.run import info as info  # not in __all__, nor is report: the package has folders of these names
    from phrase_rescore.lm.nplm import export_lm
    from phrase_rescore.lm.scorer import TextModel, load_lm
    from phrase_rescore.moses.rewrite_ini import moses_ini
    from phrase_rescore.queries.embed import embed
    from phrase_rescore.queries.generate import generate
    from phrase_rescore.queries.score import score, score_lm
    from phrase_rescore.report.run import report as report
    from phrase_rescore.rescoring.run import RescoreSummary
    from phrase_rescore.rescoring.tune import TuneSummary
    from phrase_rescore.rnn.model import Model, load
    from phrase_rescore.rnn.translator import Hypothesis

__all__ = [
    "LM_PRESETS", "NMT_PRESETS", "PRESETS", "AnnotateObserver", "ColumnFormat", "Hypothesis", "InputError", "Model",
    "ModelError", "OptionError", "RescoreError", "RowError", "Statistics", "Summary", "TextModel", "annotate",
    "embed", "evaluate", "export_lm", "generate", "load", "load_lm", "moses_ini", "rescore", "score", "score_lm", "strip",
    "train", "train_lm", "train_nmt", "tune",
]  # fmt: skip

_IN_ROOMS = {  # names that are used as they are, and their modules: a command imports what it needs, and no more
    "AnnotateObserver": "annotation.record", "Hypothesis": "rnn.translator", "Model": "rnn.model",
    "Statistics": "annotation.annotator", "Summary": "annotation.record", "TextModel": "lm.scorer", "embed": "queries.embed",
    "evaluate": "evaluation.run", "export_lm": "lm.nplm", "generate": "queries.generate", "info": "info.run",
    "load": "rnn.model", "load_lm": "lm.scorer", "moses_ini": "moses.rewrite_ini", "report": "report.run",
    "score": "queries.score", "score_lm": "queries.score", "strip": "annotation.strip",
}  # fmt: skip

Paths = Path | Sequence[Path]


def __getattr__(name: str) -> object:
    """Import a name of the rooms when it is first used."""
    if name not in _IN_ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"phrase_rescore.{_IN_ROOMS[name]}"), name)


def train(
    inputs: Paths, model_dir: Path, *, preset: str | None = None, observer: Observer | None = None, **settings: Any
) -> dict[str, Any]:
    """Train a model on the distinct pairs of phrase tables, extract files or TSV, as ``phrase-rescore train`` does.

    ``settings`` are those of ``TrainingConfig``, by the names of the command's options (max_steps=200, hidden=100, ...); a
    duration is in seconds, a size in bytes. Without inputs, ``resume`` and ``finish`` take them and the settings that are not
    given from the interrupted training. Returns the training summary that the model's config.json has. Raises TypeError for
    an unknown setting, InputError or OptionError, RescoreError if a loss is not finite or a file cannot be written.
    """
    from phrase_rescore.rnn.train import train_pairs

    named, config = _configured(PRESETS, inputs, model_dir, preset, settings)
    return train_pairs(named, os.fspath(model_dir), config, observer).training


def train_lm(
    inputs: Paths, model_dir: Path, *, preset: str | None = None, observer: Observer | None = None, **settings: Any
) -> dict[str, Any]:
    """Train a language model on tokenized text, a sentence a line, as ``phrase-rescore train-lm`` does.

    ``settings``: those of ``LanguageModelConfig``, by option names, durations in seconds. Returns and raises as ``train`` does.
    """
    from phrase_rescore.lm.train import train_text

    named, config = _configured(LM_PRESETS, inputs, model_dir, preset, settings)
    return train_text(named, os.fspath(model_dir), config, observer).training


def train_nmt(
    inputs: Paths, model_dir: Path, *, preset: str | None = None, observer: Observer | None = None, **settings: Any
) -> dict[str, Any]:
    """Train a translation model on source and target of a bitext, a sentence a line, as ``phrase-rescore train-nmt`` does.

    ``settings``: those of ``TranslationConfig``, by option names, durations in seconds. Returns and raises as ``train`` does.
    """
    from phrase_rescore.nmt.train import train_sentences

    named, config = _configured(NMT_PRESETS, inputs, model_dir, preset, settings)
    return train_sentences(named, os.fspath(model_dir), config, observer).training


def _configured(
    presets: Mapping[str, AnySettings], inputs: Paths, model_dir: Path, preset: str | None, settings: dict[str, Any]
) -> tuple[tuple[str, ...], AnySettings]:
    """Return the inputs and settings of a training; those of the interrupted one if no inputs are given."""
    named = _paths(inputs)
    if named:
        config = presets[preset or "default"].override(**settings)
    elif settings.get("resume") or settings.get("finish"):
        from phrase_rescore.training.state import TrainingState

        state = TrainingState(beside(os.fspath(model_dir), "training"), {})
        command = state.last_command()
        before = {name: tuple(value) if isinstance(value, list) else value for name, value in command["settings"].items()}
        with state.restoring("command"):
            presets[command["preset"]].override(**before)
        named, config = tuple(command["inputs"]), presets[preset or command["preset"]].override(**before | settings)
    else:
        raise OptionError("no file to train on is given; only --resume and --finish do without")
    _check_paths(named, os.fspath(model_dir), config.settings())
    return named, config


def _check_paths(inputs: Sequence[str], model_dir: str, settings: Mapping[str, Any]) -> None:
    """Raise OptionError if something that a training reads would be replaced by what it makes, or two things that it makes."""
    reads = [("INPUT", path) for path in inputs]
    for name in ("source_vocab", "target_vocab", "vocab", "scratch"):
        if settings.get(name):
            reads.append((f"--{name.replace('_', '-')}", settings[name]))
    data = "text" if "text_dir" in settings else "pairs"
    prepared = settings[f"{data}_dir"] or beside(model_dir, data)
    replaced = [("-m", model_dir), ("the state of -m", beside(model_dir, "training")), (f"--{data}", prepared)]
    writes = [("the dropped rows of -m", beside(model_dir, "dropped"))] if settings.get("drop_bad_rows") else []
    check_apart(reads, writes, replaced)


def annotate(
    table: Path, models: Paths, out: Path, *, columns: ColumnFormat | None = None, scores: Paths = (),
    observer: AnnotateObserver | None = None, **options: Any,
) -> Summary:  # fmt: skip
    """Append the columns of one or more models to every row of a phrase table, as ``phrase-rescore annotate`` does.

    ``options`` are those of the command, by name (jobs=2, on_bad_row="drop", ...), those of ``columns`` included. ``scores``
    are files of a number a row, each one more column. ``observer`` shows progress. ``out`` appears under its name when it
    is complete. Raises TypeError for an unknown option, InputError, ModelError or OptionError, RescoreError if
    ``strict`` or ``expect_rows`` is not met.
    """
    from phrase_rescore.annotation.options import AnnotateOptions
    from phrase_rescore.annotation.record import AnnotateObserver
    from phrase_rescore.annotation.run import annotate as annotate_table

    written = {item.name: options.pop(item.name) for item in fields(ColumnFormat) if item.name in options}
    columns = replace(columns or ColumnFormat(), **written)
    chosen = AnnotateOptions(columns, scores=_paths(scores), **options)
    return annotate_table(os.fspath(table), _paths(models), os.fspath(out), chosen, observer or AnnotateObserver())


def rescore(
    nbest: Path, out: Path, models: Paths = (), *, labels: Sequence[str] = (), source: Path | None = None,
    weights: Path | None = None, scores: Paths = (), device: str = "cpu", threads: int | None = None,
    on_read: Progress | None = None, warn: Say = silent, **flags: Any,
) -> RescoreSummary:  # fmt: skip
    """Add the scores of models to every entry of an n-best list, as ``phrase-rescore rescore`` does.

    ``flags`` are the command's (log, replace, sort, best, force). ``warn`` hears of wrong files before the work. Raises
    TypeError for other flags, and as ``rescoring.run``.
    """
    from phrase_rescore.rescoring.run import RescoreOptions
    from phrase_rescore.rescoring.run import rescore as rescore_list

    files = _paths(models), tuple(labels), _path(source), _path(weights), _paths(scores)
    options = RescoreOptions(os.fspath(nbest), os.fspath(out), *files, **flags)
    device = resolve_device(device)
    if options.models:
        threads = prepare_parts(threads, device)
    return rescore_list(options, device, threads or 1, on_read, warn)


def tune(
    nbest: Paths, references: Paths, out: Path = "-", *, weights: Path | None = None, on_read: Progress | None = None,
    on_climb: Callable[[float], object] = silent, **settings: Any,
) -> TuneSummary:  # fmt: skip
    """Find weights on n-best lists of one tuning set and write them, as ``phrase-rescore tune`` does.

    ``settings`` are options, by name (seed=2, restarts=10, tokenize="13a", force=True); ``weights`` may be "none".
    ``on_climb`` hears after the reading, and after every climb, which share of the work is done. From then on torch computes on
    one core, so that sums have one order. Raises TypeError for an unknown setting, and as ``rescoring.tune.tune``.
    """
    from phrase_rescore.rescoring.tune import TuneOptions
    from phrase_rescore.rescoring.tune import tune as tune_lists

    prepare(1)
    options = TuneOptions(_paths(nbest), _paths(references), os.fspath(out), _path(weights), **settings)
    return tune_lists(options, on_read, on_climb)


def _path(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _paths(paths: Paths) -> tuple[str, ...]:
    return (os.fspath(paths),) if isinstance(paths, str | os.PathLike) else tuple(os.fspath(path) for path in paths)
