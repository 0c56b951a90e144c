"""Targets drawn at random, word by word, from the model's own distribution or a sharper or flatter one.

A word is drawn by a race: word k of weight w_k arrives after a time that is exponential with rate w_k, and the first to arrive
is taken, so that each is taken with probability w_k / Σ w. That needs a random number for every word. But the weights of
another batch, which are rounded otherwise, then change a draw only where two words arrive almost together, once in some
million draws. (A place in the running sum of weights would depend on the rounding of all words before it.)

Every sample has its own random numbers, by seed, source and number of the sample. What is drawn for a source does not depend
on other sources, nor on how many more samples are asked for.
"""

import hashlib
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from phrase_rescore.data.prefix_trees import Indices
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.rnn.beam_search import Decoded
from phrase_rescore.rnn.decoder import ReadyModel

ROWS = 128  # draws whose random numbers are in memory at a time: 15 MB at K = 15,002


def streams(seed: int, source: bytes, number: int) -> list[Generator]:
    """Return the random numbers of every sample of a source."""
    digest = hashlib.blake2b(source, digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    return [Generator(Philox(key=[int.from_bytes(digest, "little"), i])) for i in range(number)]


def _weights(logits: Tensor, barred: Tensor, temperature: float, top_k: int | None) -> Tensor:
    """Return what words are drawn in proportion to: (n, K). Of equal logits at the end of the ``top_k`` all are taken."""
    logits = logits.index_fill(1, barred, -torch.inf)
    largest = logits.amax(1, keepdim=True)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[1]), dim=1).values[:, -1:]
        logits = logits.masked_fill_(logits < least, -torch.inf)
    return logits.sub_(largest).div_(temperature).exp_()


def _draw(weights: Tensor, rows: Indices, random: Sequence[Generator]) -> Indices:
    """Draw a word for each of ``rows`` (m,) of the weights, with the random numbers of its sample: (m,)."""
    words = []
    for start in range(0, len(rows), ROWS):
        some = rows[start : start + ROWS]
        times = np.empty((len(some), weights.shape[1]))
        for time, stream in zip(times, random[start : start + ROWS], strict=True):
            stream.standard_exponential(out=time)
        speeds = weights[torch.from_numpy(some).to(weights.device)].double()
        words.append(speeds.div_(torch.from_numpy(times).to(weights.device)).argmax(1).cpu().numpy())
    return np.concatenate(words)


@torch.inference_mode()
def sample(
    model: ReadyModel, c: Tensor, random: Sequence[Sequence[Generator]], temperature: float, top_k: int | None,
    max_length: int, barred: Tensor,
) -> list[list[Decoded]]:  # fmt: skip
    """Draw a target for every one of the ``random`` streams of each summary c (sources, H), in their order.

    Words come with probabilities in proportion to p^(1 / temperature), and of the ``top_k`` most probable words alone, if that
    is given. The words that are ``barred``, EOS among them for the first word, never come. A target of ``max_length`` words
    ends there. log p is the model's own, at temperature 1 and among all words.
    """
    number = [len(streams) for streams in random]
    flat = [stream for streams in random for stream in streams]
    words: list[list[int]] = [[] for _ in flat]
    log_p = np.zeros(len(flat))
    prefixes = model.empty_prefixes(c)
    live, node = np.arange(len(flat)), np.repeat(np.arange(len(c)), number)  # samples that go on, and their prefix
    may_end = barred[barred != EOS]
    for length in range(max_length):
        if not len(live):
            break
        weights = _weights(model.logits(prefixes.g), may_end if length else barred, temperature, top_k)
        drawn = _draw(weights, node, [flat[i] for i in live])
        log_p[live] += prefixes.word_log_p(node, drawn)
        going_on = drawn != EOS
        live, node, drawn = live[going_on], node[going_on], drawn[going_on]
        for i, word in zip(live.tolist(), drawn.tolist(), strict=True):
            words[i].append(word)
        radix = weights.shape[1]
        distinct, node = np.unique(node * radix + drawn, return_inverse=True)
        if len(distinct):
            prefixes = prefixes.continued(distinct // radix, distinct % radix)
    log_p[live] += prefixes.eos_log_p()[node]
    found = [Decoded(*one) for one in zip(words, log_p.tolist(), strict=True)]
    # None where a model's numbers overflow, or where it has no word to propose
    return [
        [decoded for decoded in found[a:b] if decoded.words and math.isfinite(decoded.log_p)]
        for a, b in pairwise(accumulate(number, initial=0))
    ]
