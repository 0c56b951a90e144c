"""Rows/s of `annotate` and pairs/s of `train` on a GPU, by size and precision, and the share of what its products allow.

usage: bench_gpu.py TABLE [--device cuda] [--seconds 3] [--times 3] [--batches 1024,4096,16384] [--json FILE]

Models have random weights: speed does not depend on training. The table, ``--times`` over, is annotated as the command does it;
the steady rate leaves out the first quarter, in which processes start. Its share is that of the multiply-accumulates which
blocks cannot avoid (macs.py), against the product measured first. Training: steps of the loop on pairs of its first rows.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
from inputs import encode, fresh_task, paper_model, source_of
from macs import shared

from phrase_rescore import annotate
from phrase_rescore.annotation.pipeline import GPU_BLOCK_ROWS
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.files.inputs import open_input
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.runtime import prepare, set_tf32, usable_cores
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer

PAPER = PRESETS["paper"].network
NETWORKS = {"paper": PAPER, "500 units": replace(PAPER, hidden=500, maxout=250)}
PRECISIONS = ("float32", "tf32", "bf16")
ROWS = 200_000  # to train on


def products(device: str, precision: str) -> float:
    """Return the TFLOP/s of a large product: 8192 cubed on a GPU, 1024 on a CPU."""
    set_tf32(precision, device)
    n = 8192 if device.startswith("cuda") else 1024
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    torch.mm(a, a)
    wait(device)
    start = time.perf_counter()
    for _ in range(10):
        torch.mm(a, a)
    wait(device)
    return 10 * 2 * n**3 / (time.perf_counter() - start) / 1e12


def wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def annotated(table: Path, model: Path, out: Path, device: str, precision: str) -> tuple[float, float]:
    """Return rows/s of the whole call, and without its first quarter."""
    start, seen = time.perf_counter(), list[tuple[float, int]]()
    observer = AnnotateObserver(on_block=lambda statistics: seen.append((time.perf_counter(), statistics.rows)))
    annotate(table, model, out, observer=observer, device=device, precision=precision)
    (t, rows), (end, total) = seen[len(seen) // 4], seen[-1]
    return total / (time.perf_counter() - start), (total - rows) / (end - t)


def trained(store: PairStore, size: str, device: str, precision: str, batch: int, seconds: float) -> float:
    """Return pairs/s of steps on minibatches of ``batch`` pairs."""
    config = replace(PRESETS["default"], network=NETWORKS[size])
    config = config.override(max_steps=10**6, batch_size=batch, softmax="full")
    set_tf32(precision, device)
    task = fresh_task(store, config)
    task.device = device
    task.module.to(device).loss_dtype = torch.bfloat16 if precision == "bf16" else None
    trainer = Trainer(task, config.recipe)
    batches, pairs = task.batches(), 0
    for _ in range(5):
        trainer.step(next(batches), 0.5)
    wait(device)
    start = time.perf_counter()
    while time.perf_counter() < start + seconds:
        trainer.step(next(batches), 0.5)
        pairs += batch
    wait(device)
    return pairs / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--batches", default="1024,4096,16384")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    device, rounds, on_gpu = options.device, list[dict[str, Any]](), options.device.startswith("cuda")
    precisions = PRECISIONS if on_gpu else ("float32",)
    prepare(usable_cores())
    print(torch.cuda.get_device_name() if on_gpu else "CPU", f"{usable_cores()} cores, torch {torch.__version__}")

    def report(**found: Any) -> None:
        rounds.append(found)
        print(", ".join(f"{name} {f'{x:,.3g}' if isinstance(x, float) else x}" for name, x in found.items()), flush=True)

    peaks = {precision: products(device, precision) for precision in precisions}
    report(**{f"{precision} TFLOP/s": peak for precision, peak in peaks.items()})
    with tempfile.TemporaryDirectory() as scratch:
        many, some, pairs = Path(scratch, "table"), Path(scratch, "rows"), Path(scratch, "pairs")
        many.write_bytes(options.table.read_bytes() * options.times)
        with open_input(str(options.table)) as stream:
            rows = [row.rstrip(b"\n") for row in islice(stream, ROWS)]
        some.write_bytes(b"\n".join(rows) + b"\n")
        for size, network in NETWORKS.items():
            checkpoint = paper_model(options.table, **vars(network))
            model = Path(scratch, size)
            model.mkdir()
            save(checkpoint, str(model))
            block = encode(rows[-GPU_BLOCK_ROWS:], checkpoint)
            flop = 2 * shared(checkpoint.model.config, block) / len(block)
            for precision in precisions:
                whole, steady = annotated(many, model, Path(scratch, f"{size}.{precision}.gz"), device, precision)
                share = steady * flop / peaks[precision] / 1e12
                report(annotate=size, precision=precision, rows_s=whole, steady=steady, mflop_row=flop / 1e6, share=share)
        store = source_of([str(some)], str(pairs), str(pairs)).prepare(Observer())
        for size, precision, batch in product(NETWORKS, precisions, map(int, options.batches.split(","))):
            pairs_s = trained(store, size, device, precision, batch, options.seconds)
            report(train=size, precision=precision, minibatch=batch, pairs_s=pairs_s)
    if options.json:
        Path(options.json).write_text(json.dumps(rounds, indent=2))


if __name__ == "__main__":
    main()
