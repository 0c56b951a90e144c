"""Cells, layers and directions after equal time: loss, speed of training and of annotating, size, loss by length.

usage: compare_structures.py TABLE DIR [--minutes 30] [--threads N] [--only NAME,…]

Trains one network after the other, with 500 units, for the same time on the same pairs, into DIR. A model that is there
already is not trained again, so that an interrupted comparison goes on. Then some more steps of each, without measurements
between them, are timed, and each annotates the first rows of the table.
"""

import argparse
import math
import tempfile
import time
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from inputs import source_of

from phrase_rescore import annotate
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.files.inputs import open_input
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.config import TrainingConfig
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.rnn.train import train_pairs
from phrase_rescore.runtime import usable_cores
from phrase_rescore.training.config import Observer

NETWORKS: dict[str, dict[str, Any]] = {
    "gru-1": {}, "gru-2": {"layers": 2}, "lstm-1": {"cell": "lstm"}, "lstm-2": {"cell": "lstm", "layers": 2},
    "rnn-1": {"cell": "rnn"}, "reversed": {"encoder": "reversed"}, "bidirectional": {"encoder": "bidirectional"},
}  # fmt: skip
STEPS, ROWS = 20, 20_480  # timed, after the training


class Enough(Exception):
    """The steps that are timed are done."""


def by_length(checkpoint: Checkpoint, store: PairStore) -> list[float]:
    """Return the held-out loss, in nats a word with EOS, of targets of 1, 2, … 7 words."""
    log_p, lengths = Scorer(checkpoint).log_probs(store.held_out), store.held_out.tgt.lengths
    return [float(-log_p[lengths == n].mean() / (n + 1)) if (lengths == n).any() else math.nan for n in range(1, 8)]


def pairs_a_second(table: Path, config: TrainingConfig) -> float:
    """Train a few steps and stop; return how many pairs the median one learns in a second."""
    times: list[float] = []

    def on_step(*_: object) -> None:
        times.append(time.perf_counter())
        if len(times) == STEPS:
            raise Enough

    with tempfile.TemporaryDirectory() as folder, suppress(Enough):
        train_pairs([str(table)], f"{folder}/model", config, Observer(on_step=on_step))
    return config.recipe.batch_size / median(after - before for before, after in pairwise(times))


def rows_a_second(table: Path, model: Path, out: Path) -> float:
    """Annotate the first rows with all cores; count from the second block back on."""
    some, times = out.with_name("rows"), list[tuple[float, int]]()
    with open_input(str(table)) as stream:
        some.write_bytes(b"".join(islice(stream, ROWS)))
    observer = AnnotateObserver(on_block=lambda done: times.append((time.perf_counter(), done.rows)))
    annotate(some, model, out, observer=observer)
    (begun, before), (ended, after) = times[min(1, len(times) - 2)], times[-1]
    return (after - before) / (ended - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--only", default=",".join(NETWORKS))
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    names = options.only.split(",")
    print("network         steps passes  pairs/s  nats a pair  perplexity   rows/s    MB  nats a word, by length")
    for name in names:
        model = options.folder / name
        config = TrainingConfig().override(
            **NETWORKS[name], hidden=500, maxout=250, max_time=60 * options.minutes, threads=options.threads, eval_every=100,
            device="cpu", pairs_dir=str(options.folder / "pairs"),
        )  # fmt: skip
        if not model.exists():
            resume = model.with_name(f"{name}.training").exists()
            train_pairs([str(options.table)], str(model), config.override(resume=resume), Observer())
        checkpoint, store = load(str(model)), source_of([str(options.table)], str(model), config.pairs.pairs_dir).find()
        assert store is not None
        training, lengths = checkpoint.training, by_length(checkpoint, store)
        rate = rows_a_second(options.table, model, options.folder / f"{name}.out")
        size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 1e6
        print(
            f"{name:14s}{training['steps']:7,d}{training['passes']:7.2f}{pairs_a_second(options.table, config):9,.0f}"
            f"{training['held_out']['loss']:13.2f}{training['held_out']['perplexity']:12.2f}{rate:9,.0f}{size:6.0f}  "
            + " ".join(f"{loss:.2f}" for loss in lengths),
            flush=True,
        )


if __name__ == "__main__":
    main()
