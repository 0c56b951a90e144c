"""Distinct phrase pairs: what the model learns from, as compact arrays of word ids."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.vocabulary import UNK, Vocabulary

HELD_OUT_SOURCES = 0.005  # at most this share of the distinct sources is held out


@dataclass(frozen=True)
class Ragged:
    """Sequences of word ids on end: sequence i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: NDArray[np.int32]  # (total length,)
    offsets: NDArray[np.int64]  # (sequences + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """The sequences of these rows, in this order."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]  # not self.lengths: there may be 10⁸ of them
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Ragged(self.ids[np.repeat(self.offsets[rows], lengths) + within], offsets)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Ragged:
        """Sequences of word ids."""
        return cls._flat(sequences, chain.from_iterable(sequences))

    @classmethod
    def of_words(cls, phrases: Sequence[Sequence[bytes]], vocabulary: Vocabulary) -> Ragged:
        """The ids of phrases given as words."""
        return cls._flat(phrases, map(vocabulary.ids.__getitem__, chain.from_iterable(phrases)))

    @classmethod
    def of_phrases(cls, phrases: Sequence[bytes], vocabulary: Vocabulary) -> Ragged:
        """The ids of phrases given as words between single blanks: ``of_words`` without a list for every phrase."""
        text = b"\n".join(phrases)
        spaces = np.frombuffer(text, np.uint8)
        spaces = spaces[(spaces == ord(" ")) | (spaces == ord("\n"))]
        n = len(spaces) + 1 if phrases else 0
        ids = np.fromiter(map(vocabulary.ids.get, text.replace(b"\n", b" ").split(b" "), repeat(UNK)), np.int32, n)
        ends = np.flatnonzero(spaces == ord("\n")) + 1  # the words before every end of a phrase but the last
        return cls(ids, np.concatenate(([0], ends, [n] if phrases else [])).astype(np.int64))

    @classmethod
    def _flat(cls, sequences: Sequence[Sequence[object]], ids: Iterable[int]) -> Ragged:
        offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, sequences), np.int64, len(sequences)), out=offsets[1:])
        return cls(np.fromiter(ids, np.int32, int(offsets[-1])), offsets)

    def counts_of(self, id: int) -> NDArray[np.int64]:
        """How often an id stands in each sequence: (sequences,)."""
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


@dataclass
class DistinctPairs:
    """Every distinct (source, target), as bytes and before any word becomes UNK, once.

    In byte order, so that nothing that follows depends on the order or the number of occurrences in the inputs. Words
    of a phrase are joined by single blanks.
    """

    pairs: list[tuple[bytes, bytes]]

    @classmethod
    def collect(cls, pairs: Iterable[tuple[list[bytes], list[bytes]]]) -> DistinctPairs:
        return cls(sorted({(b" ".join(src), b" ".join(tgt)) for src, tgt in pairs}))

    def word_counts(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """How often each word of a side stands in the distinct pairs."""
        src: Counter[bytes] = Counter()
        tgt: Counter[bytes] = Counter()
        for a, b in self.pairs:
            src.update(a.split(b" "))
            tgt.update(b.split(b" "))
        return src, tgt

    def encode(self, src: Vocabulary, tgt: Vocabulary) -> EncodedPairs:
        return EncodedPairs(
            Ragged.of_words([a.split(b" ") for a, _ in self.pairs], src),
            Ragged.of_words([b.split(b" ") for _, b in self.pairs], tgt),
        )

    def held_out(self, most: int) -> NDArray[np.bool_]:
        """Which pairs are kept for measuring: all pairs of the sources whose BLAKE2 hash falls under a threshold.

        The threshold is the largest that holds out at most ``most`` pairs and 0.5 % of the sources, so it depends on the
        sources alone and never separates the targets of one source. Shape (pairs,).
        """
        sources = [(source, len(list(group))) for source, group in groupby(self.pairs, key=lambda pair: pair[0])]
        hashes = np.frombuffer(
            b"".join(hashlib.blake2b(source, digest_size=8).digest() for source, _ in sources), dtype=">u8"
        ).astype(np.uint64)
        sizes = np.array([size for _, size in sources], dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        taken = int(np.searchsorted(np.cumsum(sizes[order]), most, side="right"))
        held = np.zeros(len(sources), dtype=np.bool_)
        held[order[: min(taken, int(HELD_OUT_SOURCES * len(sources)))]] = True
        return np.repeat(held, sizes)


def unknown_share(side: Ragged) -> float:
    """The share of a side's words (EOS aside) that are UNK; 0 for no words."""
    return float(np.mean(side.ids == UNK)) if len(side.ids) else 0.0
