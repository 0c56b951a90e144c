"""What generation looks up in a phrase table: phrases taken at random, and the partners of given ones. One pass each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from phrase_rescore.data.sketch import Hashes, hashes
from phrase_rescore.moses.factors import Factors
from phrase_rescore.moses.pair_readers import read_pair_blocks

Partners = dict[bytes, set[bytes]]


def _seeded(phrases: Sequence[bytes], seed: int) -> Hashes:
    """Return hashes of phrases whose order is another one for every seed."""
    salt = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8).digest()
    mixed = (hashes(phrases) ^ np.uint64(int.from_bytes(salt, "little"))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


def sample_of(blocks: Iterable[Sequence[bytes]], n: int, seed: int) -> list[bytes]:
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


def sampled_phrases(table: str, side: str, n: int, seed: int, on_read: Callable[[int], object] | None = None) -> list[bytes]:
    """Choose ``n`` phrases of a side of a table, as ``sample_of`` does. Raises InputError for a bad row."""
    blocks = read_pair_blocks(table, "table", on_read)
    return sample_of((block.src if side == "source" else block.tgt for block in blocks), n, seed)


def partners(
    table: str, side: str, wanted: Collection[bytes], factors: Factors, on_read: Callable[[int], object] | None = None
) -> Partners:
    """Find the phrases that a table has beside every wanted phrase of a side; words are read by their ``factors``.

    Raises InputError for a bad row.
    """
    found: Partners = {phrase: set() for phrase in wanted}
    for block in read_pair_blocks(table, "table", on_read, factors=factors):
        pairs = zip(block.src, block.tgt, strict=True) if side == "source" else zip(block.tgt, block.src, strict=True)
        for phrase, partner in pairs:
            if phrase in found:
                found[phrase].add(partner)
    return found
