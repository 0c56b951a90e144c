"""Rows of a phrase table: how they are cut, which are valid, what is found wrong; appending then dropping is the identity."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.errors import RowError
from phrase_rescore.messages import shown
from phrase_rescore.moses.table import parse_row, phrase_words

ANY_BYTE = st.integers(0, 255).filter(lambda b: b not in b" \t\n|").map(lambda b: bytes([b]))
ODD = st.sampled_from([b"\xc2\xa0", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x1c", b"\x00", b"\r", b"[", b"]", b"&#91;"])
WORD = (
    st.lists(st.one_of(ANY_BYTE, ODD), min_size=1, max_size=4)
    .map(b"".join)
    .filter(lambda w: not re.fullmatch(rb"\[.*\]", w, re.DOTALL))
)
BLANK = st.text(" \t", min_size=1, max_size=3).map(str.encode)
EDGE = st.text(" \t", max_size=2).map(str.encode)
NUMBER = st.from_regex(rb"[+-]?([0-9]{1,3}\.?[0-9]{0,3}|\.[0-9]{1,3})([eE][+-]?[0-9]{1,2})?", fullmatch=True)
END = st.text(" \t\r", max_size=3).map(str.encode)
REST = st.one_of(
    st.just(b""),
    st.sampled_from([b"||| 0-0 ||| 1 1 1 ||| |||", b"||| ||| 1 1 1", b"|||  |||  |||", b"|||0-0", b"|||\r"]),
    st.binary(max_size=10).map(lambda data: b"|||" + data.replace(b"\n", b"")),
)


@st.composite
def phrases(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """Words and a field that holds them."""
    chosen = draw(st.lists(WORD, min_size=1, max_size=3))
    return chosen, draw(EDGE) + draw(BLANK).join(chosen) + draw(EDGE)


@st.composite
def table_rows(draw: st.DrawFn) -> tuple[bytes, bytes, list[bytes], list[bytes], list[bytes]]:
    """The row up to its last score, the row from there, source, target, scores."""
    (src, src_field), (tgt, tgt_field) = draw(phrases()), draw(phrases())
    scores = draw(st.lists(NUMBER, min_size=1, max_size=4))
    head = src_field + b"|||" + tgt_field + b"|||" + draw(EDGE) + draw(BLANK).join(scores)
    return head, draw(END) + draw(REST), src, tgt, scores


@given(table_rows())
def test_valid_rows_are_read_as_they_are(row: tuple[bytes, bytes, list[bytes], list[bytes], list[bytes]]) -> None:
    head, tail, src, tgt, scores = row
    parsed = parse_row(head + tail)
    assert (parsed.src, parsed.tgt, parsed.n_scores) == (src, tgt, len(scores))
    assert b"|||".join(parsed.fields) == head + tail
    assert parse_row(head + tail, len(scores)) == parsed


@pytest.mark.parametrize(
    "score", ["nan", "inf", "1e", "1e+", ".", "+", "e5", "0x1p3", "1_000", "0,5", "1.2.3", "--1", "1f", "٣", "0.5\x00"]
)
def test_other_scores_are_refused(score: str) -> None:
    with pytest.raises(RowError) as caught:
        parse_row(f"a ||| b ||| 1 {score} 1 ||| 0-0".encode())
    assert caught.value.found == f"score {shown(score.encode())}"


@pytest.mark.parametrize(("row", "found"), [
    (b"", "1 field in ''"), (b"a || b || 1", "1 field in 'a || b || 1'"), (b"a ||| b", "2 fields in 'a ||| b'"),
    (b" ||| b ||| 1", "the source phrase is empty"), (b"||| ||| 1", "the source phrase is empty"),
    (b"a |||\t||| 1", "the target phrase is empty"), (b"a ||| b |||", "the score field is empty"),
    (b"a ||| b ||| \r", "the score field is empty"), (b"a ||| b ||| ||| 0-0", "the score field is empty"),
    (b"a [X] ||| b ||| 1", "non-terminal '[X]' in the source"),
    (b"a ||| [X][X] b ||| 1", "non-terminal '[X][X]' in the target"),
    (b"a ||| [] ||| 1", "non-terminal '[]' in the target"), (b"a ||| b ||| 1 1", "2 scores where the first row has 1"),
])  # fmt: skip
def test_what_is_found(row: bytes, found: str) -> None:
    with pytest.raises(RowError) as caught:
        parse_row(row, 1)
    assert caught.value.found == found


@pytest.mark.parametrize("word", [b"[", b"]", b"[a", b"a]", b"&#91;X&#93;", b"a[X]", b"[X]a"])
def test_brackets_that_are_no_non_terminal(word: bytes) -> None:
    assert phrase_words(word + b" " + word, "source") == [word, word]


def test_bad_score_after_many_whole_numbers_does_not_hang() -> None:
    """A pattern that can match the digits of a whole number in several ways tries all combinations of them."""
    with pytest.raises(RowError, match="score 'x'"):
        parse_row(b"a ||| b ||| " + b"1234567 " * 24 + b"x")
