"""Exact log p of n-grams by a language model; without a command and without files, by ``TextModel``.

The first layer's part for a word at a place is one product for each distinct word there; both layers and the softmax's sum are
computed once a context, and a word once after each context.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.log_probs import SMALLER_RATE
from phrase_rescore.data.ragged import Ragged
from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.errors import ModelError
from phrase_rescore.lm.checkpoint import LanguageModel, load
from phrase_rescore.lm.network import Ngrams, ngrams_at
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nn.linear import times
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.runtime import in_threads, resolve_device

PAIRS = 16384  # of a context and a word, at a time: their rows are held twice
_SENTENCES = 4096  # of a ``TextModel``, at a time
CONTEXTS = 4096  # at a time: the rows of the first layer that are added up should stay in cache


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows of an array and which of them each row is."""
    order = np.lexsort(rows.T)
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows[order[1:]] != rows[order[:-1]]).any(1)
    which = np.empty(len(rows), np.int64)
    which[order] = np.cumsum(first) - 1
    return rows[order[first]], which


@dataclass(frozen=True)
class SentenceScores:
    """The scores of sentences with n words together, each sentence's EOS counted."""

    log_probs: NDArray[np.float64]  # (n,) natural log
    starts: NDArray[np.int64]  # (sentences,) where each begins
    unknown: NDArray[np.bool_]  # (n,) words that the model does not know

    def sums(self) -> NDArray[np.float64]:
        """Return log p of every sentence: (sentences,)."""
        return np.add.reduceat(self.log_probs, self.starts) if len(self.starts) else np.empty(0)


class NgramScorer:
    """Gives log p(word | context) by a language model, natural log."""

    def __init__(self, lm: LanguageModel, device: str = "cpu", threads: int = 1) -> None:
        """Load it on a device, to score ``threads`` blocks of contexts at a time."""
        self.lm = lm
        self._model = lm.model.to(device)
        self._device, self._threads = device, threads
        self._log_z = LogNormaliser(self._model.G, self._model.b_G)

    def log_probs(self, ngrams: Ngrams) -> NDArray[np.float64]:
        """Return log p of the words after their contexts: (m,). Those of a model that diverged may not be finite."""
        contexts, which = _distinct(ngrams.contexts)
        order = np.argsort(which, kind="stable")  # n-grams by context, so that a block of contexts has a block of them
        bounds = np.searchsorted(which[order], np.arange(CONTEXTS, len(contexts), CONTEXTS))
        log_p, blocks = np.empty(len(which)), np.split(order, bounds)

        @torch.no_grad()
        def score(block: int) -> None:
            first, rows = block * CONTEXTS, blocks[block]
            h_2 = self._hidden(contexts[first : first + CONTEXTS])
            pairs, place = _distinct(np.stack((which[rows] - first, ngrams.words[rows]), 1))
            log_p[rows] = self._scores(h_2, self._log_z(h_2), pairs)[place]

        in_threads(score, range(len(blocks)), self._threads)
        return log_p

    def _scores(self, h_2: Tensor, log_z: Tensor, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (G h_2 + b_G)_word - log_z of pairs of a context and a word (m, 2): (m,)."""
        model, log_p = self._model, np.empty(len(pairs))
        for start in range(0, len(pairs), PAIRS):
            rows, words = map(self._on_device, pairs[start : start + PAIRS].T.copy())
            scores = (h_2[rows] * model.G[words]).sum(1) + model.b_G[words] - log_z[rows]
            log_p[start : start + PAIRS] = scores.double().cpu().numpy()
        return log_p

    def sentences(self, sentences: Sequence[Sequence[bytes]]) -> SentenceScores:
        """Score sentences, lists of words; every one ends with EOS, whose log p is its last."""
        ends = np.cumsum(np.fromiter(map(len, sentences), np.int64, len(sentences)))
        words = self.lm.vocab.encode(list(chain.from_iterable(sentences)))
        text = Ragged(words, np.concatenate(([0], ends))).with_eos()
        ngrams = ngrams_at(text.ids, np.arange(len(text.ids)), self._model.config.order)
        return SentenceScores(self.log_probs(ngrams), text.offsets[:-1], text.ids == UNK)

    def _hidden(self, contexts: NDArray[np.int64]) -> Tensor:
        model = self._model
        E = model.config.embedding
        h_1 = model.b_1.expand(len(contexts), -1).clone()
        for place in range(contexts.shape[1]):
            words, which = np.unique(contexts[:, place], return_inverse=True)
            U = model.U[:, place * E : (place + 1) * E]
            h_1 += times(model.embedding[self._on_device(words)], U)[self._on_device(which)]  # Σ_j U_j e(w_{t-j})
        return times(h_1.relu_(), model.W, model.b_2).relu_()

    def _on_device(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(ids).to(self._device)


class TextModel:
    """A trained language model, ready to score sentences: tokenized as its corpus, blanks between words.

    Every sentence ends with ``</s>``, whose log p counts. ``<s>`` and ``</s>`` around a sentence are left out.
    """

    def __init__(self, lm: LanguageModel, device: str = "cpu") -> None:
        self.lm = lm
        self._scorer = NgramScorer(lm, resolve_device(device))

    @property
    def signature(self) -> str:
        """The line that names the model: its kind, its sizes, a hash of its weights and words, the version."""
        return self.lm.signature

    def score(self, sentences: Sequence[str | bytes]) -> NDArray[np.float64]:
        """Return natural log p of n sentences: (n,)."""
        return np.concatenate([found.sums() for found in self._scored(sentences)] or [np.empty(0)])

    def score_words(self, sentences: Sequence[str | bytes]) -> list[NDArray[np.float64]]:
        """Return natural log p of every word of each sentence, and of its ``</s>``: an array (words + 1,) each."""
        return [by_word for found in self._scored(sentences) for by_word in np.split(found.log_probs, found.starts[1:])]

    def perplexity(self, sentences: Sequence[str | bytes]) -> float:
        """Return the perplexity of all words and ``</s>`` together, unknown ones counted; NaN without sentences."""
        log_probs = [found.log_probs for found in self._scored(sentences)]
        return float(np.exp(-np.concatenate(log_probs).mean())) if log_probs else float("nan")

    def _scored(self, sentences: Sequence[str | bytes]) -> Iterator[SentenceScores]:
        """Score some sentences at a time: a word takes some hundred bytes meanwhile. Raises ModelError unless all is finite."""
        read = Sentences()
        for start in range(0, len(sentences), _SENTENCES):
            some = sentences[start : start + _SENTENCES]
            split = [read(sentence.encode() if isinstance(sentence, str) else sentence) for sentence in some]
            scores = self._scorer.sentences(split)
            if not np.isfinite(scores.log_probs).all():
                raise ModelError(f"the language model's scores are not finite; {SMALLER_RATE}")
            yield scores


def load_lm(lm: str | os.PathLike[str], *, device: str = "cpu") -> TextModel:
    """Load a language model that ``train_lm`` made, without running code of it. Raises ModelError or OptionError."""
    return TextModel(load(os.fspath(lm)), device)
