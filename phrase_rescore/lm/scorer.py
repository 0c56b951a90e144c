"""Exact log p of n-grams by a language model; and the mixture λ p_network + (1 − λ) p_ngram with an n-gram model.

The first layer's part for a word at a place is one product for each distinct word there; both layers and the softmax's sum are
computed once a context, and a word once after each context. The mixture's λ fits a text best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import ModelError, OptionError, shown
from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.lm.formats import NEVER, UNKNOWN, ArpaReader
from phrase_rescore.lm.network import Ngrams, ngrams_at
from phrase_rescore.moses.text import END, START
from phrase_rescore.nn.softmax import LogNormaliser

PAIRS = 16384  # of a context and a word, at a time: their rows are held twice
CONTEXTS = 4096  # at a time: the rows of the first layer that are added up should stay in cache
SENTENCES = 1024  # at a time
_STEPS, _CLOSE = 1000, 1e-7  # of EM, and how far λ may still move
_UNSEEN = -100.0  # KenLM's log10 p of other words, where the file has no <unk>
_LOG_10 = float(np.log(10.0))


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
    """Gives log p(word | context) by a language model, natural log. ``among``: ids of words, which alone sum to one then."""

    def __init__(self, lm: LanguageModel, device: str = "cpu", among: NDArray[np.int64] | None = None) -> None:
        self.lm = lm
        self.computed = 0  # words after a context, each once in a call
        self._model = lm.model.to(device)
        self._device = device
        words = slice(None) if among is None else self._on_device(among)
        self._log_z = LogNormaliser(self._model.G[words], self._model.b_G[words])

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


@dataclass(frozen=True)
class Mixture:
    """The scores of a text by the two models, alone and mixed. ``perplexities`` are those of the tokens that the file knows."""

    weight: float  # λ, of the network
    perplexities: dict[str, float]  # of the n-gram model, the network, the mixture
    including_unknown: dict[str, float]  # the same of all tokens
    tokens: int
    unknown: int  # words that the n-gram model does not know
    has_unk: bool  # whether it has a probability for those

    def lines(self) -> list[str]:
        """Return the lines of the report."""
        lines = [f"on the words that the n-gram model knows, all but {self.unknown:,} of {self.tokens:,} tokens:"]
        for name, including in self.including_unknown.items():
            lines.append(f"{name}: perplexity {including:.6g} including OOVs, {self.perplexities[name]:.6g} excluding OOVs")
        share = max(0.0, 1 - self.perplexities["mixture"] / self.perplexities["n-gram model"])
        lower = f"the mixture's perplexity is {share:.1%} lower than the n-gram model's"
        return [*lines, f"weight of the network, by EM on this text: {self.weight:.4f}; {lower}"]


def fit_mixture(scorer: NgramScorer, reader: ArpaReader, sentences: Sequence[Sequence[bytes]]) -> Mixture:
    """Return the mixture of a network, whose p(UNK) the file's unigrams share out, and an ARPA file's model on sentences."""
    if not sentences:
        raise OptionError("--interpolate needs text to find the weight, but there is none")
    backoff = BackoffModel(reader, sentences)
    ngram = np.array([p for sentence in sentences for p in backoff.log10_probs(sentence)]) * _LOG_10
    network = np.concatenate(list(_network_log_probs(scorer, backoff, sentences)))
    known = np.array([found for sentence in sentences for found in (*map(backoff.has, sentence), True)])  # its end, too
    weight = _weight(network[known], ngram[known])
    mixed = np.logaddexp(np.log(max(weight, 1e-300)) + network, np.log(max(1.0 - weight, 1e-300)) + ngram)
    of = {"n-gram model": ngram, "network": network, "mixture": mixed}
    excluding = {name: float(np.exp(-log_p[known].mean())) for name, log_p in of.items()}
    including = {name: float(np.exp(-log_p.mean())) for name, log_p in of.items()}
    return Mixture(weight, excluding, including, len(known), int((~known).sum()), UNKNOWN in backoff.unigrams)


def _network_log_probs(
    scorer: NgramScorer, backoff: BackoffModel, sentences: Sequence[Sequence[bytes]]
) -> Iterator[NDArray[np.float64]]:
    """Yield the network's log p of every token, p(UNK) shared out among the words that it does not know."""
    shares = unknown_shares(backoff.unigrams, scorer.lm.vocab.ids)
    for start in range(0, len(sentences), SENTENCES):
        some = sentences[start : start + SENTENCES]
        found, words = scorer.sentences(some), [word for sentence in some for word in (*sentence, b"")]
        of_word = zip(words, found.unknown.tolist(), strict=True)
        of_unknown = [np.log(shares.get(word, shares[UNKNOWN])) if unknown else 0.0 for word, unknown in of_word]
        yield found.log_probs + np.maximum(np.array(of_unknown), NEVER * _LOG_10)


