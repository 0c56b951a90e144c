"""log p of the targets of many pairs, each distinct source and each beginning of its targets computed once, whatever the model.

Scores are those of the pairs one by one, up to rounding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged, distinct_phrases, prefix_levels
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.errors import RescoreError
from phrase_rescore.nn.softmax import LogNormaliser, NextWords

BATCH_WORDS = 64  # for each pair of a full batch; one of longer pairs has fewer of them, since memory grows with the words


class Prefixes(Protocol):
    """Beginnings of targets, (n,), of one length."""

    def eos_log_p(self) -> NDArray[np.float64]:
        """Return natural log p of the target's end after each prefix: (n,)."""

    def word_log_p(self, parents: Indices, words: Indices) -> NDArray[np.float64]:
        """Return natural log p of the words (m,), each after the prefix that ``parents`` (m,) names: (m,)."""

    def continued(self, parents: Indices, words: Indices) -> Self:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""


@dataclass(frozen=True)
class Predicted:
    """What comes after n prefixes: word k with log p = (G_l g_i + b)_k - log Z_i, natural log."""

    softmax: LogNormaliser
    g: Tensor  # (n, R)

    @cached_property
    def log_z(self) -> Tensor:
        """Log Z of each, (n,)."""
        return self.softmax(self.g)

    def next_words(self, k: int, barred: Tensor) -> NextWords:
        """Return log p of the end and of the k best words after every prefix."""
        return self.softmax.next_words(self.g, k, barred)

    def eos_log_p(self) -> NDArray[np.float64]:
        """Return log p of the target's end after each prefix: (n,)."""
        return ((self.g @ self.softmax.G_l[EOS] + self.softmax.b[EOS]) - self.log_z).double().cpu().numpy()

    def word_log_p(self, parents: Indices, words: Indices) -> NDArray[np.float64]:
        """Return log p of the words (m,), each after the prefix that ``parents`` (m,) names: (m,)."""
        after, next_words = (torch.from_numpy(rows).to(self.g.device) for rows in (parents, words))
        logits = (self.g[after] * self.softmax.G_l[next_words]).sum(1) + self.softmax.b[next_words]
        return (logits - self.log_z[after]).double().cpu().numpy()


class SharedScoring:
    """Scores pairs, ``batch`` at a time, which is halved when the device runs out of memory. Threads may share it."""

    def __init__(self, empty_prefixes: Callable[[Ragged], Prefixes], device: str, batch: int) -> None:
        """Take what reads distinct sources and returns the prefix of no word of each."""
        self._empty_prefixes, self._device, self.batch = empty_prefixes, device, batch

    def word_log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return natural log p of every target word and of EOS, pair after pair: (Σ (length + 1),). Raises RescoreError."""
        return np.concatenate((np.empty(0), *self._in_batches(pairs)))

    def log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return natural log p of the target of every pair, EOS included: (n,)."""
        flat = self.word_log_probs(pairs)
        return np.add.reduceat(flat, pairs.tgt.with_eos().offsets[:-1]) if len(pairs) else flat

    def _in_batches(self, pairs: EncodedPairs) -> Iterator[NDArray[np.float64]]:
        """Yield the scores of ``batch`` pairs at a time, fewer long ones, half as many whenever memory runs out."""
        start, words_before = 0, pairs.src.offsets + pairs.tgt.offsets
        while start < len(pairs):
            batch = self.batch
            within = int(np.searchsorted(words_before, words_before[start] + BATCH_WORDS * batch, side="right")) - 1
            stop = min(start + batch, max(start + 1, within), len(pairs))
            try:
                part = self._together(pairs.take(np.arange(start, stop)))
            except torch.OutOfMemoryError:
                if batch == 1:
                    found = f"{self._device}: out of memory for a single pair"
                    raise RescoreError(f"{found}; name another --device") from None
                self.batch = min(self.batch, batch // 2)  # another thread may have halved it already
                torch.cuda.empty_cache()
                continue
            yield part
            start = stop

    @torch.inference_mode()
    def _together(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return log p of every target word and of EOS of pairs that share their work."""
        first, node_of = distinct_phrases(pairs.src)  # of each row its node
        offsets, lengths = pairs.tgt.with_eos().offsets, pairs.tgt.lengths
        result = np.empty(int(offsets[-1]))
        rows = np.arange(len(pairs))
        levels = prefix_levels(pairs.tgt, node_of)
        prefixes = self._empty_prefixes(pairs.src.take(first))
        for t in range(len(levels) + 1):
            ends = lengths[rows] == t
            result[offsets[rows[ends]] + t] = prefixes.eos_log_p()[node_of[ends]]
            if t < len(levels):
                level = levels[t]
                rows, node_of = level.rows, level.nodes
                result[offsets[rows] + t] = prefixes.word_log_p(level.parents, level.words)[node_of]
                prefixes = prefixes.continued(level.parents, level.words)
        return result
