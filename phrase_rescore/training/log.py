"""The log of a training, and whether it was long enough.

A log (train.log.jsonl of a model directory) has a JSON object a line: ``step``, ``seconds`` since the start, ``train_loss``
(mean over the steps since the record before) and ``held_out``: ``loss``, ``perplexity`` (per word). Losses: nats per pair,
of a language model per word. Each of the last two may be missing.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from phrase_rescore.messages import counted
from phrase_rescore.nn.storage import LOG

_HARDLY = 20  # steps; a model of fewer is little better than its initial weights


def shortfall(training: Mapping[str, Any], items: str) -> str:
    """Return why a training was too short, by its unchecked summary in config.json; empty if it was not."""
    steps, passes = training.get("steps"), training.get("passes")
    if training.get("init_from"):
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
        return float(json.loads(last)["seconds"])
    except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
