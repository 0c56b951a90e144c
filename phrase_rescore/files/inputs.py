"""Input as bytes, decompressed by its content; its rows one at a time, and in blocks, the unit of work; files of scores."""

from __future__ import annotations

import bz2
import io
import lzma
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, Self, cast

import zstandard
from isal import igzip, isal_zlib

from phrase_rescore.errors import InputError, reading
from phrase_rescore.files.paths import is_stream
from phrase_rescore.messages import Progress, printable, shown

CHUNK = 1 << 18
BLOCK_BYTES = 1 << 24  # a block of rows ends, however few they are, with the row by which it has so many bytes
LONGEST_ROW = 1 << 24  # bytes; what is longer is not a row
ROUNDING = 1e-6  # that probabilities may exceed 1 by, and their logarithms 0
_DAMAGED: tuple[Any, ...] = (EOFError, OSError, zlib.error, isal_zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _Raw(io.RawIOBase):
    """A stream whose errors name it. ``on_read`` gets the number of bytes that each read took from the file on disk."""

    def __init__(self, stream: Any, name: str, on_read: Progress | None) -> None:
        self._stream, self.name, self._on_read = stream, name, on_read
        self._read_once = getattr(stream, "readinto1", stream.readinto)  # what waits for no more than there is

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with reading(self.name):
            n: int = self._read_once(buffer)
        if self._on_read and n:
            self._on_read(n)
        return n

    def close(self) -> None:
        if sys.stdin is None or self._stream is not sys.stdin.buffer:
            self._stream.close()
        super().close()


def _decompressed(stream: Any, make: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Decompress concatenated streams to the end of the file, where the libraries' own readers stop too early."""
    rest = b""
    while rest or stream.peek(1):
        if rest := (rest or stream.read(CHUNK)).lstrip(padding):
            decompressor = make()
            yield decompressor.decompress(rest)
            while not decompressor.eof:
                if not (data := stream.read(CHUNK)):
                    raise EOFError
                yield decompressor.decompress(data)
            rest = decompressor.unused_data


class _Checked(io.RawIOBase):
    """The decompressed bytes; whatever damage is found, the error names the file."""

    def __init__(self, chunks: Iterator[bytes], name: str, closes: io.IOBase) -> None:
        self._chunks, self.name, self._closes, self._rest = filter(None, chunks), name, closes, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer)
        if not self._rest:
            try:
                self._rest = memoryview(next(self._chunks, b""))
            except _DAMAGED as error:
                fault = "the compressed file is cut off" if isinstance(error, EOFError) else f"cannot be decompressed ({error})"
                raise InputError(self.name, fault, "make or copy it again") from None
        n = min(len(room), len(self._rest))
        room[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        self._closes.close()
        super().close()


def input_size(path: str) -> int | None:
    """Return the bytes that a file has on disk, for progress; None for standard input and pipes."""
    return os.path.getsize(path) if path != "-" and os.path.isfile(path) else None


def display_name(path: str) -> str:
    """Return what messages call an input."""
    return "<stdin>" if path == "-" else path


def standard_input() -> io.BufferedReader:
    """Return the bytes of standard input. Raises InputError if it is closed."""
    if sys.stdin is None:
        raise InputError(display_name("-"), "standard input is closed", "name a file, or pipe something in")
    return cast(io.BufferedReader, sys.stdin.buffer)


def open_input(path: str, on_read: Progress | None = None) -> io.BufferedReader:
    """Open ``path`` (``-``: standard input) for reading the bytes that it decompresses to, by its content, not its name.

    ``on_read`` gets the number of bytes that each read took from the file. Raises InputError, also while reading, for damage.
    """
    name = display_name(path)
    counted = open_plain(path, on_read) if path != "-" else io.BufferedReader(_Raw(standard_input(), name, on_read), CHUNK)
    try:
        magic = counted.peek(10)[:10]
    except InputError:  # the caller has nothing to close yet
        counted.close()
        raise
    if magic.startswith(b"\x1f\x8b\x08"):
        chunks = iter(partial(igzip.IGzipFile(fileobj=counted, mode="rb").read, CHUNK), b"")
    elif re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", magic):  # a block, or the end at once
        chunks = _decompressed(counted, bz2.BZ2Decompressor)
    elif magic.startswith(b"\xfd7zXZ\x00"):
        chunks = _decompressed(counted, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=b"\0")
    elif re.match(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", magic):  # a frame, or one that pzstd writes first (RFC 8878)
        chunks = _decompressed(counted, lambda: zstandard.ZstdDecompressor().decompressobj())
    else:
        chunks = iter(partial(counted.read, CHUNK), b"")
    return io.BufferedReader(_Checked(chunks, name, counted), CHUNK)


def open_plain(path: str, on_read: Progress | None = None) -> io.BufferedReader:
    """Open a file for reading its bytes as they are. Raises InputError when it cannot be opened or read."""
    with reading(path):
        return io.BufferedReader(_Raw(io.FileIO(path), path, on_read), CHUNK)


class Block(NamedTuple):
    """Consecutive rows of an input: the unit of work."""

    number: int  # 0, 1, 2, …
    first_row: int  # 1-based number of its first row
    data: bytes  # whole rows with their newlines; the file's last row may lack one
    scores: tuple[bytes, ...] = ()  # their lines in each file of scores

    @property
    def n_rows(self) -> int:
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def rows(self) -> list[bytes]:
        """Return the rows without their newlines."""
        return self.data.removesuffix(b"\n").split(b"\n")


def _too_long(stream: io.BufferedReader, row: int) -> InputError:
    name = getattr(stream, "name", display_name("-"))
    return InputError(name, f"a row of more than {LONGEST_ROW >> 20} MiB", "is this text with a row a line?", row)


def read_rows(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield the rows with their newlines, one at a time. Raises InputError for a row of more than LONGEST_ROW bytes."""
    for number, row in enumerate(iter(partial(stream.readline, LONGEST_ROW + 1), b""), 1):
        if len(row) > LONGEST_ROW:
            raise _too_long(stream, number)
        yield row


def read_blocks(stream: io.BufferedReader, rows: int) -> Iterator[Block]:
    """Cut a stream into blocks of ``rows``, or of fewer that come to BLOCK_BYTES. Raises InputError as ``read_rows`` does.

    Chunks are counted and cut, for a loop over rows takes twice the time, in the one process that feeds all others.
    """
    number, first_row, parts, n, size, row = 0, 1, list[bytes](), 0, 0, 0  # of the next block; row: bytes of its last row
    while chunk := stream.read1(CHUNK):
        newlines, start = chunk.count(b"\n"), 0
        if row + (chunk.find(b"\n") + 1 or len(chunk)) > LONGEST_ROW:
            raise _too_long(stream, first_row + n)
        row = len(chunk) - 1 - chunk.rfind(b"\n") if newlines else row + len(chunk)
        while newlines:
            full = start + max(BLOCK_BYTES - size, 1)  # by here it has its bytes, and ends with the row
            end = chunk.find(b"\n", full - 1) + 1 if full <= len(chunk) else 0
            found = chunk.count(b"\n", start, end) if end else newlines
            if n + found >= rows:
                end, found = start, rows - n
                for _ in range(found):
                    end = chunk.index(b"\n", end) + 1
            if not end:
                break
            yield Block(number, first_row, b"".join((*parts, chunk[start:end])))
            number, first_row, start, newlines = number + 1, first_row + n + found, end, newlines - found
            parts, n, size = [], 0, 0
        parts.append(chunk[start:])
        n, size = n + newlines, size + len(chunk) - start
    if size:
        yield Block(number, first_row, b"".join(parts))


def look_ahead(blocks: Iterator[Block], rows: int) -> tuple[list[bytes], Iterator[Block]]:
    """Return the first rows, so many or some megabytes and to the end of a block, without newlines, and all blocks."""
    ahead, size = list[Block](), 0
    for block in blocks:
        ahead.append(block)
        size += len(block.data)
        if block.first_row + block.n_rows > rows or size > BLOCK_BYTES:
            break
    return [row for block in ahead for row in block.rows()], chain(ahead, blocks)


def natural_log(path: str, number: int, line: bytes, log: bool) -> float:
    """Return the natural logarithm of the number in a line, or with ``log`` the number. Raises InputError without one."""
    name = display_name(path)
    try:
        value = math.nan if b"_" in line else float(line)  # Python reads 1_0 as 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(name, f"{shown(line.strip())} is not a number", "write a number a line", number)
    if value > (ROUNDING if log else 1 + ROUNDING):
        hint = "turn costs into log p: write each with a minus sign before it, and give --log"
        if log and value <= 1:
            hint = "leave --log out if these are probabilities; costs become log p by a minus sign"
        found = f"{printable(line.strip())} is above {0 if log else 1}, so it is {'no log p' if log else 'no probability'}"
        raise InputError(name, found, hint, number)
    if log:
        return value
    if value <= 0:
        hint = "a probability is; add --log if the file has natural logarithms"
        raise InputError(name, f"{printable(line.strip())} is not above 0", hint, number)
    return math.log(value)


def _count_lines(path: str) -> int:
    with open_input(path) as stream:
        lines, last = 0, b"\n"
        for chunk in iter(partial(stream.read, CHUNK), b""):
            lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    return lines + (last != b"\n")


class ScoreFiles(ExitStack):
    """Such files, open at once in a ``with`` block, with a line for each of the ``items`` of the file ``scored``."""

    def __init__(self, paths: Sequence[str], scored: str, items: str) -> None:
        super().__init__()
        self._paths, self._scored, self._items = paths, display_name(scored), items
        self._counted = None if is_stream(scored) else scored
        self.taken = 0  # lines of each
        self._hint = f"write a number for each of its {items}, in their order"

    def check_lines(self) -> None:
        """Raise InputError for another number of lines than that of the file ``scored``, where files can be read twice."""
        if self._counted is None or not self._paths:
            return
        wanted = _count_lines(self._counted)
        for path in self._paths:
            if not is_stream(path) and (lines := _count_lines(path)) != wanted:
                raise InputError(path, f"{lines:,} lines, but {self._scored} has {wanted:,} {self._items}", self._hint)

    def __enter__(self) -> Self:
        self._rows = [read_rows(self.enter_context(open_input(path))) for path in self._paths]
        return self

    def take(self, n: int) -> list[list[bytes]]:
        """Return the next ``n`` lines of every file. Raises InputError for a file that ends before."""
        taken = [list(islice(rows, n)) for rows in self._rows]
        for path, lines in zip(self._paths, taken, strict=True):
            if len(lines) < n:
                last = self.taken + len(lines)
                raise InputError(
                    display_name(path), f"ends at line {last:,}; {self._scored} has more {self._items}", self._hint
                )
        self.taken += n
        return taken

    def end(self) -> None:
        """Raise InputError for a file that has more lines than were taken."""
        for path, rows in zip(self._paths, self._rows, strict=True):
            if next(rows, None) is not None:
                fault = f"has more lines than {self._scored} has {self._items} ({self.taken:,})"
                raise InputError(display_name(path), fault, self._hint)

    def beside(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks of rows with the lines of these files. Raises InputError as ``take`` and ``end``."""
        for block in blocks:
            yield block._replace(scores=tuple(map(b"".join, self.take(block.n_rows))))
        self.end()
