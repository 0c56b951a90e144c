"""The task of training on pairs of phrases or of sentences: minibatches, their loss, the held-out measure, its control."""

import math
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged
from phrase_rescore.data.sampling import drawn_rows
from phrase_rescore.nn.packed import pack_pairs
from phrase_rescore.nn.softmax import SURE
from phrase_rescore.progress import Say

_EVALUATED = 512  # pairs at a time
WORTHWHILE = 20 * SURE  # words of a softmax from which on to draw some of them saves more than it takes
SAMPLED = 0.95  # share of a run during which the softmax is sampled; what is left mends what that leaves inexact
# With another source a held-out pair costs at least this share more, if the model reads its source and there are enough pairs
# to tell: 7 % after 20 steps, thrice as much after 200. Where sources and targets do not belong together it stays near 0
_READS, _FEWEST = 0.05, 20


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
        src, tgt = pack_pairs(pairs.take(np.arange(start, min(start + _EVALUATED, len(pairs)))), device)
        total += model(src, tgt).item()
        words += len(tgt.ids)
    return {"loss": total / len(pairs), "perplexity": math.exp(min(total / words, 700.0))}


def is_sampled(softmax: str, words: int, device: str) -> bool:
    """Return whether a softmax of this number of words is taken over drawn ones: a small one never, ``auto`` on a CPU."""
    return words >= WORTHWHILE and (softmax == "sampled" or (softmax == "auto" and device == "cpu"))


class Part(NamedTuple):
    """Pairs of a minibatch, and seeds: of the words drawn for their softmax, None if it is over all, and of dropout if any."""

    pairs: EncodedPairs
    seeds: tuple[tuple[int, ...] | None, ...] = ()


# From pairs, the size of a minibatch, a seed and a number: minibatches without end, from that number on
Minibatches = Callable[[EncodedPairs, int, int, int], Iterator[EncodedPairs]]


def at_random(pairs: EncodedPairs, size: int, seed: int, first: int) -> Iterator[EncodedPairs]:
    """Yield minibatches of ``size`` pairs, drawn at random without replacement, pass after pass (section 4.1)."""
    return map(pairs.take, drawn_rows(len(pairs), size, seed, first))


Network = TypeVar("Network", bound=nn.Module)  # from what ``pack_pairs`` returns and seeds to the summed loss


class PairTask(Generic[Network]):
    """Gives the loop every pair once a pass, as ``loop.Task`` says.

    ``sampled``: until SAMPLED of the run the softmax is taken over drawn words. ``minibatches``: their order. ``drops``: the
    network gets a seed of dropout, made of the numbers of step and part.
    """

    def __init__(
        self, module: Network, pairs: EncodedPairs, held_out: EncodedPairs, batch_size: int, seed: int,
        device: str = "cpu", sampled: bool = False, minibatches: Minibatches = at_random, drops: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.pairs, self.held_out = module, pairs, held_out
        self.batch_size, self.seed, self.device, self.sampled = min(batch_size, len(pairs)), seed, device, sampled
        self._minibatches, self._drops = minibatches, drops

    def batches(self, first: int = 0) -> Iterator[EncodedPairs]:
        """Yield minibatches from number ``first`` on."""
        return self._minibatches(self.pairs, self.batch_size, self.seed, first)

    def parts(self, batch: EncodedPairs, parts: int, step: int = 0, done: float = 1.0) -> list[Part]:
        """Put every ``parts``-th pair in the order of lengths into a part, so that all parts have nearly the same work."""
        cut = [batch]
        if parts > 1:
            order = np.lexsort((batch.src.lengths, batch.tgt.lengths))
            cut = [batch.take(np.sort(order[i::parts])) for i in range(parts)]
        sampled, result = self.sampled and done < SAMPLED, []
        for number, pairs in enumerate(cut):
            seed = (self.seed, step, number)
            result.append(Part(pairs, (seed if sampled else None, *([seed] if self._drops else []))))
        return result

    def loss(self, module: nn.Module, part: Part) -> Tensor:
        """Return the negative log-likelihood of the pairs in nats, a scalar."""
        if not len(part.pairs):  # fewer pairs than parts: nothing to add, but every process must take part in the backward pass
            return module(*pack_pairs(self.pairs.take(np.arange(1)), self.device)) * 0.0  # type: ignore[no-any-return]
        return module(*pack_pairs(part.pairs, self.device), *part.seeds)  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float] | None:
        """Return the held-out figures, None if no pairs are held out."""
        return held_out_figures(self.module, self.held_out, self.device) if len(self.held_out) else None

    def control(self, warn: Say, remedy: str) -> dict[str, float] | None:
        """Return the held-out figures with other sources of equal length, None without such. Warn if they cost hardly more."""
        exchanged, rows = with_other_sources(self.held_out)
        if not len(rows):
            return None
        figures = held_out_figures(self.module, exchanged, self.device)
        loss = held_out_figures(self.module, self.held_out.take(rows), self.device)["loss"]
        if len(rows) >= _FEWEST and figures["loss"] < (1 + _READS) * loss:
            warn(f"the model hardly reads its source: held-out pairs cost nearly the same with other sources; {remedy}")
        return figures
