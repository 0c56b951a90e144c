"""Beam search: the targets that a model finds most probable, whatever the model.

log p only falls as a prefix grows. A prefix that is not better than a source's n-th best finished target is given up. Without a
norm of the length only the beam makes the search inexact, where it drops prefixes. With one, a prefix is compared as if it
ended now, though its score may still rise where its next words are nearly certain. Of equal scores, the shorter target comes
first, then the one whose prefix came first, then the one whose last word has the lower id.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import Indices
from phrase_rescore.nn.softmax import NextWords


class Decoded(NamedTuple):
    """A target that was found: ids without EOS, and natural log p(target | source), EOS included."""

    words: list[int]
    log_p: float


class Prefixes(Protocol):
    """Beginnings of targets, (n,), of one length, those of a source together."""

    @property
    def source(self) -> Indices:
        """The source of each, (n,)."""

    def next_words(self, k: int, barred: Tensor) -> NextWords:
        """Return log p of the target's end and of the k best words after every prefix, as ``LogNormaliser`` does."""

    def continued(self, parents: Indices, words: Indices) -> Self:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""


def best_of_each(group: Indices, log_p: NDArray[np.float64], n: int) -> Indices:
    """Return where the n largest of every group stand, or all of fewer: by group, largest first, equal ones in their order.

    >>> best_of_each(np.array([1, 0, 1, 1]), np.array([-3.0, -9.0, -1.0, -3.0]), 2).tolist()
    [1, 2, 0]
    """
    order: Indices = np.lexsort((-log_p, group))
    ordered = group[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return order[rank < n]


def beam_search(
    prefixes: Prefixes, longest: Sequence[int], n: int, beam: int, words: int, barred: Tensor, norm: float = 0.0
) -> list[list[Decoded]]:
    """Return the n best targets (or as many as are found) of each source, of 1 to ``longest`` (sources,) words, best first.

    ``prefixes``: that of no word of every source. ``beam``: the most prefixes of one length a source. ``words``: of the
    vocabulary. ``barred`` (m,): ids that are not proposed, EOS among them. The best have the largest log p / (words + 1)^norm.
    """
    most, best = np.array(longest), [list[Decoded]() for _ in longest]
    worst = np.full(len(best), -np.inf)  # what a prefix must be better than to matter: the score of each source's n-th best
    log_p, ids = np.zeros(len(best)), np.empty((len(best), 0), np.int64)  # of the prefixes
    k = min(beam, words - len(barred))
    for length in range(int(most.max(initial=0)) + 1 if k else 0):  # of the prefixes
        end, step, next_words = prefixes.next_words(k, barred)
        if length:
            for source, target, total in zip(prefixes.source, ids.tolist(), (log_p + end).tolist(), strict=True):
                best[source].append(Decoded(target, total))
            for source in np.unique(prefixes.source):
                best[source] = sorted(best[source], key=lambda found: -score_of(found, norm))[:n]
                worst[source] = score_of(best[source][-1], norm) if len(best[source]) == n else -np.inf
        longer = log_p[:, None] + step
        matters = (longer / (length + 2) ** norm > worst[prefixes.source][:, None]) & (most > length)[prefixes.source][:, None]
        parents, columns = matters.nonzero()  # never where it is NaN
        last_words, log_p = next_words[parents, columns], longer[parents, columns]
        by_rank = np.lexsort((last_words, parents))
        kept = by_rank[best_of_each(prefixes.source[parents][by_rank], log_p[by_rank], beam)]
        parents, last_words, log_p = parents[kept], last_words[kept], log_p[kept]
        if not len(parents):
            break
        ids = np.column_stack((ids[parents], last_words))
        prefixes = prefixes.continued(parents, last_words)
    return best


def score_of(decoded: Decoded, norm: float) -> float:
    """Return log p / (words + 1)^norm."""
    return float(decoded.log_p / (len(decoded.words) + 1) ** norm)
