"""Phrases that a model proposes: the n most probable targets of sources, by beam search, or targets drawn at random.

Beam search is that of ``nn.search``. Nothing is normalised by length.

Sampling draws word by word, by a race: word k of weight w_k arrives after a time that is exponential with rate w_k, so that it
is the first with probability w_k / Σ w. Other batches, which are rounded otherwise, then change a draw only where two words
arrive almost together, once in some million draws. Every sample has its own random numbers, by seed, source and number.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from phrase_rescore.data.ragged import Indices, Ragged, distinct_phrases
from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import RowError
from phrase_rescore.moses.table import SEPARATOR, phrase_words, words
from phrase_rescore.nn.search import Decoded, beam_search
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.scorer import ReadyModel

MAX_LENGTH = 20  # words; phrases of a table seldom have more than 7
BEAM = 10
PREFIXES = 2048  # the most that are worked on at once, unless those of one source are more
DRAWS = 128  # draws whose random numbers are: 15 MB at K = 15,002


@dataclass(frozen=True)
class Hypothesis:
    """A phrase of the side that the model predicts: a target, or a source of an inverse model."""

    target: bytes  # words between single blanks; an unknown one is UNK
    log_p: float  # natural log p(target | source), EOS included
    unknown: int  # how many of its words are UNK


def streams(seed: int, source: bytes, number: int) -> list[Generator]:
    """Return the random numbers of every sample of a source."""
    digest = hashlib.blake2b(source, digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    return [Generator(Philox(key=[int.from_bytes(digest, "little"), i])) for i in range(number)]


def _draw(weights: Tensor, rows: Indices, random: Sequence[Generator]) -> Indices:
    """Draw a word for each of ``rows`` (m,) of the weights, with the random numbers of its sample: (m,)."""
    words = []
    for start in range(0, len(rows), DRAWS):
        some = rows[start : start + DRAWS]
        times = np.empty((len(some), weights.shape[1]))
        for time, stream in zip(times, random[start : start + DRAWS], strict=True):
            stream.standard_exponential(out=time)
        speeds = weights[torch.from_numpy(some).to(weights.device)].double()
        words.append(speeds.div_(torch.from_numpy(times).to(weights.device)).argmax(1).cpu().numpy())
    return np.concatenate(words)


@torch.inference_mode()
def sample(model: ReadyModel, c: Tensor, random: Sequence[Generator], max_length: int, barred: Tensor) -> list[list[Decoded]]:
    """Draw a target with each of the ``random`` streams, as many for each summary c (sources, H), in their order.

    ``barred`` words, EOS among them for the first word, never come. log p is the model's own, among all words.
    """
    number = len(random) // len(c)
    words: list[list[int]] = [[] for _ in random]
    log_p = np.zeros(len(random))
    prefixes = model.empty_prefixes(c)
    live, node = np.arange(len(random)), np.repeat(np.arange(len(c)), number)  # samples that continue, and their prefix
    may_end = barred[barred != EOS]
    for length in range(max_length):
        if not len(live):
            break
        logits = model.logits(prefixes.g).index_fill_(1, may_end if length else barred, -torch.inf)
        weights = logits.sub_(logits.amax(1, keepdim=True)).exp_()
        drawn = _draw(weights, node, [random[i] for i in live.tolist()])
        log_p[live] += prefixes.word_log_p(node, drawn)
        continued = drawn != EOS
        live, node, drawn = live[continued], node[continued], drawn[continued]
        for i, word in zip(live.tolist(), drawn.tolist(), strict=True):
            words[i].append(word)
        radix = weights.shape[1]
        distinct, node = np.unique(node * radix + drawn, return_inverse=True)
        if len(distinct):
            prefixes = prefixes.continued(distinct // radix, distinct % radix)
    log_p[live] += prefixes.eos_log_p()[node]
    targets = [Decoded(*one) for one in zip(words, log_p.tolist(), strict=True)]
    # None where a model's numbers overflow, or where it has no word to propose
    of_sources = (targets[start : start + number] for start in range(0, len(targets), number))
    return [[decoded for decoded in drawn if decoded.words and math.isfinite(decoded.log_p)] for drawn in of_sources]


def can_stand_in_a_table(word: bytes) -> bool:
    """Return whether a word can be part of a phrase pair: ``[X]`` and a word with a separator in it cannot."""
    try:
        phrase_words(word, "target")
    except RowError:
        return False
    return SEPARATOR not in word


class Translator:
    """Proposes phrases of the predicted side, of 1 to ``max_length`` words of the vocabulary that can stand in a table."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint, self._model = checkpoint, ReadyModel(checkpoint, device)
        predicted = checkpoint.vocabs[1].words
        self._words = (b"</s>", b"UNK", *predicted)
        self._unfit = [id for id, word in enumerate(predicted, UNK + 1) if not can_stand_in_a_table(word)]

    @torch.inference_mode()
    def n_best(
        self, sources: Sequence[bytes], n: int = 10, beam: int | None = None, unk: bool = False, max_length: int = MAX_LENGTH
    ) -> list[list[Hypothesis]]:
        """Return the n best phrases that a beam of ``beam`` prefixes finds (default: n, and 10 at least), best first."""
        width = beam or max(n, BEAM)
        c, which = self._summaries(sources)
        barred, known = self._barred(unk), len(self._words)

        def search(rows: slice) -> list[list[Decoded]]:
            prefixes = self._model.empty_prefixes(c[rows])
            return beam_search(prefixes, [max_length] * len(prefixes.source), n, width, known, barred)

        targets = self._in_batches(search, len(c), width)
        return [targets[i] for i in which]

    @torch.inference_mode()
    def samples(
        self, sources: Sequence[bytes], number: int, seed: int, unk: bool = False, max_length: int = MAX_LENGTH
    ) -> list[list[Hypothesis]]:
        """Draw ``number`` phrases, some perhaps equal, for every source, in this order. See ``sample``."""
        c, which = self._summaries(sources)
        barred = self._barred(unk)
        names = [b" ".join(words(source)) for source in sources]

        def draw(rows: slice) -> list[list[Decoded]]:
            random = [stream for name in names[rows] for stream in streams(seed, name, number)]
            return sample(self._model, c[which[rows]], random, max_length, barred)

        return self._in_batches(draw, len(sources), number)

    def _summaries(self, sources: Sequence[bytes]) -> tuple[Tensor, list[int]]:
        """Return c of the distinct sources, and which of them each source has."""
        if not sources:
            return torch.empty(0, self.checkpoint.model.config.hidden), []
        encoded = Ragged.of_phrases(self.checkpoint.as_read(sources), self.checkpoint.vocabs[0])
        first, which = distinct_phrases(encoded)
        return self._model.summaries(encoded.take(first)), which.tolist()

    def _barred(self, unk: bool) -> Tensor:
        return torch.tensor([EOS, *([] if unk else [UNK]), *self._unfit], device=self._model.device)

    def _in_batches(
        self, function: Callable[[slice], list[list[Decoded]]], sources: int, prefixes: int
    ) -> list[list[Hypothesis]]:
        """Call ``function`` with sources at a time whose ``prefixes`` each come to PREFIXES."""
        at_once = max(1, PREFIXES // prefixes)
        decoded = chain.from_iterable(function(slice(start, start + at_once)) for start in range(0, sources, at_once))
        return [
            [Hypothesis(b" ".join([self._words[id] for id in ids]), log_p, ids.count(UNK)) for ids, log_p in of_source]
            for of_source in decoded
        ]
