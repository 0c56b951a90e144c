"""Scoring at paper size: the plain scorer, the same sorted by length, and ours, side by side in one process.

usage: bench_scoring.py [--rows 20000] [--rounds 2] [--json FILE]

For the paper's network, then with an LSTM for its cell and with a bidirectional encoder. Each round measures every scorer
and, right before it, torch's sgemm; figures are the rounds' medians. sgemm and the plain scorer run as everybody's Python
does; the plain one runs once more with our setting of glibc (freed memory kept), which helps it too. The comparison counts
only if the plain scorer reaches 33 % of sgemm on its own unshared count.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import encode, middle_rows, paper_model, table
from macs import shared, unshared
from plain import PlainScorer

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.rnn.scorer import BATCH, Scorer
from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores, use_threads


def sgemm(clock: Callable[[], float] = time.perf_counter) -> float:
    """GFLOP/s of 2048×1000×3000, all threads."""
    a, b = torch.randn(2048, 1000), torch.randn(1000, 3000)
    torch.mm(a, b)
    start = clock()
    for _ in range(20):
        torch.mm(a, b)
    return 20 * 2 * 2048 * 1000 * 3000 / (clock() - start) / 1e9


def ours(scorer: Scorer, pairs: EncodedPairs, jobs: int, rows: int = BATCH) -> np.ndarray:
    """As annotate works: blocks side by side, each the work of one core."""

    def block(start: int) -> np.ndarray:
        use_threads(1)
        return scorer.log_probs(pairs.take(np.arange(start, min(start + rows, len(pairs)))))

    with ThreadPoolExecutor(jobs) as executor:
        return np.concatenate(list(executor.map(block, range(0, len(pairs), rows))))


def timed(function: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def measured(path: Path, rows: int, rounds: int, name_of: str, **chosen: object) -> dict[str, Any]:
    """Measure the scorers with a network of paper size, print them and return the figures."""
    cores = usable_cores()
    checkpoint = paper_model(path, **chosen)
    pairs = encode(middle_rows(path, rows), checkpoint)
    plain, scorer = PlainScorer(checkpoint.model), Scorer(checkpoint)
    runs: dict[str, Callable[[], np.ndarray]] = {
        "plain": lambda: plain.log_probs(pairs),
        "plain, memory kept": lambda: plain.log_probs(pairs),
        "plain, sorted": lambda: plain.log_probs(pairs, by_length=10_000),
        "ours": lambda: ours(scorer, pairs, cores),
    }
    config, n = checkpoint.model.config, len(pairs)
    macs = {name: (shared if name == "ours" else unshared)(config, pairs) for name in runs}
    counts = f"minimal count {macs['ours'] / n / 1e6:.1f} M a pair, unshared {macs['plain'] / n / 1e6:.1f} M"
    print(f"{name_of}: {path.name}, {n:,} rows; {counts}")
    plain.log_probs(pairs.take(np.arange(min(n, 1024))))  # warm up
    peaks, seconds, scores = [], {name: [] for name in runs}, {}
    for _ in range(rounds):
        for name, run in runs.items():
            torch.set_num_threads(cores)
            keep_freed_memory(False)
            peaks.append(sgemm())
            keep_freed_memory(not name.startswith("plain") or name.endswith("memory kept"))
            took, scores[name] = timed(run)
            seconds[name].append(took)
    peak = statistics.median(peaks)
    result = {"rows": n, "cores": cores, "sgemm_gflops": peak, "scorers": {}}
    rate = {name: n / statistics.median(times) for name, times in seconds.items()}
    for name in runs:
        result["scorers"][name] = {
            "pairs_per_second": rate[name],
            "ratio_to_plain": rate[name] / rate["plain"],
            "fraction_of_sgemm": 2 * macs[name] / n * rate[name] / 1e9 / peak,
            "largest_difference": float(abs(scores[name] - scores["plain"]).max()),
        }
    result["peak_memory_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # so far, earlier networks' included
    print(f"{cores} cores, sgemm {peak:.0f} GFLOP/s ({min(peaks):.0f}–{max(peaks):.0f})")
    print(f"{'':20s}{'pairs/s':>9s}{'ratio':>8s}{'of sgemm':>10s}{'difference':>12s}")
    for name, row in result["scorers"].items():
        speed = f"{row['pairs_per_second']:9.0f}{row['ratio_to_plain']:8.2f}{row['fraction_of_sgemm']:10.0%}"
        print(f"{name:20s}{speed}{row['largest_difference']:12.1e}")
    print(f"ours to plain sorted: {rate['ours'] / rate['plain, sorted']:.2f}; memory so far {result['peak_memory_gb']:.2f} GB")
    if result["scorers"]["plain"]["fraction_of_sgemm"] < 0.33:
        print("the plain scorer is below 33 % of sgemm: the comparison does not count")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    cores = usable_cores()
    prepare(cores)

    path = table()
    networks: dict[str, dict[str, object]] = {
        "gru": {}, "lstm": {"cell": "lstm"}, "gru, bidirectional": {"encoder": "bidirectional"},
    }  # fmt: skip
    results = {name: measured(path, options.rows, options.rounds, name, **chosen) for name, chosen in networks.items()}
    result = results.pop("gru") | {"other_networks": results}
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
