"""The mixture λ p_network + (1 − λ) p_ngram of a language model with an n-gram model; λ fits a text best."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import OptionError
from phrase_rescore.lm.arpa import UNKNOWN, ArpaReader, BackoffModel
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.text import END, START

SENTENCES = 1024  # at a time
Floats = NDArray[np.float64]
_NEVER = -99.0  # log10 of the least probability
_LOG_10 = float(np.log(10.0))


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


def _network_log_probs(scorer: NgramScorer, backoff: BackoffModel, sentences: Sequence[Sequence[bytes]]) -> Iterator[Floats]:
    """Yield the network's log p of every token, p(UNK) shared out among the words that it does not know."""
    shares = unknown_shares(backoff.unigrams, scorer.lm.vocab.ids)
    for start in range(0, len(sentences), SENTENCES):
        some = sentences[start : start + SENTENCES]
        found, words = scorer.sentences(some), [word for sentence in some for word in (*sentence, b"")]
        of_word = zip(words, found.unknown.tolist(), strict=True)
        of_unknown = [np.log(shares.get(word, shares[UNKNOWN])) if unknown else 0.0 for word, unknown in of_word]
        yield found.log_probs + np.maximum(np.array(of_unknown), _NEVER * _LOG_10)


def _weight(network: Floats, ngram: Floats) -> float:
    """Find λ by EM: repeat the mean posterior of the network."""
    ratio, weight = np.exp(np.clip(ngram - network, -700, 700)), 0.5
    for _ in range(1000):
        before, weight = weight, float((weight / (weight + (1.0 - weight) * ratio)).mean())
        if abs(weight - before) < 1e-7:
            break
    return weight


def unknown_shares(unigrams: Mapping[bytes, float], known: Mapping[bytes, int]) -> dict[bytes, float]:
    """Return which share each word outside of ``known`` has, ``<unk>`` among them, of the mass of all of these; sums to 1."""
    outside = {word: 10.0 ** max(p, _NEVER) for word, p in unigrams.items() if word not in known and word not in (START, END)}
    outside.setdefault(UNKNOWN, 10.0**_NEVER)
    total = sum(outside.values())
    return {word: p / total for word, p in outside.items()}
