"""Distinct pairs the plain way, in memory: what the sorted and mapped ones are compared with."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.pair_store import HELD_OUT_SOURCES
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import UNK, Vocabulary
from phrase_rescore.moses.pairs import read_pair_blocks


def read_pairs(*args: Any, **options: Any) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """The pairs of ``read_pair_blocks`` one by one, as lists of words."""
    for block in read_pair_blocks(*args, **options):
        for src, tgt in zip(block.src, block.tgt, strict=True):
            yield src.split(b" "), tgt.split(b" ")


@dataclass
class DistinctPairs:
    """Every distinct (source, target), as bytes and before any word becomes UNK, once.

    In byte order, so that nothing that follows depends on the order or the number of occurrences in the inputs. Words
    of a phrase are joined by single blanks.
    """

    pairs: list[tuple[bytes, bytes]]

    @classmethod
    def collect(cls, pairs: Iterable[tuple[list[bytes], list[bytes]]]) -> DistinctPairs:
        return cls(sorted({(b" ".join(src), b" ".join(tgt)) for src, tgt in pairs}, key=b"\t".join))

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
            Ragged.of([src.encode(a.split(b" ")) for a, _ in self.pairs]),
            Ragged.of([tgt.encode(b.split(b" ")) for _, b in self.pairs]),
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
