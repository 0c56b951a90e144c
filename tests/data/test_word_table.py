"""Words looked up all at once against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.data.word_table import WordTable

# Few letters, so that words share beginnings, and lengths on both sides of 8, 16, 23 and 24 bytes
LETTERS = st.sampled_from([b"a", b"b", b"\0", b"\xff", b"\x0b", b"abcdefg", b"bbbbbbbb"])
WORD = st.lists(LETTERS, min_size=1, max_size=5).map(b"".join)


def text_of(words: list[bytes]) -> bytes:
    return b"".join(word + b" " for word in words)


@given(st.lists(WORD, unique=True), st.lists(WORD))
def test_ids_are_those_of_a_dictionary(known: list[bytes], others: list[bytes]) -> None:
    ids = {word: id for id, word in enumerate(known, 2)}
    words = [*others, *known, *others]
    found, ends = WordTable(ids, 1).look_up(text_of(words))
    assert found.tolist() == [ids.get(word, 1) for word in words]
    assert found.dtype == np.int32
    assert [end + 1 for end in ends.tolist()] == np.cumsum([len(word) + 1 for word in words]).tolist()


def test_words_that_want_the_same_slot_are_all_found() -> None:
    rng = np.random.default_rng(5)
    words = sorted({rng.bytes(n).replace(b" ", b"_") for n in rng.integers(1, 30, 20_000)})
    distinct = set(words)
    table = WordTable({word: id for id, word in enumerate(words)}, -1)
    short = sum(len(word) <= 23 for word in words)
    assert 0.7 * short < np.count_nonzero(table._at) < 0.95 * short, "most have a slot, some had to share"
    assert table.look_up(text_of(words))[0].tolist() == list(range(len(words)))
    longer = [word + b"\0" for word in words if word + b"\0" not in distinct]
    assert set(table.look_up(text_of(longer))[0].tolist()) == {-1}
