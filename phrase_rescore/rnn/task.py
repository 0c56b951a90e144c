"""The task of training on phrase pairs: random minibatches, the loss of the paper, the held-out measure, the final pass."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged
from phrase_rescore.data.sampling import Permutation, drawn_rows
from phrase_rescore.nn.softmax import SURE
from phrase_rescore.rnn.network import RNNEncoderDecoder, packed
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import Trainer

_EVALUATED = 512  # pairs at a time
WORTHWHILE = 20 * SURE  # words of a softmax from which on to draw some of them saves more than it takes
SAMPLED = 0.95  # share of a run during which the softmax is sampled; what is left mends what that leaves inexact
# With another source a held-out pair costs at least this share more, if the model reads its source and there are enough pairs
# to tell: 7 % after 20 steps, thrice as much after 200. Where sources and targets do not belong together it stays near 0
_READS, _FEWEST = 0.05, 20
_LOW = (1 << 32) - 1


def with_other_sources(pairs: EncodedPairs, seed: int = 0) -> tuple[EncodedPairs, Indices]:
    """Replace every source by another of equal length. Return the pairs for which there is one, and their rows."""
    rng = np.random.default_rng(seed)
    sources = [tuple(pairs.src.ids[a:b]) for a, b in zip(pairs.src.offsets, pairs.src.offsets[1:], strict=False)]
    other: dict[tuple[int, ...], tuple[int, ...]] = {}
    for length in sorted({len(s) for s in sources}):
        group = sorted({s for s in sources if len(s) == length})
        order = rng.permutation(len(group))
        if len(group) > 1:
            other.update((group[a], group[b]) for a, b in zip(order, np.roll(order, 1), strict=True))
    rows = np.array([i for i, source in enumerate(sources) if source in other], dtype=np.int64)
    return EncodedPairs(Ragged.of([other[sources[i]] for i in rows]), pairs.tgt.take(rows)), rows


@torch.no_grad()
def held_out_figures(model: nn.Module, pairs: EncodedPairs, device: torch.device | str = "cpu") -> dict[str, float]:
    """Return ``loss``, the negative log-likelihood per pair in nats, EOS included, and ``perplexity`` per word, EOS counted."""
    total, words = 0.0, 0
    for start in range(0, len(pairs), _EVALUATED):
        src, tgt = packed(pairs.take(np.arange(start, min(start + _EVALUATED, len(pairs)))), device)
        total += model(src, tgt).item()
        words += len(tgt.ids)
    return {"loss": total / len(pairs), "perplexity": math.exp(min(total / words, 700.0))}


def is_sampled(softmax: str, words: int, device: str) -> bool:
    """Return whether a softmax of this number of words is taken over drawn ones: a small one never, ``auto`` on a CPU."""
    return words >= WORTHWHILE and (softmax == "sampled" or (softmax == "auto" and device == "cpu"))


class Part(NamedTuple):
    """Pairs of a minibatch, and the seed of the words drawn for their softmax; None: it is over all words."""

    pairs: EncodedPairs
    seed: tuple[int, ...] | None = None
    dropout: tuple[int, ...] | None = None  # the seed of what is left out, where the network leaves out something


Network = TypeVar("Network", bound=nn.Module)  # from what ``packed`` returns and a seed to the summed loss


class PhrasePairTask(Generic[Network]):
    """Gives the loop every pair once a pass. ``sampled``: until SAMPLED of the run the softmax is taken over drawn words."""

    def __init__(
        self, model: Network, pairs: EncodedPairs, held_out: EncodedPairs, batch_size: int, seed: int,
        device: str = "cpu", sampled: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.pairs, self.held_out = model, pairs, held_out
        self.batch_size, self.seed, self.device, self.sampled = min(batch_size, len(pairs)), seed, device, sampled

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches of ``batch_size`` pairs, drawn at random without replacement, pass after pass (section 4.1)."""
        return map(self.pairs.take, drawn_rows(len(self.pairs), self.batch_size, self.seed, first))

    def parts(self, batch: EncodedPairs, parts: int, step: int = 0, done: float = 1.0) -> list[Part]:
        """Put every ``parts``-th pair in the order of lengths into a part, so that all parts have nearly the same work."""
        cut = [batch]
        if parts > 1:
            order = np.lexsort((batch.src.lengths, batch.tgt.lengths))
            cut = [batch.take(np.sort(order[i::parts])) for i in range(parts)]
        sampled = self.sampled and done < SAMPLED
        return [Part(pairs, (self.seed, step, number) if sampled else None) for number, pairs in enumerate(cut)]

    def loss(self, module: nn.Module, part: Part) -> Tensor:
        """Return the negative log-likelihood of the pairs in nats, a scalar."""
        if not len(part.pairs):  # fewer pairs than parts: nothing to add, but every process must take part in the backward pass
            return module(*packed(self.pairs.take(np.arange(1)), self.device)) * 0.0  # type: ignore[no-any-return]
        return module(*packed(part.pairs, self.device), part.seed)  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float] | None:
        """Return the held-out figures, None if no pairs are held out."""
        return held_out_figures(self.module, self.held_out, self.device) if len(self.held_out) else None

    def control(self) -> tuple[dict[str, float] | None, bool]:
        """Return the held-out figures with other sources of equal length, None without such, and if these cost hardly more."""
        exchanged, rows = with_other_sources(self.held_out)
        if not len(rows):
            return None, False
        figures = held_out_figures(self.module, exchanged, self.device)
        loss = held_out_figures(self.module, self.held_out.take(rows), self.device)["loss"]
        return figures, len(rows) >= _FEWEST and figures["loss"] < (1 + _READS) * loss


