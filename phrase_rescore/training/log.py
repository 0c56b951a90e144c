"""The log of a training, and whether it was long enough.

A log (train.log.jsonl of a model directory) has a JSON object a line: ``step``, ``seconds`` since the start, ``train_loss``
(mean over the steps since the record before) and ``held_out``: ``loss``, ``perplexity`` (per word). Losses: nats per pair,
of a language model per word. Each of the last two may be missing.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phrase_rescore.errors import InputError, counted, printable, shown
from phrase_rescore.files.inputs import open_plain, read_rows
from phrase_rescore.nn.storage import CONFIG, FEEDFORWARD_LM, LOG

_HARDLY = 20  # steps; a model of fewer is little better than its initial weights


@dataclass(frozen=True)
class Point:
    """A record of the log. Figures that are missing or not finite are None."""

    step: int
    seconds: float
    train_loss: float | None
    loss: float | None
    perplexity: float | None


@dataclass(frozen=True)
class Run:
    """The log of a run, with the entries of a finished model's config.json that it needs."""

    name: str
    points: tuple[Point, ...]
    batch_size: int | None  # pairs or words a step
    item: str = "pair"  # or word: losses are per item; without a config.json it is taken for a model of phrase pairs

    @property
    def best(self) -> Point | None:
        """The point of the lowest held-out loss, the first of equals, or None without held-out figures."""
        return min((p for p in self.points if p.loss is not None), key=lambda p: p.loss or 0.0, default=None)

    def line(self) -> str:
        """Return name, steps, best step, its held-out loss (nats per pair) and perplexity, and hours, with tabs between."""
        last, best = self.points[-1], self.best
        losses = (best.loss, best.perplexity) if best else (None, None)
        figures = [str(best.step) if best else "", *("" if x is None else f"{x:.4f}" for x in losses)]
        return "\t".join((self.name, str(last.step), *figures, f"{last.seconds / 3600:.3f}"))


def _figure(record: dict[str, Any], key: str) -> float | None:
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} {printable(json.dumps(value))} is not a number")
    return float(value) if math.isfinite(value) else None


def point_of(record: Any) -> Point:
    """Return the figures of a record. Raises ValueError or OverflowError for what no training writes."""
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    held_out = record.get("held_out") or {}
    if not isinstance(held_out, dict):
        raise ValueError("held_out is not a JSON object")
    step, seconds = _figure(record, "step"), _figure(record, "seconds")
    if step is None or seconds is None:
        raise ValueError("no step or no seconds")
    return Point(int(step), seconds, _figure(record, "train_loss"), _figure(held_out, "loss"), _figure(held_out, "perplexity"))


def _read_points(path: str) -> tuple[Point, ...]:
    points = []
    with open_plain(path) as stream:
        for number, line in enumerate(read_rows(stream), 1):
            if not line.strip():
                continue
            try:
                points.append(point_of(json.loads(line)))
            except (ValueError, OverflowError, RecursionError) as error:
                found = str(error) if type(error) is ValueError else f"{shown(line.strip())} is not JSON"
                raise InputError(path, found, f"name a model directory, or a log like its {LOG}", number) from None
    if not points:
        raise InputError(path, "an empty log", "nothing is measured yet; train with a smaller --eval-every")
    return tuple(points)


def _of_config(directory: str) -> tuple[int | None, str]:
    """Return the batch size and the item (pair or word) of a model by its config.json."""
    try:
        config = json.loads(Path(directory, CONFIG).read_bytes())
        size, item = config["training"]["batch_size"], "word" if config.get("kind") == FEEDFORWARD_LM else "pair"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, "pair"
    return size if isinstance(size, int) else None, item


def _default_name(path: str) -> str:
    """Return the name of the model directory, or of a log elsewhere."""
    directory, file = os.path.split(os.path.abspath(path))
    if os.path.isdir(path):
        return file or directory
    return os.path.basename(directory) if file == LOG else os.path.splitext(file)[0]


def split_argument(argument: str) -> tuple[str, str]:
    """Split PATH or NAME=PATH into name and path; a path that exists may have an equals sign in it."""
    name, equals, path = argument.partition("=")
    return (name, path) if equals and not os.path.exists(argument) else ("", argument)


def read_run(argument: str) -> Run:
    """Read a run given as PATH or NAME=PATH of a model directory or log. Raises InputError for a missing or damaged log."""
    name, path = split_argument(argument)
    log = os.path.join(path, LOG) if os.path.isdir(path) else path
    points = _read_points(log)
    name = printable(os.fsencode(name or _default_name(path)), 1000)  # printable and without tabs
    return Run(name, points, *_of_config(os.path.dirname(log)))


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """Read runs as ``read_run`` does; runs of equal name are called by their whole arguments."""
    runs = [read_run(argument) for argument in arguments]
    count = Counter(run.name for run in runs)
    given = [printable(os.fsencode(argument), 1000) for argument in arguments]
    return [replace(run, name=text) if count[run.name] > 1 else run for run, text in zip(runs, given, strict=True)]


def shortfall(training: Mapping[str, Any], items: str = "pairs") -> str:
    """Return why a training was too short, by its unchecked summary in config.json; empty if it was not."""
    steps, passes = training.get("steps"), training.get("passes")
    if training.get("init_from") and training.get("init", "all") == "all":  # it began with all weights of a model
        return ""
    if isinstance(steps, int) and 0 <= steps < _HARDLY:
        return f"only {counted(steps, 'step')} made: the scores mean little"
    if isinstance(passes, int | float) and 0 <= passes < 1:
        return f"only {math.floor(1000 * passes) / 10} % of the {items} were seen"
    return ""


def training_seconds(directory: str) -> float | None:
    """Return the time of the last measurement of a model's training, None if the directory has no log of it."""
    try:
        with open(os.path.join(directory, LOG), "rb") as stream:
            *_, last = stream
        return point_of(json.loads(last)).seconds
    except (OSError, ValueError, OverflowError, RecursionError):
        return None
