"""Splitting at ``|||`` and changing the tail of one field: no byte is lost, none but ASCII blanks separate words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.moses.fields import replace_tail, split_fields, words

# What str.split, bytes.split or str.splitlines would cut at, and Moses does not
NO_SEPARATORS = [b"\xc2\xa0", b"\xe2\x80\xa8", b"\xc2\x85", b"\x85", b"\xa0", b"\x0b", b"\x0c", b"\x1c", b"\x1f", b"\r"]

field_bytes = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b""))
blanky = st.lists(st.sampled_from([b" ", b"\t", b"\r", b"a", b"0.5", b"\x0b", b"\xc2\xa0"])).map(b"".join)


@given(st.lists(st.sampled_from([b"|", b"||", b"|||", b" ", b"a", b"\xff", b"\t"])).map(b"".join))
def test_fields_joined_are_the_row(row: bytes) -> None:
    assert b"|||".join(split_fields(row)) == row
    assert b"|||".join(split_fields(row, 3)) == row
    assert len(split_fields(row, 3)) <= 4


@pytest.mark.parametrize(
    ("row", "fields"),
    [
        (b"a ||| b ||| 0.5 ||| ||| 1 1 1", [b"a ", b" b ", b" 0.5 ", b" ", b" 1 1 1"]),
        (b"a ||| b ||| 0.5 ||| 0-0 ||| 1 1 1 ||| |||", [b"a ", b" b ", b" 0.5 ", b" 0-0 ", b" 1 1 1 ", b" ", b""]),
        (b"a ||| b ||| 0.5 |||  |||  |||", [b"a ", b" b ", b" 0.5 ", b"  ", b"  ", b""]),
        (b"a|||b|||0.5", [b"a", b"b", b"0.5"]),
        (b"a || b ||| c", [b"a || b ", b" c"]),
        (b"||||", [b"", b"|"]),
        (b"", [b""]),
    ],
)
def test_empty_fields_share_a_blank(row: bytes, fields: list[bytes]) -> None:
    assert split_fields(row) == fields


def test_limit_leaves_the_rest_whole() -> None:
    assert split_fields(b"a|||b|||1|||0-0|||x", 3) == [b"a", b"b", b"1", b"0-0|||x"]
    assert split_fields(b"a|||b|||1", 3) == [b"a", b"b", b"1"]


@pytest.mark.parametrize("byte", NO_SEPARATORS)
def test_only_ascii_blanks_separate_words(byte: bytes) -> None:
    assert words(b" a" + byte + b"b c\t" + byte + b" ") == [b"a" + byte + b"b", b"c", byte]


@given(blanky)
def test_words_are_what_stands_between_blanks(field: bytes) -> None:
    assert words(field) == re.findall(rb"[^ \t]+", field)


@given(blanky, field_bytes)
def test_appending_changes_nothing_else(field: bytes, append: bytes) -> None:
    body = re.sub(rb"[ \t\r]+\Z", b"", field)
    assert replace_tail(field, 0, append) == body + append + field[len(body) :]
    assert replace_tail(field, 0, b"") == field


@given(
    st.lists(st.sampled_from([b"0.5", b"1", b"\xff"]), min_size=1, max_size=4),
    st.sampled_from([b"", b" ", b"\t ", b"  "]),
    st.sampled_from([b" ", b"\t", b"  ", b" \t"]),
    st.sampled_from([b"", b" ", b"\r", b" \r", b"\t\r\r"]),
    st.lists(st.sampled_from([b"0.1", b"1e-5", b"7.389056"]), max_size=3),
)
def test_dropping_undoes_appending(kept: list[bytes], start: bytes, blank: bytes, end: bytes, added: list[bytes]) -> None:
    field = start + blank.join(kept) + end
    longer = replace_tail(field, 0, b"".join(b" " + word for word in added))
    assert replace_tail(longer, len(added), b"") == field
    assert replace_tail(longer, len(added), b" 9") == start + blank.join(kept) + b" 9" + end


@pytest.mark.parametrize(
    ("field", "drop", "append", "expected"),
    [
        (b" 0.5 0.25 ", 1, b"", b" 0.5 "),
        (b" 0.5\t0.25\t1 ", 2, b" 7 1", b" 0.5 7 1 "),
        (b" 0.5  0.25\r", 1, b" 1", b" 0.5 1\r"),
        (b" 0.5 0.25 ", 2, b"", b" "),
        (b"0.5", 0, b" 1", b"0.5 1"),
    ],
)
def test_replaced_tails(field: bytes, drop: int, append: bytes, expected: bytes) -> None:
    assert replace_tail(field, drop, append) == expected