def matched_by_length(pairs: EncodedPairs, wanted: EncodedPairs, seed: int) -> EncodedPairs:
    """Draw for each wanted pair one, of 20 random ``pairs`` for each, whose source and target are as long, or else nearly."""
    sample = pairs.take(Permutation(len(pairs), (seed, -1)).at(np.arange(min(len(pairs), 20 * len(wanted)))))
    keys, sought = ((p.src.lengths << 32) + p.tgt.lengths for p in (sample, wanted))
    there, (distinct, which) = np.unique(keys), np.unique(sought, return_inverse=True)
    distance = (np.abs((there >> 32) - (key >> 32)) + np.abs((there & _LOW) - (key & _LOW)) for key in distinct)  # in words
    sought = np.sort(np.array([there[d.argmin()] for d in distance], np.int64)[which])
    order = np.argsort(keys, kind="stable")
    first, last = (np.searchsorted(keys[order], sought, side) for side in ("left", "right"))
    repeat = np.arange(len(sought)) - np.searchsorted(sought, sought)  # how many wanted pairs of these lengths come before
    return sample.take(order[first + repeat % (last - first)])


class FinalPassTask(PhrasePairTask[RNNEncoderDecoder]):
    """Trains on the held-out pairs. Half of a minibatch are training pairs, so that these are not forgotten.

    A table is annotated as a whole, and pairs that were not trained on score lower in it. So the pass ends where held-out
    pairs cost as much as training pairs of the same or the nearest lengths.
    """

    def __init__(self, task: PhrasePairTask[RNNEncoderDecoder], batch_size: int) -> None:
        half, pairs, held_out = max(1, batch_size // 2), task.pairs, task.held_out
        super().__init__(task.module, pairs, held_out, half, task.seed, task.device)
        self._trained = PhrasePairTask(task.module, held_out, held_out, half, task.seed, task.device)
        self._like = matched_by_length(pairs, held_out, task.seed)
        self._steps = math.ceil(len(held_out) / half)  # of a pass over the held-out pairs

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the recipe of the pass after a training by ``recipe``: Adam at a low rate, to the least difference."""
        return replace(
            recipe, optimizer="adam", objective="mean", decay=False, warm_up=0.0, max_time=None, patience=4,
            learning_rate=min(1e-4, recipe.learning_rate),  # so low that other pairs do not suffer and it takes a pass or more
            max_steps=max(20 * self._steps, 1000), eval_every=max(4, math.ceil(self._steps / 8)),  # 8 times a pass at most
        )  # fmt: skip

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches without end, from number ``first``."""
        for held_out, others in zip(self._trained.batches(first), super().batches(first), strict=False):  # neither ends
            yield held_out.concatenated(others)

    def evaluate(self) -> dict[str, float]:
        """Return the losses ``held_out`` and ``training`` in nats a pair, and as ``loss`` their difference."""
        parts = (self.held_out, self._like)
        held_out, training = (held_out_figures(self.module, pairs, self.device)["loss"] for pairs in parts)
        return {"loss": abs(held_out - training), "held_out": held_out, "training": training}


def learn_held_out(task: PhrasePairTask[RNNEncoderDecoder], trained: Trainer) -> dict[str, Any]:
    """Make the final pass as ``trained`` did the training; return its entry of config.json. Raises as ``Trainer.fit``."""
    said = -math.inf

    def report(record: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() >= said + 20.0:  # seconds
            losses, said = record["held_out"], time.monotonic()
            figures = f"held-out pairs {losses['held_out']:.3f} nats/pair, training pairs {losses['training']:.3f}"
            trained.observer.say(f"final pass, step {record['step']:,}: {figures}")

    final = FinalPassTask(task, trained.recipe.batch_size)
    threads, processes, observer = trained.threads, trained.processes, Observer(on_record=report)
    trainer = Trainer(final, final.recipe(trained.recipe), threads=threads, processes=processes, observer=observer)
    outcome = trainer.fit(evaluate_first=True)
    assert outcome.best
    return {"steps": outcome.best_step, "held_out": outcome.best["held_out"], "training": outcome.best["training"]}
