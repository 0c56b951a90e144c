"""Blocks taken at once against the same rows one by one, and that plain blocks do take the quick way."""

from __future__ import annotations

import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.errors import RowError
from phrase_rescore.files.blocks import Block
from phrase_rescore.moses import table_blocks
from phrase_rescore.moses.factors import WHOLE, Factors
from phrase_rescore.moses.phrase_table import NUMBER, has_irregular_blanks, parse_row, with_scores, with_single_blanks
from phrase_rescore.moses.table_blocks import _are_scores, parse_block

PIECES = [b"|||", b" ||| ", b"a", b" b ", b"[X]", b"]", b"0.5", b" 1 ", b"\t", b"  ", b"\r", b"\x0b", b"\xa0", b"x", b"|", b""]
ODD = [
    b"a ||| b ||| 1",
    b"a ||| b ||| 1 1 |||| x",
    b"a |||| b ||| 1 1",
    b"a ||| b ||| .5 1",
    b"a  b|||c||| 0.5 1 ||| 0-0",
    b" a\t||| b ||| 1 1 1 ",
    b"a\xa0 ||| ] ||| 0 1",
    b"a ||| [b] ||| 1 1",
]
WORDS = st.lists(
    st.sampled_from([b"a", b"b\r", b"|", b"[", b"]", b"[]x", b"\xe2\x80\xa8", b"||", b"0-0"]), min_size=1, max_size=3
)
PHRASES = WORDS.map(b" ".join)
SCORES = st.lists(st.sampled_from([b"1", b"0.5", b"1e-05", b"-3", b"1."]), min_size=2, max_size=2).map(b" ".join)
TAILS = [b"0-0 ||| 1 1 1 ||| |||", b"||||| x", b"|x|", b"||| 1 1 1", b"", b" ", b"0-0"]


def row_of(src: bytes, tgt: bytes, scores: bytes, tail: bytes | None) -> bytes:
    return b" ||| ".join((src, tgt, scores) if tail is None else (src, tgt, scores, tail))


BROKEN = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
PLAIN = st.builds(row_of, PHRASES, PHRASES, SCORES, st.sampled_from(TAILS))
SHORT = st.builds(row_of, PHRASES, PHRASES, SCORES, st.none())
BLOCKS = st.one_of(
    st.lists(PLAIN, min_size=1),
    st.lists(SHORT, min_size=1),
    st.tuples(st.lists(PLAIN), st.one_of(BROKEN, st.sampled_from(ODD)), st.lists(PLAIN)).map(lambda t: [*t[0], t[1], *t[2]]),
    st.lists(st.one_of(BROKEN, st.sampled_from(ODD)), min_size=1),
)


@given(BLOCKS, st.sampled_from([2, 2, 2, 1, 3]), st.integers(0, 1), st.booleans(), st.booleans())
def test_rows_of_a_block_are_those_taken_one_by_one(
    rows: list[bytes], n_scores: int, drop: int, fix: bool, newline: bool
) -> None:
    drop = min(drop, n_scores - 1)
    data = b"\n".join(rows) + b"\n" * (newline or not rows[-1])
    found = parse_block(Block(3, 41, data), n_scores, fix)
    expected, bad, irregular = [], [], 0
    for line, row in enumerate(rows, 41):
        try:
            parsed = parse_row(row, n_scores)
        except RowError as error:
            bad.append((line, row, str(error)))
            continue
        irregular += has_irregular_blanks(parsed.fields[2])
        fields = [*parsed.fields[:2], with_single_blanks(parsed.fields[2]) if fix else parsed.fields[2], *parsed.fields[3:]]
        expected.append((line, b" ".join(parsed.src), b" ".join(parsed.tgt), with_scores(fields, drop, b" 0.25 %d" % line)))
    assert list(zip(found.lines, found.src, found.tgt, strict=True)) == [row[:3] for row in expected]
    ends = [row[3] + b"\n" for row in expected]
    if ends and found.lines[-1] == 40 + len(rows) and not data.endswith(b"\n"):
        ends[-1] = ends[-1][:-1]  # what ended without a newline still does
    assert found.write(drop, [b" 0.25 %d" % line for line in found.lines]) == b"".join(ends)
    assert [(line, row, str(error)) for line, row, error in found.bad] == bad
    assert found.irregular_blanks == irregular


ANY_BLOCK = st.one_of(
    st.binary(min_size=1, max_size=60),
    st.lists(
        st.sampled_from([*PIECES, b"\n", b"a|x", b"|x", b"\0", b"a ||| b ||| 1 1", b"a|x ||| b|y ||| 0.5 1 ||| 0-0\n"])
    ).map(b"".join),
).filter(bool)


@given(ANY_BLOCK, st.integers(1, 3), st.sampled_from([WHOLE, (0, None), (None, 1), (1, 0)]), st.booleans())
def test_any_bytes_at_once_are_those_row_by_row(data: bytes, n_scores: int, factors: Factors, fix: bool) -> None:
    block = Block(0, 1, data)
    found = parse_block(block, n_scores, fix, (factors,))
    expected = table_blocks._by_rows(block, n_scores, (factors,), fix)
    assert [list(found.lines), list(found.src), list(found.tgt)] == [expected.lines, expected.src, expected.tgt]
    assert [(line, row, str(error)) for line, row, error in found.bad] == [
        (line, row, str(error)) for line, row, error in expected.bad
    ]
    assert found.irregular_blanks == expected.irregular_blanks
    append = [b" 0.25 %d" % line for line in found.lines]
    assert [found.write(drop, append) for drop in range(n_scores)] == [expected.write(drop, append) for drop in range(n_scores)]


@given(
    st.lists(st.sampled_from([b"0", b"17", b".", b"e", b"E", b"+", b"-", b" ", b"\n", b"\r", b"x"]), max_size=12),
    st.integers(1, 3),
)
def test_scores_checked_at_once_are_numbers(pieces: list[bytes], n_scores: int) -> None:
    text = b"".join(pieces)
    number = NUMBER + rb"(?: " + NUMBER + rb"){%d}" % (n_scores - 1)
    right = all(re.fullmatch(number, line) for line in text.split(b"\n"))
    without_whole_part = re.search(rb"(?<!\d)\.", text)
    assert _are_scores(text, n_scores) == (right and not without_whole_part)


@pytest.mark.parametrize(
    "rows",
    [
        [b"a b ||| c ||| 1 0.5 ||| 0-0 ||| 1 1 1 ||| |||", b"a b ||| c d ||| 1e-05 +5. |||  ||| 2 2\t1"],
        [b"a ||| b ||| 1 1", b"c ||| d ||| 0.5 2"],
        [b"a] [ ||| [ b] ||| 1 1 ||| x"],
    ],
)
def test_plain_blocks_take_the_quick_way(rows: list[bytes]) -> None:
    with mock.patch.object(table_blocks, "_by_rows", side_effect=AssertionError("row by row")):
        block = parse_block(Block(0, 1, b"\n".join(rows) + b"\n"), 2)
    for drop in (0, 1):
        expected = [with_scores(parse_row(row).fields, drop, b" 0.25 1") + b"\n" for row in rows]
        assert block.write(drop, [b" 0.25 1"] * len(rows)) == b"".join(expected)
