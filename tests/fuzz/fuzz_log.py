"""Training logs: any bytes are refused with their line, or become a run whose figures can be told.

An input is train.log.jsonl and config.json.
"""

import json
import os
import random
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.nn.storage import CONFIG, LOG
    from phrase_rescore.training.log import shortfall, training_seconds

from harness import SEPARATOR, fuzz_files, mutate_json, workplace

FILES = (LOG, CONFIG)
RECORDS = [
    {"step": 0, "seconds": 0.5, "held_out": {"loss": 40.25, "perplexity": 800.5}},
    {"step": 500, "seconds": 61.2, "train_loss": 20.0, "held_out": {"loss": 18.5, "perplexity": 30.1}},
    {"step": 1000, "seconds": 121.9, "train_loss": 15.5},
]
TRAINING = {"steps": 1000, "passes": 0.7, "batch_size": 256, "init": "all", "init_from": None}


def mutate_record(data: bytes, chance: random.Random) -> bytes:
    """Another value in one line of a log."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    lines[at] = mutate_json(lines[at] or b"{}", chance)
    return b"\n".join(lines)


def check_folder(folder: str) -> None:
    seconds = training_seconds(folder)
    assert seconds is None or isinstance(seconds, float)


def check_summary(config: Path) -> None:
    try:
        training = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(training, dict) and isinstance(training.get("training"), dict):
        assert shortfall(training["training"]).isprintable()


def main() -> None:
    folder = os.path.join(workplace(), "model")

    def check() -> None:
        check_folder(folder)
        check_summary(Path(folder, CONFIG))

    log = b"".join(json.dumps(record).encode() + b"\n" for record in RECORDS)
    seeds = [log, SEPARATOR.join((log, json.dumps({"training": TRAINING}).encode())), b"\n \n" + log[:40]]
    fuzz_files(folder, FILES, check, seeds, 2048, ((0, mutate_record), (0, mutate_record), (1, mutate_json)))


if __name__ == "__main__":
    main()
