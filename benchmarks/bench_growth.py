"""How the cost of scoring grows with hidden size, shortlist and block: figures and pictures.

usage: bench_growth.py [--rows 8192] [--plain-rows 1024] [--json FILE] [--figures DIR]

One size changes at a time, the others are the paper's. The plain scorer runs on the first rows of the same ones, right after
ours, and sgemm right before it.
"""

import argparse
import json
import os

import numpy as np
import torch
import vl_convert
from bench_scoring import ours, sgemm, timed
from inputs import encode, middle_rows, paper_model, table
from macs import shared, unshared
from plain import PlainScorer

from phrase_rescore.report.charts import BLUE, VERMILION, altair, specification
from phrase_rescore.rnn.scorer import BATCH, Scorer
from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores

SERIES = {
    "hidden units": ("hidden", (250, 500, 1000)),
    "words in the target shortlist": ("shortlist", (5_000, 15_000, 50_000)),
    "rows of a block": ("block", (256, 512, 1024, 2048, 4096)),
}


FIGURES = {
    "pairs/s": ("pairs_per_second", "plain_pairs_per_second"),
    "ours / plain": ("ratio_to_plain",),
    "share of sgemm": ("fraction_of_sgemm", "plain_fraction_of_sgemm"),
}


def measure(sizes: dict[str, int], rows: list[bytes], plain_rows: int) -> dict[str, float]:
    """Measure pairs per second of ours and of the plain scorer, and the fraction of sgemm of each."""
    cores = usable_cores()
    block = sizes.pop("block", BATCH)
    if "hidden" in sizes:  # maxout grows with it, as in the paper
        sizes["maxout"] = sizes["hidden"] // 2
    checkpoint = paper_model(table(), **sizes)
    pairs = encode(rows, checkpoint)
    scorer, plain = Scorer(checkpoint), PlainScorer(checkpoint.model)
    scorer.sharing.batch = block
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
    """Draw a panel for each figure (down) and for each size that changes (across)."""
    alt = altair()
    names, top = ["ours", "plain"], alt.Legend(orient="top")
    colour = alt.Color("who:N", title=None, scale=alt.Scale(domain=names, range=[BLUE, VERMILION]), legend=top)
    dash = alt.StrokeDash("who:N", title=None, scale=alt.Scale(domain=names, range=[[1, 0], [5, 3]]), legend=None)
    rows, datasets = [], {}
    for label, keys in FIGURES.items():
        panels = []
        highest = max(figures[key] for series in results.values() for figures in series.values() for key in keys)
        scale = alt.Scale(domain=[0, 1.1 * highest], nice=False)
        for title, series in results.items():
            name = f"{label} by {title}"
            datasets[name] = [
                {"size": size, "who": who, "value": figures[key]}
                for size, figures in series.items()
                for key, who in zip(keys, names, strict=False)
            ]
            sizes = alt.X("size:O", title=title, axis=alt.Axis(format=",d", labelAngle=0))
            values = alt.Y("value:Q", title=label, scale=scale, axis=alt.Axis(minExtent=40))
            line = alt.Chart(alt.NamedData(name)).mark_line(point=True).encode(sizes, values, colour, dash)
            panels.append(line.properties(width=280, height=180))
        rows.append(alt.hconcat(*panels))
    spec = specification(alt.vconcat(*rows), **datasets)
    with open(path, "wb") as stream:
        version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
        stream.write(bytes(vl_convert.vegalite_to_png(spec, vl_version=version, scale=2)))


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
