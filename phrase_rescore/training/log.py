"""The log of a training, and whether it was long enough.

A log (train.log.jsonl of a model directory) has a JSON object a line: ``step``, ``seconds`` since the start, ``train_loss``
(mean over the steps since the record before) and ``held_out``: ``loss``, ``perplexity`` (per word). Losses: nats per pair,
of a language model per word. Each of the last two may be missing.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phrase_rescore.errors import counted, printable
from phrase_rescore.nn.storage import LOG

_HARDLY = 20  # steps; a model of fewer is little better than its initial weights


@dataclass(frozen=True)
class Point:
    """A record of the log. Figures that are missing or not finite are None."""

    step: int
    seconds: float
    train_loss: float | None
    loss: float | None
    perplexity: float | None


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
