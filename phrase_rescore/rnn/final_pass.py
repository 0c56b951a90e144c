"""The end of a training: the held-out pairs have served to measure it, and are now learnt like the others.

A table is annotated as a whole. At equal φ, held-out pairs score lower in it than training pairs until they are learnt as well,
and higher if they are learnt more. So the pass ends where held-out pairs cost as much as training pairs.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from phrase_rescore.data.permutation import Permutation
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.rnn.task import PhrasePairTask, held_out_figures
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import Trainer

_RATE = 1e-4  # of Adam; low enough that the other pairs do not suffer and that it takes a whole pass or more
_PASSES, _STEPS = 20, 1000  # the limit is so many passes over the held-out pairs, or so many steps if these are more
_MEASURED, _EVERY = 8, 4  # measured so often a pass, but at most at every fourth step
_PATIENCE = 4
_CHOICE = 20  # a partner of equal lengths is sought among so many training pairs for each held-out one
_SECONDS_BETWEEN = 20.0  # two reports
_LOW = (1 << 32) - 1


def matched_by_length(pairs: EncodedPairs, wanted: EncodedPairs, seed: int) -> EncodedPairs:
    """Draw for each wanted pair one of ``pairs`` whose source and target are as long, or else the nearest to that."""
    choice = Permutation(len(pairs), (seed, -1)).at(np.arange(min(len(pairs), _CHOICE * len(wanted))))
    sample = pairs.take(choice)
    keys, sought = ((p.src.lengths << 32) + p.tgt.lengths for p in (sample, wanted))
    there, (distinct, which) = np.unique(keys), np.unique(sought, return_inverse=True)
    distance = (np.abs((there >> 32) - (key >> 32)) + np.abs((there & _LOW) - (key & _LOW)) for key in distinct)  # in words
    sought = np.sort(np.array([there[d.argmin()] for d in distance], np.int64)[which])
    order = np.argsort(keys, kind="stable")
    first, last = (np.searchsorted(keys[order], sought, side) for side in ("left", "right"))
    repeat = np.arange(len(sought)) - np.searchsorted(sought, sought)  # how many wanted pairs of these lengths come before
    return sample.take(order[first + repeat % (last - first)])


class FinalPassTask(PhrasePairTask):
    """Gives the loop as many held-out pairs as training pairs in every minibatch, so that these are not forgotten for those.

    Both are drawn at random without replacement, pass after pass. What is to become small is the difference between the mean
    losses of the held-out pairs and of as many training pairs of the same or the nearest lengths.
    """

    def __init__(self, task: PhrasePairTask, batch_size: int) -> None:
        half, pairs, held_out = max(1, batch_size // 2), task.pairs, task.held_out
        super().__init__(task.module, pairs, held_out, half, task.seed, task.device)
        self._learnt = PhrasePairTask(task.module, held_out, held_out, half, task.seed, task.device)
        self._like = matched_by_length(pairs, held_out, task.seed)
        self._steps = math.ceil(len(held_out) / half)  # of a pass over the held-out pairs

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the recipe of the pass after a training by ``recipe``: Adam at a low rate, to the least difference."""
        return replace(
            recipe, optimizer="adam", learning_rate=min(_RATE, recipe.learning_rate), objective="mean", decay=False,
            warm_up=0.0, max_steps=max(_PASSES * self._steps, _STEPS), max_time=None,
            eval_every=max(_EVERY, math.ceil(self._steps / _MEASURED)), patience=_PATIENCE,
        )  # fmt: skip

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches without end, from number ``first``."""
        for held_out, others in zip(self._learnt.batches(first), super().batches(first), strict=False):  # neither ends
            yield held_out.concatenated(others)

    def evaluate(self) -> dict[str, float]:
        """Return the losses ``held_out`` and ``training`` in nats a pair, and as ``loss`` how far they lie apart."""
        held_out, training = (
            held_out_figures(self.module, pairs, self.device)["loss"] for pairs in (self.held_out, self._like)
        )
        return {"loss": abs(held_out - training), "held_out": held_out, "training": training}


def learn_held_out(task: PhrasePairTask, trained: Trainer) -> dict[str, Any]:
    """Make the final pass as ``trained`` did the training; return what config.json says about it.

    Raises NotFiniteError as ``Trainer.fit`` does.
    """
    said = -math.inf

    def report(record: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() >= said + _SECONDS_BETWEEN:
            losses, said = record["held_out"], time.monotonic()
            figures = f"held-out pairs {losses['held_out']:.3f} nats/pair, training pairs {losses['training']:.3f}"
            trained.observer.say(f"final pass, step {record['step']:,}: {figures}")

    final = FinalPassTask(task, trained.recipe.batch_size)
    threads, processes, observer = trained.threads, trained.processes, Observer(on_record=report)
    trainer = Trainer(final, final.recipe(trained.recipe), threads=threads, processes=processes, observer=observer)
    outcome = trainer.fit(evaluate_first=True)
    assert outcome.best
    return {"steps": outcome.best_step, "held_out": outcome.best["held_out"], "training": outcome.best["training"]}
