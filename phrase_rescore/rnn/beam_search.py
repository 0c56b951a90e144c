"""The n most probable targets of sources, by beam search over many sources at once.

log p only falls as a prefix grows. A prefix that is not better than a source's n-th best finished target is therefore given up,
and the search for a source ends when none is left. Only the beam makes the search inexact, where it drops prefixes: one as
wide as there are prefixes finds the exact best. Hypotheses are compared by log p as it is, which is the feature; nothing is
normalised by length.

Of equal log p, the shorter target comes first, then the one whose prefix came first, then the one whose last word has the
lower id, which is the more frequent word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.prefix_trees import Indices
from phrase_rescore.rnn.decoder import Prefixes, ReadyModel

ROWS = 512  # prefixes whose logits are in memory at a time: 30 MB at K = 15,002

LogProbs = NDArray[np.float64]


class Decoded(NamedTuple):
    """A target that was found."""

    words: list[int]  # ids, without EOS
    log_p: float  # natural log p(target | source), EOS included


# How prefixes were continued: for each length, from 1, the shorter prefix and the last word of every prefix
Steps = list[tuple[Indices, Indices]]


def _words(steps: Steps, length: int, row: int) -> list[int]:
    """Return the words of a prefix of this length."""
    found = []
    for parents, words in reversed(steps[:length]):
        found.append(int(words[row]))
        row = parents[row]
    return found[::-1]


class _Finished:
    """The n best finished targets of every source so far."""

    def __init__(self, n: int, sources: int) -> None:
        self._n, self._sources = n, sources
        self._source, self._length, self._row = (np.empty(0, np.int64) for _ in range(3))
        self._log_p = np.empty(0)

    def add(self, source: Indices, log_p: LogProbs, length: int) -> None:
        """Take prefixes of a length, in their order, as targets: ``log_p`` (m,) includes EOS."""
        sources = np.concatenate((self._source, source))
        log_ps = np.concatenate((self._log_p, log_p))
        lengths = np.concatenate((self._length, np.full(len(source), length)))
        rows = np.concatenate((self._row, np.arange(len(source))))
        best = best_of_each(sources, log_ps, self._n)
        self._source, self._log_p, self._length, self._row = sources[best], log_ps[best], lengths[best], rows[best]

    def worst(self) -> LogProbs:
        """Return what a prefix must be better than to matter: the n-th best log p of every source, (sources,)."""
        worst = np.zeros(self._sources)
        np.minimum.at(worst, self._source, self._log_p)
        worst[np.bincount(self._source, minlength=self._sources) < self._n] = -np.inf
        return worst

    def targets(self, steps: Steps) -> list[list[Decoded]]:
        """Return the targets of every source, best first."""
        found: list[list[Decoded]] = [[] for _ in range(self._sources)]
        columns = (self._source, self._log_p, self._length, self._row)
        for source, log_p, length, row in zip(*(column.tolist() for column in columns), strict=True):
            found[source].append(Decoded(_words(steps, length, row), log_p))
        return found


def best_of_each(group: Indices, log_p: LogProbs, n: int) -> Indices:
    """Return where the n largest of every group stand, or all of fewer: by group, largest first, equal ones in their order.

    >>> best_of_each(np.array([1, 0, 1, 1]), np.array([-3.0, -9.0, -1.0, -3.0]), 2).tolist()
    [1, 2, 0]
    """
    order: Indices = np.lexsort((-log_p, group))
    ordered = group[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return order[rank < n]


def _best_words(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest logits of every row and their words, the lower ids of equal ones: (n, k) each."""
    values, words = logits.topk(k, dim=1)
    tied = ((logits >= values[:, -1:]).sum(1) > k).nonzero().squeeze(1)  # topk takes any of them
    if len(tied):
        ordered, order = logits[tied].sort(dim=1, descending=True, stable=True)
        values[tied], words[tied] = ordered[:, :k], order[:, :k]
    return values, words


def _next_words(model: ReadyModel, prefixes: Prefixes, k: int, barred: Tensor) -> tuple[LogProbs, Indices]:
    """Return log p of the k best words after every prefix, and their ids: (n, k) each. The ``barred`` are left out."""
    log_p, words = [], []
    for g, log_z in zip(prefixes.g.split(ROWS), prefixes.log_z.split(ROWS), strict=True):
        values, ids = _best_words(model.logits(g).index_fill_(1, barred, -torch.inf), k)
        log_p.append((values - log_z.unsqueeze(1)).double().cpu().numpy())
        words.append(ids.cpu().numpy())
    return np.concatenate(log_p), np.concatenate(words)


@torch.inference_mode()
def beam_search(model: ReadyModel, c: Tensor, n: int, beam: int, max_length: int, barred: Tensor) -> list[list[Decoded]]:
    """Return the n best targets of 1 to ``max_length`` words under each summary c (sources, H), best first.

    ``beam``: how many prefixes of one length a source may have. ``barred`` (m,): ids that are not proposed, EOS among them;
    nothing is renormalised for their sake. A source has fewer targets than n where fewer were found.
    """
    prefixes, finished = model.empty_prefixes(c), _Finished(n, len(c))
    steps: Steps = []
    log_p = np.zeros(len(c))  # of the prefixes
    k = min(beam, len(model.decoder.b_G) - len(barred))
    for length in range(1, max_length + 1):
        if not k or not len(prefixes):
            break
        step, words = _next_words(model, prefixes, k, barred)
        longer = log_p[:, None] + step
        hopeful = longer > finished.worst()[prefixes.source][:, None]  # never where it is NaN
        parents, columns = hopeful.nonzero()
        last_words, log_p = words[parents, columns], longer[parents, columns]
        by_rank = np.lexsort((last_words, parents))
        kept = by_rank[best_of_each(prefixes.source[parents][by_rank], log_p[by_rank], beam)]
        parents, last_words, log_p = parents[kept], last_words[kept], log_p[kept]
        if not len(parents):
            break
        steps.append((parents, last_words))
        prefixes = prefixes.continued(parents, last_words)
        finished.add(prefixes.source, log_p + prefixes.eos_log_p(), length)
    return finished.targets(steps)
