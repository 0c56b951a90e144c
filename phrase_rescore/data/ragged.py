"""Phrases and phrase pairs as compact arrays of word ids, and the prefixes that phrases share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import EOS, Vocabulary

_NO_SEPARATORS = bytes(set(range(256)) - set(b" \n"))
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Sequences of word ids, concatenated: sequence i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: NDArray[np.int32]  # (total length,)
    offsets: NDArray[np.int64]  # (sequences + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the sequences of these rows, in this order."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]  # not self.lengths: there may be 10⁸ of them
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets)

    def with_eos(self) -> Ragged:
        """Return the sequences with EOS after the last word of each."""
        offsets = self.offsets + np.arange(len(self.offsets))
        ids = np.full(int(offsets[-1]), EOS, dtype=np.int32)
        ids[np.arange(len(self.ids)) + np.repeat(np.arange(len(self)), self.lengths)] = self.ids
        return Ragged(ids, offsets)

    def reversed(self) -> Ragged:
        """Return the sequences with the words of each from the last one to the first."""
        ends = np.repeat(self.offsets[:-1] + self.offsets[1:] - 1, self.lengths)
        return Ragged(self.ids[ends - np.arange(len(self.ids))], self.offsets)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """Lay out sequences of word ids."""
        offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, sequences), np.int64, len(sequences)), out=offsets[1:])
        return cls(np.fromiter(chain.from_iterable(sequences), np.int32, int(offsets[-1])), offsets)

    @classmethod
    def of_phrases(cls, phrases: Sequence[bytes], vocabulary: Vocabulary) -> Ragged:
        """Look up the words of phrases, which have single blanks between them."""
        text = b"\n".join((*phrases, b""))
        words = text.replace(b"\n", b" ").split(b" ")
        words.pop()  # what follows the last blank is not a word
        separators = np.frombuffer(text.translate(None, _NO_SEPARATORS), np.uint8)  # one after every word
        return cls(vocabulary.encode(words), np.concatenate(([0], np.flatnonzero(separators == ord("\n")) + 1)))

    def counts_of(self, id: int) -> NDArray[np.int64]:
        """Count how often an id stands in each sequence: (sequences,)."""
        running = np.zeros(len(self.ids) + 1, dtype=np.int64)
        np.cumsum(self.ids == id, out=running[1:])
        return running[self.offsets[1:]] - running[self.offsets[:-1]]


@dataclass(frozen=True)
class EncodedPairs:
    """Phrase pairs as word ids, EOS not included."""

    src: Ragged
    tgt: Ragged

    def __len__(self) -> int:
        return len(self.src)

    def take(self, rows: NDArray[np.int64]) -> EncodedPairs:
        return EncodedPairs(self.src.take(rows), self.tgt.take(rows))

    @property
    def swapped(self) -> EncodedPairs:
        """The pairs with targets as sources and sources as targets: what an inverse model reads and predicts."""
        return EncodedPairs(self.tgt, self.src)


class Level(NamedTuple):
    """Level t of the tree of what phrases share: the distinct prefixes of t + 1 words, each a parent above and a word."""

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
        distinct, at = np.unique(at * radix + phrases.ids[phrases.offsets[rows] + t], return_inverse=True)
        levels.append(Level(distinct // radix, distinct % radix, rows, at))
    return levels


def distinct_phrases(phrases: Ragged) -> tuple[Indices, Indices]:
    """Return one row of each distinct phrase, (phrases,), and which of them each row is, (rows,)."""
    last, base = np.full(len(phrases), -1, dtype=np.int64), 0
    for level in prefix_levels(phrases):
        last[level.rows] = base + level.nodes
        base += len(level.words)
    _, first, which = np.unique(last, return_index=True, return_inverse=True)
    return first, which
