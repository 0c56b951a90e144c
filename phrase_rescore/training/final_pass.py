"""The end of a training: the held-out pairs, measured and needed for nothing else any more, are learnt like the others.

A table is annotated as a whole. What was held out scores lower in it than what was learnt, at equal φ, until it is learnt as
well; and higher, if it is learnt more. So the pass ends where held-out pairs cost as much as training pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from phrase_rescore.data.permutation import Permutation
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.training.loop import Recipe
from phrase_rescore.training.phrase_pairs import PhrasePairTask, held_out_figures

_RATE = 1e-4  # Adam's; so low that the other pairs do not suffer and a pass or more is needed, which goes over all alike
_PASSES, _STEPS = 20, 1000  # at most so many passes over the held-out pairs, or steps if these are more
_MEASURED, _EVERY = 8, 4  # so often a pass, but at most after every fourth step
_PATIENCE = 4
_CHOICE = 20  # training pairs for each held-out one, among which one of its lengths is looked for


def of_like_lengths(pairs: EncodedPairs, wanted: EncodedPairs, seed: int) -> EncodedPairs:
    """For each wanted pair one of ``pairs``, drawn at random, whose source and target are as long; none where there is none."""
    choice = Permutation(len(pairs), (seed, -1)).at(np.arange(min(len(pairs), _CHOICE * len(wanted))))
    sample = pairs.take(choice)
    keys, sought = ((p.src.lengths << 32) + p.tgt.lengths for p in (sample, wanted))
    order, sought = np.argsort(keys, kind="stable"), np.sort(sought)
    first, last = (np.searchsorted(keys[order], sought, side) for side in ("left", "right"))
    again = np.arange(len(sought)) - np.searchsorted(sought, sought)  # how many of these lengths come before
    there = last > first
    return sample.take(order[(first + again % np.maximum(last - first, 1))[there]])


class FinalPassTask(PhrasePairTask):
    """Minibatches of held-out pairs and as many training pairs, so that nothing is forgotten for the former.

    Either is drawn at random without replacement, pass after pass. What is to become small is the difference between the mean
    losses of the held-out pairs and of as many training pairs of the same lengths.
    """

    def __init__(self, task: PhrasePairTask, batch_size: int) -> None:
        half, pairs, held_out = max(1, batch_size // 2), task.pairs, task.held_out
        super().__init__(task.module, pairs, held_out, half, task.seed, task.device)
        self._learnt = PhrasePairTask(task.module, held_out, held_out, half, task.seed, task.device)
        self._like = of_like_lengths(pairs, held_out, task.seed)
        self._steps = math.ceil(len(held_out) / half)  # of a pass over the held-out pairs

    def recipe(self, learning_rate: float) -> Recipe:
        """Adam at a low rate, at most ``learning_rate``; the weights of the least difference are the result."""
        return Recipe(
            "adam", min(_RATE, learning_rate), "mean", clip=1.0, decay=False, max_steps=max(_PASSES * self._steps, _STEPS),
            eval_every=max(_EVERY, math.ceil(self._steps / _MEASURED)), patience=_PATIENCE,
        )  # fmt: skip

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        for held_out, others in zip(self._learnt.batches(first), super().batches(first), strict=False):  # neither ends
            yield held_out.followed_by(others)

    def evaluate(self) -> dict[str, float]:
        """``held_out`` and ``training``: losses in nats a pair; ``loss``: how far they lie apart."""
        held_out, training = (
            held_out_figures(self.module, pairs, self.device)["loss"] for pairs in (self.held_out, self._like)
        )
        return {"loss": abs(held_out - training), "held_out": held_out, "training": training}
