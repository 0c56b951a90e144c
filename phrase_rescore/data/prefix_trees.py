"""Prefix trees of phrases, level by level: what phrases share, so that it is computed once.

A tree is built over the rows of one batch. Level t holds the distinct prefixes of t + 1 words; a node is a parent on the
level above and a word. Every row has its node on every level that it reaches, so that results are indexed back to rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.ragged import Ragged

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """The distinct prefixes of one length."""

    parents: Indices  # (nodes,) node on the level above (or root) that each continues; never falls
    words: Indices  # (nodes,) its last word
    rows: Indices  # (rows that are this long,) which rows these are
    nodes: Indices  # (rows that are this long,) their node


def prefix_levels(phrases: Ragged, roots: Indices | None = None) -> list[Level]:
    """Return the levels of the tree of ``phrases``. Rows of different ``roots`` (n,) share nothing. Default: one root, 0."""
    if not len(phrases.ids):
        return []
    rows, lengths = np.arange(len(phrases)), phrases.lengths
    at = np.zeros(len(phrases), dtype=np.int64) if roots is None else roots
    radix = int(phrases.ids.max()) + 1
    levels = []
    for t in range(int(lengths.max())):
        longer = lengths[rows] > t
        rows, at = rows[longer], at[longer]
        keys = at * radix + phrases.ids[phrases.offsets[rows] + t]
        distinct, at = np.unique(keys, return_inverse=True)
        levels.append(Level(distinct // radix, distinct % radix, rows, at))
    return levels


def distinct_phrases(phrases: Ragged) -> tuple[Indices, Indices]:
    """Return one row of each distinct phrase, (phrases,), and which of them each row is, (rows,)."""
    last = np.full(len(phrases), -1, dtype=np.int64)
    base = 0
    for level in prefix_levels(phrases):
        last[level.rows] = base + level.nodes
        base += len(level.words)
    _, first, which = np.unique(last, return_index=True, return_inverse=True)
    return first, which
