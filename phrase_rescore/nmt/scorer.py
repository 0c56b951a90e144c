"""log p(target | source) of sentence pairs, and the steps of the decoder that scoring and beam search share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged, distinct_phrases
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nn.cells import ResetAfter
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.shared_scoring import Predicted, SharedScoring
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.runtime import in_threads, set_tf32

WORDS = 65_536  # of both sides of pairs that share, some 2,000 pairs
BATCH = 8192  # such pairs at most
PADDED = 16384  # words of the distinct sources of a batch, each as long as the longest: 21 MB at H = 320


@dataclass(frozen=True)
class Sources:
    """What is read of sources, (m,)."""

    annotations: Tensor  # (m, T, A)
    there: Tensor  # (m, T) which are of words


class ReadyTranslation:
    """A translation model that reads words one by one on a device; threads may share it."""

    def __init__(self, translation: Translation, device: str) -> None:
        set_tf32("float32", device)
        self.network, self._device = translation.model.to(device), device
        with torch.inference_mode():
            read = self.network.read(torch.arange(-1, self.network.config.tgt_vocabulary, device=device))
            self._word_rows = self.network.first.word_rows(read)  # that of no word before all
            self.log_normaliser = LogNormaliser(self.network.tgt_embedding, self.network.b_G)

    def index(self, rows: Indices) -> Tensor:
        """Return row numbers on the device."""
        return torch.from_numpy(rows).to(self._device)

    def read(self, sources: Ragged) -> Sources:
        """Read sources without EOS, (m,)."""
        packed = PackedSequences.of(sources.with_eos(), self._device)
        annotations, there = self.network.annotations(packed)
        return Sources(annotations[packed.place], there[packed.place])

    def empty_prefixes(self, sources: Sources) -> SentencePrefixes:
        """Return the prefix of no word of each source."""
        m = len(sources.there)
        nothing = sources.annotations.new_zeros(1, self.network.config.hidden)
        return self.step(sources, np.arange(m), nothing, nothing, np.zeros(m, np.int64), np.full(m, -1))

    def step(
        self, sources: Sources, source: Indices, h: Tensor, s: Tensor, parents: Indices, words: Indices
    ) -> SentencePrefixes:
        """Read the next words (n,) after the states h and s (p, H) that ``parents`` (n,) name; return the prefixes (n,)."""
        after, network = self.index(parents), self.network
        h = _next_state(network.first, h, after, self._word_rows.index_select(0, self.index(words + 1)))
        z = self._attend(h, sources, source)
        s = _next_state(network.second, s, after, network.second.word_rows(torch.cat((h, z), 1)))
        return SentencePrefixes(self.log_normaliser, network.output(s, z, h), self, sources, source, h, s)

    def _attend(self, h: Tensor, sources: Sources, source: Indices) -> Tensor:
        """Return z of states h (n, H), (n, A): those of a source make products with its annotations, as many as usual each."""
        read, first, place, sizes = np.unique(source, return_index=True, return_inverse=True, return_counts=True)
        width = -(-len(source) // len(read))
        pieces = -(-sizes // width)
        rank = np.arange(len(source)) - first[place]
        piece = (np.cumsum(pieces) - pieces)[place] + rank // width
        row, column, live = map(self.index, (piece, rank % width, np.repeat(read, pieces)))
        padded = h.new_zeros(len(live), width, h.shape[1])
        padded[row, column] = h
        return self.network.attend(padded, sources.annotations[live], sources.there[live])[row, column]


@dataclass(frozen=True)
class SentencePrefixes(Predicted):
    """Beginnings of translations, (n,), of one length, those of a source together."""

    model: ReadyTranslation
    sources: Sources
    source: Indices  # (n,)
    h: Tensor  # (n, H)
    s: Tensor  # (n, H)

    def continued(self, parents: Indices, words: Indices) -> SentencePrefixes:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""
        distinct, place = np.unique(parents, return_inverse=True)
        before = self.model.index(distinct)
        return self.model.step(self.sources, self.source[parents], self.h[before], self.s[before], place, words)


class SentenceScorer:
    """Scores sentence pairs on a device (cpu, cuda, cuda:1), ``threads`` batches at a time."""

    def __init__(self, translation: Translation, device: str = "cpu", threads: int = 1) -> None:
        self.translation, self.model, self._threads = translation, ReadyTranslation(translation, device), threads
        model = self.model
        self._sharing = SharedScoring(lambda src: model.empty_prefixes(model.read(src)), device, BATCH)

    def log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return natural log p of the target of each pair, EOS included: (n,). Their order makes no difference."""
        of_src, of_tgt = (distinct_phrases(side)[1] for side in (pairs.src, pairs.tgt))
        # in order of length: sources of like length are read together
        first, which = np.unique(of_src * len(pairs) + of_tgt, return_index=True, return_inverse=True)[1:]
        distinct = pairs.take(first)
        parts = [distinct.take(rows) for rows in _padded_alike(distinct, of_src[first])]
        return np.concatenate((np.empty(0), *in_threads(self._sharing.log_probs, parts, self._threads)))[which]

    def encode(self, sentences: Sequence[Sequence[bytes]], side: int) -> Ragged:
        """Look up the words of sentences of the source (0) or target (1)."""
        vocabulary = (self.translation.src_vocab, self.translation.tgt_vocab)[side]
        return Ragged.of([vocabulary.encode(words).tolist() for words in sentences])


def _next_state(cell: ResetAfter, h: Tensor, after: Tensor, row: Tensor) -> Tensor:
    """Return the next output of a cell after the rows ``after`` (n,) of h (p, H), each of which is projected once: (n, H)."""
    return cell.step(cell.project((h,)).index_select(0, after), (h.index_select(0, after),), row)[0]


def _padded_alike(pairs: EncodedPairs, of_src: Indices) -> Iterator[Indices]:
    """Yield rows that share: some WORDS words, of sources that come to PADDED words when all are as long as the longest.

    The sources are in order of length; ``of_src`` numbers them. A part has all rows of a source, or some WORDS words of them.
    """
    words, start = pairs.src.offsets + pairs.tgt.offsets, 0
    while start < len(pairs):
        bound = words[start] + (WORDS if words[-1] - words[start] > 2 * WORDS else 2 * WORDS)  # none has few rows
        near = slice(start, max(start + 1, int(np.searchsorted(words, bound, side="right")) - 1))
        padded = (pairs.src.lengths[near] + 1) * (of_src[near] - of_src[start] + 1)
        own = int(np.searchsorted(of_src[near], of_src[start], side="right"))
        stop = start + max(own, int(np.searchsorted(padded, PADDED, side="right")))
        yield np.arange(start, stop)
        start = stop
