"""Every cell, depth and encoder through the whole of the tool: train, be interrupted and resumed, annotate, meet the oracle.

usage: python tests/support/structures.py [--steps 50] [--rows 20000] [--judged 100]

Prints a line for each structure: whether the resumed training ended with the bytes of an uninterrupted one, the rows that
``annotate`` wrote, and the largest difference in log p from the oracle in NumPy float64.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from oracle import log_prob
from small_models import structure, weights

from phrase_rescore import annotate
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.columns import ColumnFormat
from phrase_rescore.moses.table import words
from phrase_rescore.rnn.cells import CELLS
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.config import TrainingConfig
from phrase_rescore.rnn.network import ENCODERS
from phrase_rescore.rnn.train import train_pairs
from phrase_rescore.training.config import Observer

DEPTHS = (1, 2, 4)
STRUCTURES = [
    {"cell": cell, "layers": layers, "encoder": encoder} for cell, layers, encoder in product(CELLS, DEPTHS, ENCODERS)
]
QUICK = ("gru-1-forward", "lstm-2-bidirectional", "rnn-1-reversed")  # those of make check


def named(chosen: dict[str, Any]) -> str:
    return "-".join(map(str, chosen.values()))


def _case(chosen: dict[str, Any]) -> Any:
    name = named(chosen)
    return pytest.param(chosen, id=name, marks=() if name in QUICK else pytest.mark.slow)


every_structure = pytest.mark.parametrize("chosen", list(map(_case, STRUCTURES)))


class Interrupted(Exception):
    pass


def trained_twice(inputs: Iterable[str], folder: Path, config: TrainingConfig) -> tuple[Checkpoint, bool]:
    """Train at one sitting and at two; return the model, and whether both have the same bytes."""
    whole, parts = folder / "whole", folder / "parts"
    train_pairs(list(inputs), str(whole), config)
    at = config.recipe.max_steps * 7 // 10

    def stop(step: int, *_: object) -> None:
        if step == at:
            raise Interrupted

    try:
        train_pairs(list(inputs), str(parts), config, Observer(on_step=stop))
        raise AssertionError(f"was not interrupted after {at} steps")
    except Interrupted:
        train_pairs(list(inputs), str(parts), config.override(resume=True))
    files = [{p.name: p.read_bytes() for p in d.iterdir() if p.name != "train.log.jsonl"} for d in (whole, parts)]
    return load(str(whole)), files[0] == files[1]


def largest_difference(
    checkpoint: Checkpoint, table: Path, out: Path, model: Path, judged: int, **options: Any
) -> tuple[int, float]:
    """Annotate a table; return its rows, and the largest difference of some rows' log p from the oracle's."""
    annotate(table, model, out, columns=ColumnFormat(scale="log", digits=12), **options)
    lines = out.read_bytes().splitlines()
    w, given = weights(checkpoint), structure(checkpoint)
    differences = []
    for line in lines[:: max(1, len(lines) // judged)]:
        src, tgt, scores = line.split(b" ||| ")[:3]
        ids = [list(vocab.encode(words(side))) for vocab, side in zip(checkpoint.vocabs, (src, tgt), strict=True)]
        differences.append(abs(log_prob(w, *ids, **given) - float(scores.split()[-2])))
    return len(lines), max(differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--judged", type=int, default=100)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from inputs import table as the_table

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table")
        with open_input(str(the_table())) as stream:
            table.write_bytes(b"".join(islice(stream, options.rows)))
        failed = 0
        print(f"{'structure':24s}{'bytes':>8s}{'rows':>9s}{'difference':>12s}{'seconds':>9s}")
        for chosen in STRUCTURES:
            begun = time.perf_counter()
            config = TrainingConfig().override(
                **chosen, hidden=100, embedding=50, maxout=50, rank=50, max_steps=options.steps, eval_every=10, threads=1,
                pairs_dir=str(Path(folder, "pairs")), held_out=200, device="cpu", shortlist=3000,
            )  # fmt: skip
            place = Path(folder, named(chosen))
            place.mkdir()
            checkpoint, same = trained_twice([str(table)], place, config)
            rows, difference = largest_difference(checkpoint, table, place / "out", place / "whole", options.judged)
            failed += not same or rows != options.rows or difference >= 1e-4
            took = time.perf_counter() - begun
            print(f"{named(chosen):24s}{'same' if same else 'OTHERS':>8s}{rows:9,}{difference:12.1e}{took:9.1f}", flush=True)
    sys.exit(f"{failed} structures failed" if failed else 0)


if __name__ == "__main__":
    main()
