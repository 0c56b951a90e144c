"""Training at paper size: the plain loop and ours, side by side.

usage: bench_training.py [--seconds 20] [--batch 256] [--json FILE]

The plain loop: minibatches of 64 pairs as they come, padded, torch's autograd over the model as its equations stand, all
threads. Ours: minibatches of ``--batch``, packed, a part for every core; once more with ``--precision bf16`` if the processor
has it. All with Adam and clipped gradients, on random pairs of the table. The fraction of sgemm is that of three times the
forward pass's unshared multiply-accumulates.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from bench_scoring import sgemm
from inputs import encode, middle_rows, paper_model, table
from macs import unshared
from plain import PlainScorer

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores
from phrase_rescore.training.pairs import PairTask
from phrase_rescore.training.processes import Gradients

PLAIN_BATCH = 64


class PlainTrainer(PlainScorer):
    """The plain model with weights that learn: the stacked gates and every other tensor."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.model)
        self.w = {name: weight.clone().requires_grad_() for name, weight in self.w.items()}
        self.gates = {name: weight.clone().requires_grad_() for name, weight in self.gates.items()}
        stacked = {
            f"{side}.layer0.forward.{kind}{gate}"
            for side in ("encoder", "decoder")
            for kind in "WUbC"
            for gate in ("_z", "_r", "")
        }
        self.parameters = [*self.gates.values(), *(weight for name, weight in self.w.items() if name not in stacked)]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-3, fused=True)

    def step(self, pairs: EncodedPairs) -> None:
        self.optimizer.zero_grad()
        (-self.batch(pairs).sum() / len(pairs)).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()


class OurTrainer:
    def __init__(
        self, checkpoint: Checkpoint, pairs: EncodedPairs, batch: int, cores: int, dtype: torch.dtype | None = None
    ) -> None:
        self.module = copy.deepcopy(checkpoint.model).requires_grad_(True)
        self.module.loss_dtype = dtype
        self.task = PairTask(self.module, pairs, pairs.take(np.arange(0)), batch, seed=1)
        self.gradients = Gradients(self.module, self.task, cores)
        self.parameters = list(self.module.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-3, fused=True)

    def step(self, pairs: EncodedPairs) -> None:
        self.gradients(self.task.parts(pairs, self.gradients.parts), len(pairs))
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()


def rate(step: Callable[[EncodedPairs], None], pairs: EncodedPairs, batch: int, seconds: float) -> float:
    """Pairs per second over some ``seconds``, the first step aside."""
    order = np.random.default_rng(0).permutation(len(pairs))
    batches = [pairs.take(order[i : i + batch]) for i in range(0, len(order) - batch, batch)]
    step(batches[0])
    start, done = time.perf_counter(), 0
    for batch_pairs in batches[1:]:
        step(batch_pairs)
        done += batch
        if time.perf_counter() - start > seconds:
            break
    return done / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=1000)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    cores = usable_cores()
    prepare(cores)
    path = table()
    sizes = {"hidden": options.hidden, "maxout": options.hidden // 2}
    checkpoint = paper_model(path, **sizes)
    pairs = encode(middle_rows(path, 100_000), checkpoint)
    few = pairs.take(np.random.default_rng(0).permutation(len(pairs))[:20_000])
    macs = 3 * unshared(checkpoint.model.config, few) / len(few)
    dtypes: dict[str, torch.dtype | None] = {"ours": None}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        dtypes["ours, bf16"] = torch.bfloat16
    runs = [("plain", PlainTrainer(checkpoint).step, PLAIN_BATCH)]
    for name, dtype in dtypes.items():
        runs.append((name, OurTrainer(checkpoint, pairs, options.batch, cores, dtype).step, options.batch))
    rates: dict[str, list[float]] = {name: [] for name, _, _ in runs}
    peaks = []
    for _ in range(options.rounds):
        for name, step, batch in runs:
            torch.set_num_threads(cores)
            keep_freed_memory(False)
            peaks.append(sgemm())
            keep_freed_memory(name != "plain")
            rates[name].append(rate(step, pairs, batch, options.seconds))
    peak = statistics.median(peaks)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    result = {
        "sgemm_gflops": peak,
        "pairs_per_second": medians,
        "ratios": {name: value / medians["plain"] for name, value in medians.items()},
        "fraction_of_sgemm": {name: 2 * macs * value / 1e9 / peak for name, value in medians.items()},
    }
    print(f"training, {options.hidden} units, {cores} cores, sgemm {peak:.0f} GFLOP/s, {macs / 1e6:.0f} M a pair")
    for name, value in medians.items():
        share, ratio = result["fraction_of_sgemm"][name], result["ratios"][name]
        print(f"{name:12s}{value:8.0f} pairs/s{share:8.0%} of sgemm, {ratio:.2f} of plain")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