def _weight(network: NDArray[np.float64], ngram: NDArray[np.float64]) -> float:
    """Find λ by EM: repeat the mean posterior of the network."""
    ratio, weight = np.exp(np.clip(ngram - network, -700, 700)), 0.5
    for _ in range(_STEPS):
        before, weight = weight, float((weight / (weight + (1.0 - weight) * ratio)).mean())
        if abs(weight - before) < _CLOSE:
            break
    return weight


class BackoffModel:
    """The part of an ARPA file that some sentences need; the file is never held. ``unigrams``: log10 p of all its words."""

    def __init__(self, reader: ArpaReader, sentences: Sequence[Sequence[bytes]]) -> None:
        self.order = len(reader.counts)
        self.unigrams = {word: ngram.log10_p for word, ngram in reader.unigrams.items()}
        self._ngrams = {ngram.words: ngram for ngram in reader.unigrams.values()}
        wanted = set(self._of(sentences))
        for ngram in islice(reader.ngrams(), len(self.unigrams), None):
            if ngram.words in wanted:
                if (context := ngram.words[:-1]) not in self._ngrams:
                    raise reader.error(f"n-grams after {shown(b' '.join(context))}, which the file lacks", "is the file whole?")
                self._ngrams.setdefault(ngram.words, ngram)

    def known(self, sentence: Sequence[bytes]) -> list[bytes]:
        """Return the words of a sentence, its start and its end, those that the file does not have as ``<unk>``."""
        return [START, *(word if self.has(word) else UNKNOWN for word in sentence), END]

    def has(self, word: bytes) -> bool:
        """Return whether the file has a word of a text, where ``<s>`` and the like do not count."""
        return word in self.unigrams and word not in (START, END, UNKNOWN)

    def _of(self, sentences: Sequence[Sequence[bytes]]) -> Iterator[tuple[bytes, ...]]:
        for sentence in sentences:
            words = self.known(sentence)
            for end in range(2, len(words) + 1):
                for n in range(2, min(self.order, end) + 1):
                    yield tuple(words[end - n : end])

    def log10_probs(self, sentence: Sequence[bytes]) -> list[float]:
        """Return log10 p of every word of a sentence, and of its end."""
        words = self.known(sentence)
        return [self._log10_p(words[max(0, end - self.order) : end]) for end in range(2, len(words) + 1)]

    def _log10_p(self, words: Sequence[bytes]) -> float:
        backoff = 0.0
        for start in range(len(words)):
            if found := self._ngrams.get(tuple(words[start:])):
                return found.log10_p + backoff
            if context := self._ngrams.get(tuple(words[start:-1])):
                backoff += context.log10_backoff
        return _UNSEEN + backoff


def unknown_shares(unigrams: Mapping[bytes, float], known: Mapping[bytes, int]) -> dict[bytes, float]:
    """Return which share each word outside of ``known`` has, ``<unk>`` among them, of the mass of all of these; sums to 1."""
    outside = {word: 10.0 ** max(p, NEVER) for word, p in unigrams.items() if word not in known and word not in (START, END)}
    outside.setdefault(UNKNOWN, 10.0**NEVER)
    total = sum(outside.values())
    return {word: p / total for word, p in outside.items()}
