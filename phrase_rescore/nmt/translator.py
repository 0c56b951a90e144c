"""Translations of sentences by the network alone: beam search over the states of many sources at once.

Sources of like length are translated together. A hypothesis is ranked by log p / (words + 1)^NORM. The model proposes UNK where
a word is missing from its vocabulary; in its place stands the source word that it attends to most there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import Indices, Ragged
from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nmt.network import TranslationModel, next_state
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.search import Decoded, beam_search, best_words
from phrase_rescore.runtime import set_tf32

NORM = 0.6
BEAM = 6
PREFIXES = 384  # the most that are worked on at once, unless those of one source are more: 23 MB of logits at K = 15,002
AHEAD = 4096  # sources that are sorted by length at a time

Words = Sequence[bytes]


def longest_target(source_words: int) -> int:
    """Return the most words of a translation."""
    return 2 * source_words + 10


@dataclass(frozen=True)
class _Sources:
    """What is read of sources, (m,)."""

    annotations: Tensor  # (m, T, A)
    there: Tensor  # (m, T) which are of words


class SentencePrefixes:
    """Beginnings of translations, as ``nn.search.Prefixes`` are: states h and s (n, H) after the words so far."""

    def __init__(
        self, model: TranslationModel, sources: _Sources, source: Indices, h: Tensor, s: Tensor, words: Tensor
    ) -> None:
        """Read the next ``words`` (n,), -1 before the first, after states h and s (n, H)."""
        self._model, self._sources, self.source = model, sources, source
        self._h = next_state(model.first, h, model.first.word_rows(model.read(words)))
        z = self._attend()
        self._s = next_state(model.second, s, model.second.word_rows(torch.cat((self._h, z), 1)))
        self._logits = torch.addmm(model.b_G, model.output(self._s, z, self._h), model.tgt_embedding.T)
        self._log_z = self._logits.logsumexp(1)
        self._eos = self._logits[:, EOS] - self._log_z

    def _attend(self) -> Tensor:
        """Return z of each state, (n, A): the prefixes of a source make one product with its annotations."""
        sources, first, place, sizes = np.unique(self.source, return_index=True, return_inverse=True, return_counts=True)
        rank = np.arange(len(place)) - first[place]
        row, column, live = (torch.from_numpy(x).to(self._h.device) for x in (place, rank, sources))
        h = self._h.new_zeros(len(sources), int(sizes.max()), self._h.shape[1])
        h[row, column] = self._h
        return self._model.attend(h, self._sources.annotations[live], self._sources.there[live])[row, column]

    def next_words(self, k: int, barred: Tensor) -> tuple[NDArray[np.float64], Indices]:
        """Return log p of the k best words after every prefix, and their ids: (n, k)."""
        values, ids = best_words(self._logits, k, barred)
        return (values - self._log_z[:, None]).double().cpu().numpy(), ids.cpu().numpy()

    def eos_log_p(self) -> NDArray[np.float64]:
        """Return natural log p of the end after each prefix: (n,)."""
        return self._eos.double().cpu().numpy()

    def continued(self, parents: Indices, words: Indices) -> SentencePrefixes:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""
        after, read = (torch.from_numpy(x).to(self._h.device) for x in (parents, words))
        return SentencePrefixes(self._model, self._sources, self.source[parents], self._h[after], self._s[after], read)


@dataclass(frozen=True)
class SentenceHypothesis:
    """A translation: its words, natural log p as ``rescore`` gives it, and log p / (words + 1)^NORM, by which it is ranked."""

    words: tuple[bytes, ...]
    log_p: float
    score: float


class SentenceTranslator:
    """Translates sentences on a device: cpu, cuda, cuda:1."""

    def __init__(self, translation: Translation, device: str = "cpu") -> None:
        set_tf32("float32", device)
        self.translation, self._device, self._model = translation, device, translation.model.to(device)
        self._scorer = SentenceScorer(translation, device)
        self._words = (b"</s>", b"<unk>", *translation.tgt_vocab.words)
        self._barred = torch.tensor([EOS], device=device)

    @torch.inference_mode()
    def n_best(self, sources: Sequence[Words], n: int = 1, beam: int | None = None) -> list[list[SentenceHypothesis]]:
        """Return the n best translations of every source that a beam finds (default: n, and BEAM at least), best first.

        Of an empty source it is the empty one. Hypotheses that are equal with source words in place of UNK come once.
        """
        width, found = beam or max(n, BEAM), [list[SentenceHypothesis]()] * len(sources)
        for rows in self._batches(sources, max(1, PREFIXES // width)):
            read = self._read(Ragged.of([self.translation.src_vocab.encode(sources[i]).tolist() for i in rows]))
            longest = [longest_target(len(sources[i])) for i in rows]
            decoded = beam_search(self._empty(read), longest, n, width, len(self._words), self._barred, NORM)
            texts = self._texts([sources[i] for i in rows], decoded, read)
            for i, of_source, words in zip(rows, decoded, texts, strict=True):
                found[i] = self._ranked(sources[i], of_source, words, n > 1)
        return [hypotheses or [SentenceHypothesis((), 0.0, 0.0)] for hypotheses in found]

    def _batches(self, sources: Sequence[Words], at_once: int) -> Iterator[list[int]]:
        """Yield rows of sources of like length together, without empty ones."""
        for start in range(0, len(sources), AHEAD):
            rows = [i for i in range(start, min(start + AHEAD, len(sources))) if sources[i]]
            rows.sort(key=lambda i: len(sources[i]))
            yield from (rows[first : first + at_once] for first in range(0, len(rows), at_once))

    def _read(self, sources: Ragged) -> _Sources:
        packed = PackedSequences.of(sources.with_eos(), self._device)
        annotations, there = self._model.annotations(packed)
        return _Sources(annotations[packed.place], there[packed.place])

    def _empty(self, sources: _Sources) -> SentencePrefixes:
        n = len(sources.there)
        nothing = sources.annotations.new_zeros(n, self._model.config.hidden)
        words = torch.full((n,), -1, device=self._device)
        return SentencePrefixes(self._model, sources, np.arange(n), nothing, nothing, words)

    def _texts(
        self, sources: Sequence[Words], found: Sequence[Sequence[Decoded]], read: _Sources
    ) -> list[list[tuple[bytes, ...]]]:
        """Return the words of hypotheses. UNK becomes the source word with the largest α before it."""
        copies = [(row, decoded.words) for row, of_source in enumerate(found) for decoded in of_source if UNK in decoded.words]
        attended = iter(self._attended(copies, read))

        def named(source: Words, ids: Sequence[int]) -> tuple[bytes, ...]:
            places = next(attended) if UNK in ids else ids
            return tuple(source[place] if id == UNK else self._words[id] for id, place in zip(ids, places, strict=False))

        return [[named(source, one.words) for one in of_source] for source, of_source in zip(sources, found, strict=True)]

    def _attended(self, targets: Sequence[tuple[int, Sequence[int]]], read: _Sources) -> list[list[int]]:
        """Return which source word is attended to most before each word of targets, which have the rows of their sources."""
        if not targets:
            return []
        tgt = PackedSequences.of(Ragged.of([list(ids) for _, ids in targets]).with_eos(), self._device)
        rows = torch.tensor([row for row, _ in targets], device=self._device)[tgt.order]
        there = read.there[rows]
        there[torch.arange(len(rows)), there.sum(1) - 1] = False  # not EOS
        weights = self._model.attention(self._model.states(tgt)[1], read.annotations[rows], there)
        places: list[list[int]] = weights.argmax(2)[tgt.place].tolist()
        return places

    def _ranked(
        self, source: Words, found: Sequence[Decoded], texts: Sequence[tuple[bytes, ...]], exact: bool
    ) -> list[SentenceHypothesis]:
        """Return hypotheses by their scores, each text once. ``exact``: a copy may be a word that the model knows."""
        log_p = dict[tuple[bytes, ...], float]()
        for words, decoded in zip(texts, found, strict=True):
            log_p.setdefault(words, decoded.log_p)
        copied = [words for words, decoded in zip(texts, found, strict=True) if UNK in decoded.words]
        if exact and copied:
            targets = self._scorer.encode(copied, 1)
            log_p |= zip(copied, self._scorer.log_probs(self._scorer.encode([source], 0), targets).tolist(), strict=True)
        hypotheses = [SentenceHypothesis(words, p, p / (len(words) + 1) ** NORM) for words, p in log_p.items()]
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
