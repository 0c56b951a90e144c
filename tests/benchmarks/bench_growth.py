"""How the cost of scoring grows with hidden size, shortlist and block: figures and pictures.

usage: bench_growth.py [--rows 8192] [--plain-rows 1024] [--json FILE] [--figures DIR]

One size changes at a time, the others are the paper's. The plain scorer runs on the first rows of the same ones, right after
ours, and sgemm right before it.
"""

from __future__ import annotations

import argparse
import json
import os

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from bench_scoring import ours, sgemm, timed
from inputs import encode, middle_rows, paper_model, table
from macs import shared, unshared
from plain import PlainScorer

from phrase_rescore.inference.scorer import BATCH, Scorer
from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores

SERIES = {
    "hidden units": ("hidden", (250, 500, 1000)),
    "words in the target shortlist": ("shortlist", (5_000, 15_000, 50_000)),
    "rows of a block": ("block", (256, 512, 1024, 2048, 4096)),
}


def measure(sizes: dict[str, int], rows: list[bytes], plain_rows: int) -> dict[str, float]:
    """Pairs per second of ours and of the plain scorer, with our fraction of sgemm."""
    cores = usable_cores()
    block = sizes.pop("block", BATCH)
    if "hidden" in sizes:  # maxout grows with it, as in the paper
        sizes["maxout"] = sizes["hidden"] // 2
    checkpoint = paper_model(table(), **sizes)
    pairs = encode(rows, checkpoint)
    scorer, plain = Scorer(checkpoint), PlainScorer(checkpoint.model)
    scorer.batch = block
    keep_freed_memory(True)
    took, _ = timed(lambda: ours(scorer, pairs, cores, block))
    torch.set_num_threads(cores)
    keep_freed_memory(False)
    peak = sgemm()
    few = pairs.take(np.arange(plain_rows))
    plain_took, _ = timed(lambda: plain.log_probs(few))
    config, rate = checkpoint.model.config, len(pairs) / took
    return {
        "pairs_per_second": rate,
        "plain_pairs_per_second": plain_rows / plain_took,
        "ratio_to_plain": rate * plain_took / plain_rows,
        "fraction_of_sgemm": 2 * shared(config, pairs) * rate / len(pairs) / 1e9 / peak,
        "plain_fraction_of_sgemm": 2 * unshared(config, few) / plain_took / 1e9 / peak,
        "sgemm_gflops": peak,
    }


def draw(results: dict[str, dict[int, dict[str, float]]], path: str) -> None:
    lines = (
        ("pairs/s", (("pairs_per_second", "ours", "o-"), ("plain_pairs_per_second", "plain", "o--"))),
        ("ours / plain", (("ratio_to_plain", "", "s-"),)),
        ("share of sgemm", (("fraction_of_sgemm", "ours, minimal count", "^-"), ("plain_fraction_of_sgemm", "plain", "^--"))),
    )
    figure, axes = plt.subplots(3, 3, figsize=(11, 8), sharex="col", sharey="row", constrained_layout=True)
    for (label, curves), row in zip(lines, axes, strict=True):
        highest = 0.0
        for axis, series in zip(row, results.values(), strict=True):
            for key, name, style in curves:
                values = [figures[key] for figures in series.values()]
                highest = max(highest, *values)
                axis.plot(range(len(series)), values, style, label=name)
            axis.grid(alpha=0.3)
            axis.set_xticks(range(len(series)), [f"{size:,}" for size in series])
        row[0].set_ylabel(label)
        row[0].set_ylim(0, 1.1 * highest)
        if len(curves) > 1:
            row[0].legend()
    for axis, title in zip(axes[-1], results, strict=True):
        axis.set_xlabel(title)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--plain-rows", type=int, default=1024)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--figures", metavar="DIR")
    options = parser.parse_args()
    prepare(usable_cores())
    rows = middle_rows(table(), options.rows)
    results: dict[str, dict[int, dict[str, float]]] = {}
    for title, (name, sizes) in SERIES.items():
        print(f"{title:>30s}{'pairs/s':>9s}{'plain':>8s}{'ratio':>8s}{'of sgemm':>10s}{'plain':>8s}")
        for size in sizes:
            row = measure({name: size}, rows, options.plain_rows)
            results.setdefault(title, {})[size] = row
            speeds = f"{row['pairs_per_second']:9,.0f}{row['plain_pairs_per_second']:8,.0f}{row['ratio_to_plain']:8.2f}"
            print(f"{size:30,d}{speeds}{row['fraction_of_sgemm']:10.0%}{row['plain_fraction_of_sgemm']:8.0%}", flush=True)
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(results, stream, indent=2)
    if options.figures:
        os.makedirs(options.figures, exist_ok=True)
        draw(results, os.path.join(options.figures, "growth.png"))


if __name__ == "__main__":
    main()
