"""Rows cut by one expression against the same rows parsed one by one; only rows that are not plain are parsed."""

from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from row_edits import with_scores

from phrase_rescore.errors import RowError
from phrase_rescore.files.inputs import Block
from phrase_rescore.moses import table as moses_table
from phrase_rescore.moses.table import parse_block, parse_row

PIECES = [b"|||", b" ||| ", b"a", b" b ", b"[X]", b"]", b"0.5", b" 1 ", b"\t", b"  ", b"\r", b"\x0b", b"\xa0", b"x", b"|", b""]
ODD = [
    b"a ||| b ||| 1", b"a ||| b ||| 1 1 |||| x", b"a |||| b ||| 1 1", b"a ||| b ||| .5 1", b"a  b|||c||| 0.5 1 ||| 0-0",
    b" a\t||| b ||| 1 1 1 ", b"a\xa0 ||| ] ||| 0 1", b"a ||| [b] ||| 1 1",
]  # fmt: skip
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


@given(BLOCKS, st.sampled_from([2, 2, 2, 1, 3]), st.integers(0, 1), st.booleans())
@example([b"a ||| b ||| 1 0.5", b"a ||| b"], 2, 0, False)  # its last row is bad and ends without a newline
def test_rows_of_a_block_are_those_taken_one_by_one(rows, n_scores, drop, newline) -> None:
    drop = min(drop, n_scores - 1)
    data = b"\n".join(rows) + b"\n" * (newline or not rows[-1])
    found = parse_block(Block(3, 41, data), n_scores)
    expected, bad = [], []
    for line, row in enumerate(rows, 41):
        try:
            parsed = parse_row(row, n_scores)
        except RowError as error:
            bad.append((line, row, str(error)))
            continue
        row = with_scores(parsed.fields, drop, b" 0.25 %d" % line)
        expected.append((line, b" ".join(parsed.src), b" ".join(parsed.tgt), row))
    assert list(zip(found.lines, found.src, found.tgt, strict=True)) == [row[:3] for row in expected]
    ends = [row[3] + b"\n" for row in expected]
    if ends and found.lines[-1] == 40 + len(rows) and not data.endswith(b"\n"):
        ends[-1] = ends[-1][:-1]  # what ended without a newline still does
    assert found.write(drop, [b" 0.25 %d" % line for line in found.lines]) == b"".join(ends)
    assert [(line, row, str(error)) for line, row, error in found.bad] == bad


@given(
    st.lists(
        st.sampled_from([b"0", b"17", b".", b"e", b"E", b"+", b"-", b" ", b"\r", b"x", b"0.5", b"1e-5", b".5"]), max_size=12
    )
)
def test_scores_are_numbers_in_both_ways(pieces: list[bytes]) -> None:
    scores = b"".join(pieces)
    data = b"a ||| b ||| " + scores + b" ||| 0-0"
    is_plain = moses_table.cut_rows(data, 2).others == [None]
    try:
        parsed = parse_row(data, 2)
    except RowError:
        assert not is_plain
        return
    assert is_plain == (b" ".join(parsed.scores) == scores)
    assert parse_block(Block(0, 1, data), 2).values(2).tolist() == [[float(score) for score in parsed.scores]]


PLAIN_ROWS = [
    [b"a b ||| c ||| 1 0.5 ||| 0-0 ||| 1 1 1 ||| |||", b"a b ||| c d ||| 1e-05 +5. |||  ||| 2 2\t1"],
    [b"a ||| b ||| 1 1", b"c ||| d ||| .5 2"],
    [b"a|b|c d|e ||| f|g ||| 1 1 ||| x]\r"],
]


@pytest.mark.parametrize("rows", PLAIN_ROWS)
def test_plain_rows_are_not_parsed_one_by_one(rows: list[bytes]) -> None:
    with mock.patch.object(moses_table, "parse_row", side_effect=AssertionError("row by row")):
        assert len(parse_block(Block(0, 1, b"\n".join(rows) + b"\n"), 2).lines) == len(rows)


@pytest.mark.parametrize("odd", [b"a] [ ||| [ b] ||| 1 1 ||| x", b"a  b ||| c ||| 1\t1", b"a ||| b ||| 1"])
def test_one_odd_row_is_parsed_and_no_other(odd: bytes) -> None:
    rows = [b"w%d ||| x ||| 1 1 ||| 0-0" % i for i in range(100)]
    rows[41] = odd
    with mock.patch.object(moses_table, "parse_row", side_effect=parse_row) as parsed:
        block = parse_block(Block(0, 1, b"\n".join(rows) + b"\n"), 2)
    parsed.assert_called_once_with(odd, 2)
    assert len(block.lines) + len(block.bad) == 100
