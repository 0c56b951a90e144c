"""Compressed input by content, damage that never passes for a shorter file, output that is complete or not there."""

import bz2
import gzip
import io
import lzma
import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from phrase_rescore.errors import InputError
from phrase_rescore.files import inputs
from phrase_rescore.files.inputs import Block, display_name, input_size, look_ahead, open_input, read_rows
from phrase_rescore.files.outputs import atomic_output, gzip_member


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(data)


class Codec(NamedTuple):
    compress: Callable[[bytes], bytes]
    magic: int  # bytes that tell the format; without them nobody can know that the file is compressed


CODECS = {
    "gz": Codec(lambda data: gzip.compress(data, mtime=0), 3), "bz2": Codec(bz2.compress, 10),
    "xz": Codec(lambda data: lzma.compress(data), 6), "zst": Codec(zst, 4),
}  # fmt: skip
ROWS = b"a b ||| c ||| 0.5 0.25 ||| 0-0 1-0 ||| 3 1 1 ||| |||\nlast one \xff"
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def read_all(path: Path) -> bytes:
    with open_input(str(path)) as stream:
        return stream.read()


def written(tmp_path: Path, data: bytes, name: str = "table") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@codecs
def test_format_is_told_by_content_not_by_name(tmp_path: Path, codec: Codec) -> None:
    assert read_all(written(tmp_path, codec.compress(ROWS), "table.txt")) == ROWS
    assert read_all(written(tmp_path, ROWS, "plain.gz")) == ROWS


@codecs
def test_members_on_end_are_one_file(tmp_path: Path, codec: Codec) -> None:
    parts = [ROWS, b"", b"second\n", b"", random.Random(1).randbytes(700_000), b"end"]
    assert read_all(written(tmp_path, b"".join(map(codec.compress, parts)))) == b"".join(parts)
    assert read_all(written(tmp_path, codec.compress(b""))) == b""


def test_zstandard_file_that_begins_with_a_skippable_frame(tmp_path: Path) -> None:
    """As pzstd writes it: RFC 8878, section 3.1.2."""
    for magic in (b"\x50\x2a\x4d\x18", b"\x5f\x2a\x4d\x18"):
        skippable = magic + (4).to_bytes(4, "little") + b"size"
        assert read_all(written(tmp_path, skippable + zst(ROWS) + skippable + zst(b"second"))) == ROWS + b"second"


@codecs
def test_cut_off_anywhere_is_an_error_that_names_the_file(tmp_path: Path, codec: Codec) -> None:
    whole = codec.compress(ROWS)
    for end in range(codec.magic, len(whole)):
        path = written(tmp_path, whole[:end], "a\nb")
        with pytest.raises(InputError) as caught:
            read_all(path)
        assert str(caught.value) == f"{tmp_path}/a\\nb: the compressed file is cut off; make or copy it again", end
        with pytest.raises(InputError):
            read_all(written(tmp_path, whole + whole[:end]))


@codecs
def test_no_damaged_byte_changes_or_shortens_the_content(tmp_path: Path, codec: Codec) -> None:
    """A flipped byte is an error that names the file, or does not matter (a time stamp), in either of two members."""
    whole = bytearray(codec.compress(ROWS) + codec.compress(b"second\n" + ROWS))
    errors, silent = 0, []
    for position in range(codec.magic, len(whole)):
        damaged = bytes(whole[:position]) + bytes([whole[position] ^ 0xFF]) + bytes(whole[position + 1 :])
        path = written(tmp_path, damaged)
        try:
            if read_all(path) != ROWS + b"second\n" + ROWS:
                silent.append(position)
        except InputError as error:
            errors += error.path == str(path) and error.hint == "make or copy it again"
    assert silent == [], f"bytes of {len(whole)} whose damage went unnoticed"
    assert errors > 0.7 * len(whole)


@codecs
def test_what_follows_the_compressed_data_is_not_ignored(tmp_path: Path, codec: Codec) -> None:
    path = written(tmp_path, codec.compress(ROWS) + b"a ||| b ||| 1\n")
    with pytest.raises(InputError) as caught:
        read_all(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("start", [b"BZhang ||| B Zhang ||| 0.5\n", b"\xfd7z", b"\x1f", b"BZ"])
def test_text_that_begins_like_a_compressed_file(tmp_path: Path, start: bytes) -> None:
    assert read_all(written(tmp_path, start)) == start


@pytest.mark.parametrize("compress", [bytes, *[codec.compress for codec in CODECS.values()]])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]) -> None:
    raw = io.BufferedReader(io.BytesIO(compress(ROWS)))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    with open_input("-") as stream:
        assert stream.read() == ROWS
    assert not raw.closed
    assert display_name("-") == "<stdin>"
    assert input_size("-") is None


@codecs
def test_progress_is_in_bytes_of_the_file(tmp_path: Path, codec: Codec) -> None:
    path = written(tmp_path, codec.compress(random.Random(3).randbytes(600_000)))
    taken: list[int] = []
    with open_input(str(path), taken.append) as stream:
        stream.read()
    assert sum(taken) == os.path.getsize(path) == input_size(str(path))
    assert len(taken) > 2


@pytest.mark.parametrize(("data", "rows"), [
    (b"", 0), (b"a", 1), (b"a\n", 1), (b"\n", 1), (b"a\n\nb", 3), (b"a\r\nb\x0bc\xe2\x80\xa8\n", 2),
    (b"row\n" * 300_000 + b"x", 300_001),
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_rows_of_a_file(tmp_path: Path, data: bytes, rows: int) -> None:
    for content in (data, gzip.compress(data)):
        with open_input(str(written(tmp_path, content))) as stream:
            assert len(list(read_rows(stream))) == rows


def test_the_longest_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LONGEST_ROW", 4)
    assert list(read_rows(io.BufferedReader(io.BytesIO(b"abc\nabcd")))) == [b"abc\n", b"abcd"]
    with pytest.raises(InputError) as caught:
        list(read_rows(io.BufferedReader(io.BytesIO(b"a\nabcd\n"))))
    assert caught.value.line == 2


@pytest.mark.parametrize(("rows", "ahead"), [(1, 2), (2, 2), (3, 4), (9, 6)])
def test_rows_ahead_come_again(monkeypatch: pytest.MonkeyPatch, rows: int, ahead: int) -> None:
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 11)  # more than two blocks, less than three
    blocks = [Block(number, 1 + 2 * number, b"a\nb\n") for number in range(4)]
    first, every = look_ahead(iter(blocks), rows)
    assert first == [b"a", b"b"] * (ahead // 2)
    assert list(every) == blocks


def test_a_file_that_cannot_be_read_is_closed() -> None:
    with pytest.raises(InputError) as caught:  # which keeps what open_input had
        open_input("/proc/self/mem")
    assert "Input/output error" in str(caught.value)
    assert not [
        number for number in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{number}").endswith("/mem")
    ]


@pytest.mark.parametrize("data", [b"", ROWS, ROWS * 1000])
def test_gzip_member_is_the_same_whenever_it_is_made(data: bytes) -> None:
    member = gzip_member(data, "6")
    assert gzip.decompress(member) == data
    assert member == gzip_member(data, "6")
    assert member[:4] == b"\x1f\x8b\x08\x00", "no flags: no file name, no comment"
    assert member[4:8] == bytes(4), "mtime 0"
    assert gzip.decompress(member + gzip_member(b"x", 1)) == data + b"x"


def test_output_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    previous = os.umask(0o027)
    try:
        with atomic_output(str(path)) as stream:
            stream.write(b"rows")
            stream.flush()
            assert not path.exists()
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"rows"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["out"]
