"""The n most probable targets of sources, by beam search over many sources at once.

log p only falls as a prefix grows. A prefix that is not better than a source's n-th best finished target is therefore given up,
and the search for a source ends when none is left. Only the beam makes the search inexact, where it drops prefixes: one as
wide as there are prefixes finds the exact best. Hypotheses are compared by log p as it is, which is the feature; nothing is
normalised by length.

Of equal log p, the shorter target comes first, then the one whose prefix came first, then the one whose last word has the
lower id, which is the more frequent word.
"""

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
    prefixes, found = model.empty_prefixes(c), [list[Decoded]() for _ in range(len(c))]
    worst = np.full(len(c), -np.inf)  # what a prefix must be better than to matter: the n-th best log p of every source
    log_p, ids = np.zeros(len(c)), np.empty((len(c), 0), np.int64)  # of the prefixes
    k = min(beam, len(model.decoder.b_G) - len(barred))
    for _ in range(max_length if k else 0):
        if not len(prefixes):
            break
        step, words = _next_words(model, prefixes, k, barred)
        longer = log_p[:, None] + step
        hopeful = longer > worst[prefixes.source][:, None]  # never where it is NaN
        parents, columns = hopeful.nonzero()
        last_words, log_p = words[parents, columns], longer[parents, columns]
        by_rank = np.lexsort((last_words, parents))
        kept = by_rank[best_of_each(prefixes.source[parents][by_rank], log_p[by_rank], beam)]
        parents, last_words, log_p = parents[kept], last_words[kept], log_p[kept]
        if not len(parents):
            break
        ids = np.column_stack((ids[parents], last_words))
        prefixes = prefixes.continued(parents, last_words)
        for source, target, total in zip(prefixes.source, ids.tolist(), (log_p + prefixes.eos_log_p()).tolist(), strict=True):
            found[source].append(Decoded(target, total))
        for source in np.unique(prefixes.source):
            found[source] = sorted(found[source], key=lambda decoded: -decoded.log_p)[:n]
            worst[source] = found[source][-1].log_p if len(found[source]) == n else -np.inf
    return found
