"""Training logs: any bytes are refused with their line, or become a run whose figures and curves can be told.

The command line is that of harness.py. An input is train.log.jsonl and config.json, laid out by parts.py.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import zlib

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import InputError, OptionError
    from phrase_rescore.nn.storage import CONFIG, LOG
    from phrase_rescore.report.curves import X_LABELS, Y_LABELS, Chart, curves
    from phrase_rescore.training.log import read_runs, shortfall, training_seconds

import parts
from harness import fuzz, told, workplace

FILES = (LOG, CONFIG)
RECORDS = [
    {"step": 0, "seconds": 0.5, "held_out": {"loss": 40.25, "perplexity": 800.5}},
    {"step": 500, "seconds": 61.2, "train_loss": 20.0, "held_out": {"loss": 18.5, "perplexity": 30.1}},
    {"step": 1000, "seconds": 121.9, "train_loss": 15.5},
]
TRAINING = {"steps": 1000, "passes": 0.7, "batch_size": 256, "init": "all", "init_from": None}
CHARTS = [Chart(x, y, log_x) for x, y, log_x in itertools.product(X_LABELS, Y_LABELS, (False, True))]


def mutate_record(data: bytes, chance: random.Random) -> bytes:
    """Another value in one line of a log."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    lines[at] = parts.mutate_json(lines[at] or b"{}", chance)
    return b"\n".join(lines)


def check_folder(folder: str, chart: Chart | None) -> None:
    seconds = training_seconds(folder)
    assert seconds is None or isinstance(seconds, float)
    try:
        (run,) = read_runs([folder])
    except InputError as error:
        told(error)
        return
    line = run.line()
    assert line.replace("\t", " ").isprintable(), line
    assert line.count("\t") == 5
    assert run.points
    for point in run.points:
        figures = (point.train_loss, point.loss, point.perplexity)
        assert all(figure is None or math.isfinite(figure) for figure in (*figures, point.seconds))
    assert (run.best is None) == all(point.loss is None for point in run.points)
    if chart is None:
        return
    try:
        json.dumps(curves([run], chart), allow_nan=False)
    except OptionError as error:
        told(error, 2000)


def check_summary(data: bytes) -> None:
    try:
        training = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(training, dict) and isinstance(training.get("training"), dict):
        assert shortfall(training["training"]).isprintable()


def main() -> None:
    folder = workplace()

    def check(data: bytes) -> None:
        parts.lay_out(data, folder, FILES)
        draw, which = divmod(zlib.crc32(data), len(CHARTS))  # a picture takes as long as some hundred logs
        check_folder(folder, None if draw % 100 else CHARTS[which])
        check_summary(data.split(parts.SEPARATOR)[-1])

    log = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
    config = json.dumps({"training": TRAINING}).encode()
    mutate = parts.mutator(FILES, ((0, mutate_record), (0, mutate_record), (1, parts.mutate_json)))
    fuzz(check, [log, parts.SEPARATOR.join((log, config)), b"\n \n" + log[:40]], 2048, mutate=mutate)


if __name__ == "__main__":
    main()
