"""Sequences of word ids, laid out one after another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.data.vocabulary import Vocabulary

WORD = st.lists(st.sampled_from([b"a", b"b", b"\0", b"\xff", b"\x0b", b"\t", b"abcdefg"]), min_size=1).map(b"".join)


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
