"""How long until the held-out loss that the plain loop reaches in a quarter of an hour? At paper size, on a store of pairs.

usage: bench_time_to_loss.py PAIRS_DIR [--minutes 15] [--share 0.28] [--plain-rate 4e-3]
                              [--plain-loss NATS] [--eval-every 500] [--json FILE]

PAIRS_DIR is what `phrase-rescore train` keeps (MODEL_DIR.pairs). The plain loop: minibatches of 64, padded, autograd over the
straightforward model, Adam; the same initial weights and the same schedule as ours, over its own time; or not run at all, if
``--plain-loss`` says what it reached. Ours: `train` as it is by default but for the sizes, in ``--share`` of that time, and
then measured, which counts too. Both are measured on the same held-out pairs.
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from bench_training import PLAIN_BATCH, PlainTrainer
from inputs import fresh_task, stored_pairs

from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.config import PRESETS, TrainingConfig
from phrase_rescore.runtime import keep_freed_memory, prepare, usable_cores
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.pairs import PairTask

EVALUATED = 256


@torch.no_grad()
def plain_loss(plain: PlainTrainer, held: EncodedPairs) -> float:
    """Nats a pair."""
    order = np.argsort(held.tgt.lengths, kind="stable")
    parts = [order[start : start + EVALUATED] for start in range(0, len(order), EVALUATED)]
    return -sum(plain.batch(held.take(part)).sum().item() for part in parts) / len(held)


def train_plain(store: PairStore, config: TrainingConfig, seconds: float, rate: float) -> tuple[int, float]:
    """Steps of the plain loop in that time, and its held-out loss in nats a pair."""
    keep_freed_memory(False)
    torch.set_num_threads(usable_cores())
    model = fresh_task(store, config).module
    plain = PlainTrainer(Checkpoint(model, store.src_vocab, store.tgt_vocab, (0.1, 0.1), {}, "benchmark"))
    schedule = replace(config.recipe, learning_rate=rate)
    batches = PairTask(model, store.train, store.held_out, PLAIN_BATCH, seed=1).batches(0)
    start, steps = time.perf_counter(), 0
    while (done := (time.perf_counter() - start) / seconds) < 1.0:
        for group in plain.optimizer.param_groups:
            group["lr"] = schedule.rate(done)
        plain.step(next(batches))
        steps += 1
    return steps, plain_loss(plain, store.held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--share", type=float, default=0.28)
    parser.add_argument("--plain-rate", type=float, default=4e-3)
    parser.add_argument("--plain-loss", type=float, help="of an earlier run: the plain loop is left out")
    parser.add_argument("--eval-every", type=int, default=500, help="steps of ours between measurements (their time counts)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    cores, seconds = usable_cores(), 60 * options.minutes
    prepare(cores)
    store = stored_pairs(options.pairs)
    config = replace(PRESETS["default"], network=PRESETS["paper"].network)
    config = config.override(max_time=seconds * options.share, eval_every=options.eval_every)
    curve: list[dict[str, Any]] = []
    trainer = Trainer(fresh_task(store, config), config.recipe, threads=cores, observer=Observer(on_record=curve.append))
    trainer.fit()
    ours = trainer.seconds()
    for record in curve:
        loss = record["held_out"]["loss"]
        print(f"ours   {record['seconds']:6.0f} s  step {record['step']:5d}  {loss:.3f} nats a pair", flush=True)

    plain = {"seconds": seconds, "steps": None, "loss": options.plain_loss, "rate": options.plain_rate}
    if options.plain_loss is None:
        plain["steps"], plain["loss"] = train_plain(store, config, seconds, options.plain_rate)
        print(f"plain  {seconds:6.0f} s  step {plain['steps']:5d}  {plain['loss']:.3f} nats a pair")
    when = next((r["seconds"] for r in curve if r["held_out"]["loss"] <= plain["loss"]), None)
    result = {
        "plain": plain,
        "ours": {"seconds": ours, "curve": curve},
        "reached_after": when,
        "share": when and when / seconds,
    }
    print("ours did not get there" if when is None else f"ours was there after {when:.0f} s, {when / seconds:.0%} of that time")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
