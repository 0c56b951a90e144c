"""Phrase pairs from tables, extract files and TSV: told apart by content, refused by name, errors with line numbers."""

import gzip
from collections.abc import Iterable
from pathlib import Path

import pytest
from in_memory_pairs import read_pairs

from phrase_rescore.errors import InputError
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks
from phrase_rescore.moses.text import Sentences

TABLE = b"the house ||| das haus ||| 0.5 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
EXTRACT = b"the house ||| das haus ||| 0-0 1-1\n"
TSV = b"the house\tdas haus\n"
PAIR = ([b"the", b"house"], [b"das", b"haus"])


def written(tmp_path: Path, data: bytes, name: str = "pairs") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("data", [TABLE, EXTRACT, TSV, TSV.replace(b"\n", b"\r\n"), EXTRACT.replace(b"\n", b"\r\n")])
def test_pairs_are_the_same_in_every_format(tmp_path: Path, data: bytes) -> None:
    assert list(read_pairs(written(tmp_path, data * 2))) == [PAIR] * 2
    assert list(read_pairs(written(tmp_path, gzip.compress(data * 250 + data.rstrip(b"\r\n"))))) == [PAIR] * 251


@pytest.mark.parametrize("data", [b"a ||| b ||| x y\n", b"\n\n"])
def test_files_of_no_known_format(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError) as caught:
        list(read_pairs(path))
    assert str(caught.value).startswith(f"{path}:1: ")
    assert "--format" in str(caught.value)


BAD_ROWS = [  # a good row, a bad one, what is named of it
    (TSV, b"a\tb\tc\n", r"3 columns in 'a\tb\tc'"),
    (TSV, b"a b\r\n", r"1 column in 'a b\r'"),
    (TSV, b"a\t \r\n", "the target phrase"),
    (TSV, b"\tb\n", "the source phrase"),
    (EXTRACT, b"a ||| b ||| 0-x\n", "'0-x'"),
    (EXTRACT, b"a ||| b ||| 0-0 1\n", "'0-0 1'"),
    (EXTRACT, b"a ||| ||| 0-0\n", "the target phrase"),
    (EXTRACT, b"a ||| b\n", "2 fields in 'a ||| b'"),
    (TABLE, b"a ||| b ||| 0.5 nan\n", "'nan'"),
    (TABLE, b"\n", "1 field in ''"),
]


def test_marks_around_phrases_of_tsv_and_byte_order_marks_are_left_out(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf<s> a </s>\tb\n\xef\xbb\xbfc\t<s> d </s>\n"
    sentences = Sentences()
    assert rows_of(read_pair_blocks(written(tmp_path, data), sentences=sentences)) == [([b"a"], [b"b"]), ([b"c"], [b"d"])]
    assert (sentences.marked, sentences.byte_order_marks) == (2, 2)
    assert rows_of(read_pair_blocks(written(tmp_path, b"\xef\xbb\xbfa ||| b ||| 0-0\n"))) == [([b"a"], [b"b"])]
    with pytest.raises(InputError, match=":2: '<s>' between words"):
        list(read_pair_blocks(written(tmp_path, b"a\tb\na <s> b\tc\n")))


def rows_of(blocks: Iterable[PairBlock]) -> list[tuple[list[bytes], list[bytes]]]:
    return [(a.split(b" "), b.split(b" ")) for src, tgt, _ in blocks for a, b in zip(src, tgt, strict=True)]


@pytest.mark.parametrize("before", [1, 4096, *(pytest.param(n, marks=pytest.mark.slow) for n in (99, 100, 4095, 5000))])
@pytest.mark.parametrize(("good", "bad", "named"), BAD_ROWS)
def test_a_bad_row_is_named_with_file_and_line_or_left_out(
    tmp_path: Path, good: bytes, bad: bytes, named: str, before: int
) -> None:
    path = written(tmp_path, good * before + bad * 2 + good)
    with pytest.raises(InputError) as caught:
        list(read_pair_blocks(path))
    assert str(caught.value).startswith(f"{path}:{before + 1}: ")
    assert named in str(caught.value)
    for counts in (False, True):
        dropped = list[tuple[int, bytes]]()
        blocks = read_pair_blocks(path, None, None, lambda line, row, _, kept=dropped: kept.append((line, row)), counts)
        assert rows_of(blocks) == [PAIR] * (before + 1)
        assert dropped == [(before + 1, bad.removesuffix(b"\n")), (before + 2, bad.removesuffix(b"\n"))]


def test_blocks_of_a_table_that_begins_badly(tmp_path: Path) -> None:
    """The first row that can be used says how many scores a row has, in whichever block it stands."""
    bad: list[int] = []
    path = written(tmp_path, b"rubbish\n" * 5000 + b"a ||| b ||| 1 1\n" * 3192 + b"a ||| b ||| 1\n")
    blocks = list(read_pair_blocks(path, "table", on_bad_row=lambda line, row, error: bad.append(line)))
    assert rows_of(blocks) == [([b"a"], [b"b"])] * 3192
    assert bad == [*range(1, 5001), 8193], "at the beginning of a block"


def test_joint_counts_of_a_table(tmp_path: Path) -> None:
    found = (b"3 2 1 ||| |||", b"9  9\t7\r", b"5 4 2.5|||", b"1 1 1.2e+06 4")
    rows = [b"a ||| b ||| 0.5 ||| 0-0 ||| " + counts for counts in found]
    path = written(tmp_path, b"\n".join(rows))
    counts = [block.counts for block in read_pair_blocks(path, counts=True)]
    assert counts == [[1, 7, 2.5, 1_200_000]]


@pytest.mark.parametrize("row", [
    b"a ||| b ||| 1", b"a ||| b ||| 1 ||| 0-0", b"a ||| b ||| 1 ||| 0-0 ||| 1 1", b"a ||| b ||| 1 ||| ||| 1 1 x ||| |||",
])  # fmt: skip
def test_a_count_that_is_missing(tmp_path: Path, row: bytes) -> None:
    good, worse = b"a ||| b ||| 1 ||| 0-0 ||| 1 1 1\n", b"a ||| b |||\n"
    path = written(tmp_path, good + row + b"\n" + worse)
    with pytest.raises(InputError) as caught:
        list(read_pair_blocks(path, counts=True))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "--min-count" in str(caught.value)
    dropped: list[int] = []
    path = written(tmp_path, worse + row + b"\n" + good * 2 + worse)
    (block,) = read_pair_blocks(path, "table", on_bad_row=lambda line, row, error: dropped.append(line), counts=True)
    assert (rows_of([block]), block.counts) == ([([b"a"], [b"b"])] * 2, [1, 1])
    assert dropped == [1, 2, 5]


@pytest.mark.parametrize("data", [EXTRACT, TSV])
def test_every_other_row_is_one_occurrence(tmp_path: Path, data: bytes) -> None:
    assert [block.counts for block in read_pair_blocks(written(tmp_path, data * 3), counts=True)] == [[1, 1, 1]]
