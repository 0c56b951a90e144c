"""Translations of sentences by the network alone: beam search over the states of many sources at once.

Sources of like length are translated together. A hypothesis is ranked by log p / (words + 1)^NORM. The model proposes UNK where
a word is missing from its vocabulary; in its place stands the source word that it attends to most there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nmt.scorer import SentenceScorer, Sources
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.search import Decoded, beam_search
from phrase_rescore.runtime import in_threads

NORM = 0.6
BEAM = 6
PREFIXES = 384  # the most that are worked on at once, unless those of one source are more: 23 MB of logits at K = 15,002
AHEAD = 4096  # sources that are sorted by length at a time

Words = Sequence[bytes]


def longest_target(source_words: int) -> int:
    """Return the most words of a translation."""
    return 2 * source_words + 10


@dataclass(frozen=True)
class SentenceHypothesis:
    """A translation: its words, natural log p as ``rescore`` gives it, and log p / (words + 1)^NORM, by which it is ranked."""

    words: tuple[bytes, ...]
    log_p: float
    score: float


class SentenceTranslator:
    """Translates sentences on a device (cpu, cuda, cuda:1), ``threads`` batches at a time."""

    def __init__(self, translation: Translation, device: str = "cpu", threads: int = 1) -> None:
        self.translation, self._device, self._threads = translation, device, threads
        self._scorer = SentenceScorer(translation, device)
        self._model = self._scorer.model
        self._words = (b"</s>", b"<unk>", *translation.tgt_vocab.words)
        self._barred = torch.tensor([EOS], device=device)

    def n_best(self, sources: Sequence[Words], n: int = 1, beam: int | None = None) -> list[list[SentenceHypothesis]]:
        """Return the n best translations of every source that a beam finds (default: n, and BEAM at least), best first.

        Of an empty source it is the empty one. Hypotheses that are equal with source words in place of UNK come once.
        """
        width, found = beam or max(n, BEAM), [list[SentenceHypothesis]()] * len(sources)

        @torch.inference_mode()
        def translate(rows: Sequence[int]) -> None:
            read = self._model.read(self._scorer.encode([sources[i] for i in rows], 0))
            longest = [longest_target(len(sources[i])) for i in rows]
            decoded = beam_search(self._model.empty_prefixes(read), longest, n, width, len(self._words), self._barred, NORM)
            texts = self._texts([sources[i] for i in rows], decoded, read)
            for i, of_source, words in zip(rows, decoded, texts, strict=True):
                found[i] = self._ranked(sources[i], of_source, words, n > 1)

        in_threads(translate, list(self._batches(sources, max(1, PREFIXES // width))), self._threads)
        return [hypotheses or [SentenceHypothesis((), 0.0, 0.0)] for hypotheses in found]

    def _batches(self, sources: Sequence[Words], at_once: int) -> Iterator[list[int]]:
        """Yield rows of sources of like length together, without empty ones, the longest first: they take longest."""
        for start in range(0, len(sources), AHEAD):
            rows = [i for i in range(start, min(start + AHEAD, len(sources))) if sources[i]]
            rows.sort(key=lambda i: -len(sources[i]))
            yield from (rows[first : first + at_once] for first in range(0, len(rows), at_once))

    def _texts(
        self, sources: Sequence[Words], found: Sequence[Sequence[Decoded]], read: Sources
    ) -> list[list[tuple[bytes, ...]]]:
        """Return the words of hypotheses. UNK becomes the source word with the largest α before it."""
        copies = [(row, decoded.words) for row, of_source in enumerate(found) for decoded in of_source if UNK in decoded.words]
        attended = iter(self._attended(copies, read))

        def named(source: Words, ids: Sequence[int]) -> tuple[bytes, ...]:
            places = next(attended) if UNK in ids else ids
            return tuple(source[place] if id == UNK else self._words[id] for id, place in zip(ids, places, strict=False))

        return [[named(source, one.words) for one in of_source] for source, of_source in zip(sources, found, strict=True)]

    def _attended(self, targets: Sequence[tuple[int, Sequence[int]]], read: Sources) -> list[list[int]]:
        """Return which source word is attended to most before each word of targets, which have the rows of their sources."""
        if not targets:
            return []
        tgt = PackedSequences.of(Ragged.of([list(ids) for _, ids in targets]).with_eos(), self._device)
        rows = torch.tensor([row for row, _ in targets], device=self._device)[tgt.order]
        there = read.there[rows]
        there[torch.arange(len(rows)), there.sum(1) - 1] = False  # not EOS
        network = self._model.network
        weights = network.attention(network.states(tgt)[1], read.annotations[rows], there)
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
            pairs = EncodedPairs(self._scorer.encode([source] * len(copied), 0), self._scorer.encode(copied, 1))
            log_p |= zip(copied, self._scorer.log_probs(pairs).tolist(), strict=True)
        hypotheses = [SentenceHypothesis(words, p, p / (len(words) + 1) ** NORM) for words, p in log_p.items()]
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
