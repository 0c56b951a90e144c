"""Recipes of training side by side: each from the same pairs and seed, in the same time or steps, by held-out loss.

usage: compare_recipes.py PAIRS_DIR [--seconds 120 | --steps N] [--seeds 1] [--only NAME,…] [--json FILE]

PAIRS_DIR is what `phrase-rescore train` keeps (MODEL_DIR.pairs); if it is not there, it is made of the benchmarks' table. A
candidate is the default preset with something changed; optimisers that `train` does not offer stand in for Adam in its loop.
`schedule-free` needs `pip install schedulefree`.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from inputs import fresh_task, stored_pairs
from torch import nn

from phrase_rescore.data.pair_store import PairStore
from phrase_rescore.rnn.config import PRESETS, TrainingConfig
from phrase_rescore.runtime import prepare, usable_cores
from phrase_rescore.training.config import Recipe
from phrase_rescore.training.loop import Trainer

DEFAULT = PRESETS["default"]
NEVER = 10**12


@dataclass(frozen=True)
class Candidate:
    config: TrainingConfig = DEFAULT
    optimizer: Callable[[Recipe, nn.Module], torch.optim.Optimizer] | None = None  # None: that of its recipe


def weight_decay(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=recipe.learning_rate, weight_decay=0.1, fused=True)


def short_memory(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), fused=True)


def schedule_free(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    from schedulefree import AdamWScheduleFree

    optimizer = AdamWScheduleFree(module.parameters(), lr=recipe.learning_rate, betas=(0.95, 0.999), warmup_steps=10)
    optimizer.train()
    module.register_forward_pre_hook(lambda *_: optimizer.train() if torch.is_grad_enabled() else optimizer.eval())
    return optimizer


CANDIDATES = {
    "default": Candidate(),
    "batch 128": Candidate(DEFAULT.override(batch_size=128)),
    "batch 512": Candidate(DEFAULT.override(batch_size=512)),
    "rate 5e-3": Candidate(DEFAULT.override(learning_rate=5e-3)),
    "rate 12e-3": Candidate(DEFAULT.override(learning_rate=12e-3)),
    "beta2 0.98": Candidate(optimizer=short_memory),
    "weight decay 0.1": Candidate(optimizer=weight_decay),
    "no decay of the rate": Candidate(DEFAULT.override(decay=False)),
    "schedule-free": Candidate(DEFAULT.override(decay=False, warm_up=0.0), schedule_free),
    "paper's initial weights": Candidate(DEFAULT.override(paper_initialisation=True)),
    "paper's recipe": Candidate(replace(PRESETS["paper"], network=DEFAULT.network)),
    "full softmax": Candidate(DEFAULT.override(softmax="full")),
    "200 units, 12e-3": Candidate(DEFAULT.override(hidden=200, learning_rate=12e-3)),
    "500 units": Candidate(DEFAULT.override(hidden=500)),
    "1000 units": Candidate(DEFAULT.override(hidden=1000)),
}


def run(candidate: Candidate, store: PairStore, limits: dict[str, Any], seed: int) -> dict[str, Any]:
    """Steps, pairs and held-out loss at the end of the run."""
    config = candidate.config.override(seed=seed, eval_every=NEVER, **limits)
    task, recipe = fresh_task(store, config), config.recipe
    trainer = Trainer(task, recipe, threads=usable_cores())
    if candidate.optimizer:
        trainer.optimizer = candidate.optimizer(recipe, task.module)
    outcome = trainer.fit()
    assert outcome.best
    return {"steps": outcome.steps, "pairs": outcome.steps * recipe.batch_size, "loss": outcome.best["loss"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--steps", type=int, help="in place of seconds, for a machine that has other work")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default=",".join(CANDIDATES))
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    prepare(usable_cores())
    store = stored_pairs(options.pairs)
    limits = {"max_steps": options.steps} if options.steps else {"max_time": options.seconds}
    print(f"{'':26s}   steps     pairs  nats a pair")
    results = {}
    for name in options.only.split(","):
        runs = [run(CANDIDATES[name], store, limits, seed) for seed in range(1, options.seeds + 1)]
        results[name] = runs
        loss = statistics.mean(r["loss"] for r in runs)
        print(f"{name:26s}{runs[0]['steps']:8,d}{runs[0]['pairs']:10,d}{loss:13.3f}", flush=True)
        if options.json:
            with open(options.json, "w") as stream:
                json.dump({**limits, "runs": results}, stream, indent=2)


if __name__ == "__main__":
    main()
