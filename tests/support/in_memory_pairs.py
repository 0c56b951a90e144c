"""Distinct pairs the plain way, in memory: what the sorted and mapped ones are compared with."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    """Every distinct (source, target) once, in byte order, as bytes and before any word becomes UNK."""

    pairs: list[tuple[bytes, bytes]]

    @classmethod
    def collect(cls, pairs: Iterable[tuple[list[bytes], list[bytes]]]) -> DistinctPairs:
        return cls(sorted({(b" ".join(src), b" ".join(tgt)) for src, tgt in pairs}, key=b"\t".join))

    def word_counts(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """How often each word of a side stands in the distinct pairs."""
        src, tgt = (Counter(word for pair in self.pairs for word in pair[side].split(b" ")) for side in (0, 1))
        return src, tgt

    def encode(self, src: Vocabulary, tgt: Vocabulary) -> EncodedPairs:
        return EncodedPairs(
            Ragged.of([src.encode(a.split(b" ")) for a, _ in self.pairs]),
            Ragged.of([tgt.encode(b.split(b" ")) for _, b in self.pairs]),
        )

    def held_out(self, most: int) -> NDArray[np.bool_]:
        """Which pairs are held out: all of the sources with the smallest hashes, at most ``most`` and 0.5 % of the sources."""
        sizes = Counter(source for source, _ in self.pairs)
        ranked = sorted(sizes, key=lambda source: hashlib.blake2b(source, digest_size=8).digest())
        held, n = set[bytes](), 0
        for source in ranked[: int(HELD_OUT_SOURCES * len(sizes))]:
            n += sizes[source]
            if n > most:
                break
            held.add(source)
        return np.array([source in held for source, _ in self.pairs], np.bool_)


def unknown_share(side: Ragged) -> float:
    """The share of a side's words (EOS aside) that are UNK; 0 for no words."""
    return float(np.mean(side.ids == UNK)) if len(side.ids) else 0.0
