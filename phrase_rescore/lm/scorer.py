"""Exact log p of n-grams by a language model.

The first layer's part for a word at a place is one product for each distinct word there; both layers and the softmax's sum are
computed once a context, and a word once after each context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import ModelError
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.lm.network import Ngrams, ngrams_at
from phrase_rescore.nn.softmax import LogNormaliser

PAIRS = 16384  # of a context and a word, at a time: their rows are held twice
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

    def __init__(self, lm: LanguageModel, device: str = "cpu") -> None:
        self.lm = lm
        self.computed = 0  # words after a context, each once in a call
        self._model = lm.model.to(device)
        self._device = device
        self._log_z = LogNormaliser(self._model.G, self._model.b_G)

    @torch.no_grad()
    def log_probs(self, ngrams: Ngrams) -> NDArray[np.float64]:
        """Return log p of the words after their contexts: (m,). Raises ModelError if one is not finite."""
        contexts, which = _distinct(ngrams.contexts)
        order = np.argsort(which, kind="stable")  # n-grams by context, so that a block of contexts has a block of them
        ends = np.searchsorted(which[order], np.arange(CONTEXTS, len(contexts) + CONTEXTS, CONTEXTS))
        found = np.empty(len(which))
        for block, (start, end) in enumerate(pairwise([0, *ends.tolist()])):
            first = block * CONTEXTS
            rows = order[start:end]
            h_2 = self._hidden(contexts[first : first + CONTEXTS])
            pairs, place = _distinct(np.stack((which[rows] - first, ngrams.words[rows]), 1))
            self.computed += len(pairs)
            found[rows] = self._scores(h_2, self._log_z(h_2), pairs)[place]
        if not np.isfinite(found).all():
            raise ModelError("the language model's scores are not finite; train it again with a smaller --learning-rate")
        return found

    def _scores(self, h_2: Tensor, log_z: Tensor, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return (G h_2 + b_G)_word - log_z of pairs of a context and a word (m, 2): (m,)."""
        model, found = self._model, np.empty(len(pairs))
        for start in range(0, len(pairs), PAIRS):
            of, words = map(self._on_device, pairs[start : start + PAIRS].T.copy())
            scores = (h_2[of] * model.G[words]).sum(1) + model.b_G[words] - log_z[of]
            found[start : start + PAIRS] = scores.double().cpu().numpy()
        return found

    def sentences(self, sentences: Sequence[Sequence[bytes]]) -> SentenceScores:
        """Score sentences, lists of words; every one ends with EOS, whose log p is its last."""
        vocab = self.lm.vocab
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences)) + 1
        ends = np.cumsum(lengths)
        ids = np.full(int(ends[-1]) if len(ends) else 0, EOS, np.int32)
        inside = np.ones(len(ids), np.bool_)
        inside[ends - 1] = False
        ids[inside] = vocab.encode(list(chain.from_iterable(sentences)))
        ngrams = ngrams_at(ids, np.arange(len(ids)), self._model.config.order)
        return SentenceScores(self.log_probs(ngrams), ends - lengths, ids == UNK)

    def _hidden(self, contexts: NDArray[np.int64]) -> Tensor:
        """Return h_2 of distinct contexts: (m, R)."""
        model = self._model
        E = model.config.embedding
        h_1 = model.b_1.expand(len(contexts), -1).clone()
        for place in range(contexts.shape[1]):
            words, which = np.unique(contexts[:, place], return_inverse=True)
            U = model.U[:, place * E : (place + 1) * E]
            h_1 += (model.embedding[self._on_device(words)] @ U.T)[self._on_device(which)]  # Σ_j U_j e(w_{t-j})
        return torch.addmm(model.b_2, h_1.relu_(), model.W.T).relu_()

    def _on_device(self, ids: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(ids).to(self._device)
