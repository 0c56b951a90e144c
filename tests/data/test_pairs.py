"""Distinct pairs: the same whatever the input's order, repetition, scores or format; held out by whole sources."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_memory_pairs import DistinctPairs

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import Vocabulary

PHRASE = st.lists(st.sampled_from([b"a", b"b", b"A", b"\xff", b"\xc2\xa0"]), min_size=1, max_size=2)
WORD = st.lists(st.sampled_from([b"a", b"b", b"\0", b"\xff", b"\x0b", b"\t", b"abcdefg"]), min_size=1).map(b"".join)
Pair = tuple[list[bytes], list[bytes]]


def many_pairs(sources: int, targets: int = 1) -> DistinctPairs:
    return DistinctPairs.collect(([b"s%d" % i], [b"t%d" % j]) for i in range(sources) for j in range(1 + i % targets))


@given(st.lists(st.tuples(PHRASE, PHRASE)), st.randoms())
def test_distinct_as_bytes_whatever_the_order_and_repetition(pairs: list[Pair], shuffler: random.Random) -> None:
    collected = DistinctPairs.collect(pairs)
    expected = {(b" ".join(src), b" ".join(tgt)) for src, tgt in pairs}
    assert set(collected.pairs) == expected
    assert len(collected.pairs) == len(expected)
    again = pairs * 2
    shuffler.shuffle(again)
    assert DistinctPairs.collect(again).pairs == collected.pairs


@pytest.mark.parametrize("most", [0, 1, 2, 7, 10, 10_000])
@pytest.mark.parametrize(("sources", "targets"), [(1, 1), (199, 1), (200, 1), (2000, 1), (2000, 9)])
def test_held_out_limits(sources: int, targets: int, most: int) -> None:
    pairs = many_pairs(sources, targets)
    held = pairs.held_out(most)
    kept_apart = {source for (source, _), out in zip(pairs.pairs, held, strict=True) if out}
    assert held.dtype == np.bool_
    assert held.shape == (len(pairs.pairs),)
    assert held.sum() <= most
    assert len(kept_apart) <= 0.005 * sources
    assert kept_apart.isdisjoint(source for (source, _), out in zip(pairs.pairs, held, strict=True) if not out)
    if targets == 1:
        assert held.sum() == min(most, sources // 200), "as many as the limits allow"


@given(st.lists(st.lists(st.integers(0, 9), max_size=3)), st.lists(st.integers(0, 99)))
def test_ragged_rows(sequences: list[list[int]], picks: list[int]) -> None:
    ragged = Ragged.of(sequences)
    rows = np.array([pick % len(sequences) for pick in picks] if sequences else [], dtype=np.int64)
    taken = ragged.take(rows)
    assert [taken.ids[a:b].tolist() for a, b in zip(taken.offsets, taken.offsets[1:], strict=False)] == [
        sequences[row] for row in rows
    ]
    assert ragged.lengths.tolist() == [len(sequence) for sequence in sequences]
    assert len(EncodedPairs(ragged, ragged).take(rows)) == len(rows)


@given(st.lists(WORD, unique=True), st.lists(st.lists(WORD, min_size=1)))
def test_the_ids_of_phrases(known: list[bytes], phrases: list[list[bytes]]) -> None:
    found = Ragged.of_phrases([b" ".join(words) for words in phrases], Vocabulary(tuple(known), (1,) * len(known)))
    ids = {word: id for id, word in enumerate(known, 2)}
    expected = Ragged.of([[ids.get(word, 1) for word in words] for words in phrases])
    for a, b in ((found.ids, expected.ids), (found.offsets, expected.offsets)):
        assert a.tolist() == b.tolist()
        assert a.dtype == b.dtype
