"""A sketch of a stream of phrases: how many are distinct, and whether equal ones stand together, in memory that does not grow.

Of all hashes seen the smallest are kept (Bar-Yossef et al., "Counting distinct elements in a data stream", RANDOM 2002).
As long as there is room for all of them the answers are exact.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROOM = 1 << 16  # distinct hashes kept: the number of distinct phrases is right to 0.4 % (standard deviation)

Hashes = NDArray[np.uint64]
Lines = NDArray[np.int64]


def hashes(phrases: Sequence[bytes]) -> Hashes:
    """Return 64 bits of every phrase that look random, the same in every process, in a third of the time of BLAKE2.

    Samples of phrases and rows are chosen by them. (Which sources are held out, ``store`` chooses by BLAKE2, for good.)
    """
    n = len(phrases)
    mixed: Hashes = np.fromiter(map(zlib.crc32, phrases), np.uint64, n) << np.uint64(32)
    mixed |= np.fromiter(map(zlib.adler32, phrases), np.uint64, n)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _seeded(phrases: Sequence[bytes], seed: int) -> Hashes:
    """Return hashes of phrases whose order is another one for every seed."""
    salt = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8).digest()
    mixed = (hashes(phrases) ^ np.uint64(int.from_bytes(salt, "little"))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


def sample_phrases(blocks: Iterable[Sequence[bytes]], n: int, seed: int) -> list[bytes]:
    """Choose ``n`` distinct phrases, each as likely as any other however often it stands there; in the order of the input.

    They are those of the smallest hashes, so that no more than some 2 n and a block are in memory.
    """
    kept: dict[bytes, int] = {}
    largest = 2**64 - 1
    for phrases in blocks:
        found = _seeded(phrases, seed)
        for i in np.flatnonzero(found <= np.uint64(largest)).tolist():
            kept.setdefault(phrases[i], int(found[i]))
        if len(kept) > 2 * n:
            largest = sorted(kept.values())[n - 1]
            kept = {phrase: hash for phrase, hash in kept.items() if hash <= largest}
    taken = sorted(kept, key=lambda phrase: (kept[phrase], phrase))[:n]
    chosen = set(taken)
    return [phrase for phrase in kept if phrase in chosen]


@dataclass(frozen=True)
class DistinctSample:
    """The smallest hashes, ascending, and for each the lines of its first two occurrences at most."""

    hashes: Hashes
    lines: Lines
    room: int = ROOM
    overflowed: bool = False  # there were more distinct phrases than room

    @classmethod
    def of(cls, hashes: Hashes, lines: Lines, room: int = ROOM, overflowed: bool = False) -> DistinctSample:
        """Sample occurrences. Those of equal hashes are in the order of their lines."""
        order = np.argsort(hashes, kind="stable")  # equal hashes stay in the order of their lines
        hashes, lines = hashes[order], lines[order]
        third = np.zeros(len(hashes), bool)
        third[2:] = hashes[2:] == hashes[:-2]
        hashes, lines = hashes[~third], lines[~third]
        firsts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
        if len(firsts) > room:
            hashes, lines, overflowed = hashes[: firsts[room]], lines[: firsts[room]], True
        return cls(hashes, lines, room, overflowed)

    def __add__(self, later: DistinctSample) -> DistinctSample:
        """Return the sample of both; the lines of ``later`` come after all of this one."""
        hashes, lines = later.hashes, later.lines
        if self.overflowed:
            kept = hashes <= self.hashes[-1]
            hashes, lines = hashes[kept], lines[kept]
        both = np.concatenate((self.hashes, hashes)), np.concatenate((self.lines, lines))
        return DistinctSample.of(*both, self.room, self.overflowed or later.overflowed)

    @property
    def exact(self) -> bool:
        return not self.overflowed

    @property
    def distinct(self) -> int:
        """The number of distinct phrases, an estimate unless ``exact``."""
        kept = len(np.unique(self.hashes))
        return kept if self.exact else round((kept - 1) * 2.0**64 / float(self.hashes[-1]))

    @property
    def repeated(self) -> Lines:
        """The line of the second occurrence of every phrase in the sample that has one."""
        again: Lines = self.lines[1:][self.hashes[1:] == self.hashes[:-1]]
        return again
