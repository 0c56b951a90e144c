"""A random order of many things that takes no memory: the element at a place is computed, not stored."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 6


class Permutation:
    """A pseudo-random permutation of 0 … n - 1 that ``key`` chooses.

    It is a Feistel network over numbers of 2 w bits, the smallest such range that holds n. What leaves 0 … n - 1 goes through
    it again until it is back ("cycle walking": Black and Rogaway, CT-RSA 2002).
    """

    def __init__(self, n: int, key: Sequence[int]) -> None:
        self._n = n
        self._half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
        self._mask = (np.uint64(1) << self._half) - np.uint64(1)
        digest = hashlib.blake2b(repr(tuple(key)).encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    def _once(self, x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = x >> self._half, x & self._mask
        for key in self._keys:
            mixed = (right + key) * np.uint64(0x9E3779B97F4A7C15)  # the multiplier of splitmix64, and its shifts
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(27)
            left, right = right, left ^ (mixed & self._mask)
        return (left << self._half) | right

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elements at these places: (m,) -> (m,)."""
        x = self._once(places.astype(np.uint64))
        while (outside := x >= self._n).any():
            x[outside] = self._once(x[outside])
        return x.astype(np.int64)


def drawn_rows(n: int, size: int, seed: int, first: int = 0) -> Iterator[NDArray[np.int64]]:
    """Yield ``size`` of n rows at a time without end, drawn at random without replacement, pass after pass: (size,).

    What is yielded depends on its number alone, which begins with ``first``.
    """
    for start in count(first * size, size):
        places = np.arange(start, start + size)
        rows = np.empty(size, dtype=np.int64)
        for number in np.unique(places // n):
            of_pass = places // n == number
            rows[of_pass] = Permutation(n, (seed, int(number))).at(places[of_pass] % n)
        yield rows
