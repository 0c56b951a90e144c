"""Input as bytes, decompressed by its content."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import zstandard
from isal import igzip, isal_zlib

from phrase_rescore.errors import InputError, printable, unreadable

if TYPE_CHECKING:
    import numpy as np

CHUNK = 1 << 18
_BZIP2 = re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")  # a block, or the end at once
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")  # a frame, or a skippable one as pzstd writes first (RFC 8878)
_DAMAGED: tuple[type[Exception], ...] = (
    OSError,
    zlib.error,
    cast(type[Exception], isal_zlib.error),
    lzma.LZMAError,
    zstandard.ZstdError,
)


class _Raw(io.RawIOBase):
    """A stream whose errors name it and that tells ``on_read`` how many bytes each read took from the file on disk."""

    def __init__(self, stream: Any, name: str, on_read: Callable[[int], object] | None = None) -> None:
        self._stream, self.name, self._on_read = stream, name, on_read
        self._read_once = getattr(stream, "readinto1", stream.readinto)  # what waits for no more than there is

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            n: int = self._read_once(buffer)
        except OSError as error:
            raise unreadable(self.name, error) from None
        if self._on_read and n:
            self._on_read(n)
        return n

    def close(self) -> None:
        if sys.stdin is None or self._stream is not sys.stdin.buffer:
            self._stream.close()
        super().close()


class _Streams:
    """Compressed streams one after the other, to the very end of the file.

    (BZ2File and LZMAFile take bytes that begin no stream for the end of the file; zstandard's stream_reader takes a frame that
    is cut off for it.)
    """

    def __init__(self, stream: Any, make: Callable[[], Any], padding: bytes = b"") -> None:
        self._stream, self._make, self._padding = stream, make, padding
        self._decompressor: Any = None  # None between two streams
        self._rest = b""

    def read(self, size: int = -1, /) -> bytes:
        while True:
            data = self._rest or self._stream.read(CHUNK)
            self._rest = b""
            if self._decompressor is None:
                data = data.lstrip(self._padding) if self._padding else data
                if not data and not self._stream.peek(1):
                    return b""
                self._decompressor = self._make()
            elif not data:
                raise EOFError
            out: bytes = self._decompressor.decompress(data)
            if self._decompressor.eof:
                self._rest = self._decompressor.unused_data
                self._decompressor = None
            if out:
                return out


class _Checked(io.RawIOBase):
    """The decompressed bytes; whatever damage is found, the error names the file."""

    def __init__(self, stream: Any, name: str, closes: io.IOBase) -> None:
        self._stream, self.name, self._closes, self._rest = stream, name, closes, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        room = memoryview(buffer)
        if not self._rest:
            try:
                self._rest = memoryview(self._stream.read(len(room)))
            except EOFError:
                raise InputError(self.name, "the compressed file is cut off", "make or copy it again") from None
            except _DAMAGED as error:
                raise InputError(self.name, f"cannot be decompressed ({error})", "make or copy it again") from None
        n = min(len(room), len(self._rest))
        room[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n

    def close(self) -> None:
        self._closes.close()
        super().close()


def input_size(path: str) -> int | None:
    """Return the bytes that a file has on disk, for progress; None where nobody knows (standard input, a pipe)."""
    return os.path.getsize(path) if path != "-" and os.path.isfile(path) else None


def display_name(path: str) -> str:
    """Return what messages call an input."""
    return "<stdin>" if path == "-" else path


def standard_input() -> io.BufferedReader:
    """Return the bytes of standard input. Raises InputError if it is closed."""
    if sys.stdin is None:
        raise InputError(display_name("-"), "standard input is closed", "name a file, or pipe something in")
    return cast(io.BufferedReader, sys.stdin.buffer)


def open_input(path: str, on_read: Callable[[int], object] | None = None) -> io.BufferedReader:
    """Open ``path`` (``-``: standard input) for reading the bytes that it decompresses to.

    gzip (any number of members), bzip2, xz and zstandard are known by their first bytes, not by the name.
    ``on_read`` is called with the number of bytes taken from the file itself.

    Raises InputError when the file cannot be opened and, while reading, when it is cut off or damaged.
    """
    name = display_name(path)
    counted = io.BufferedReader(_Raw(standard_input() if path == "-" else _open(path), name, on_read), CHUNK)
    magic, stream = counted.peek(10)[:10], cast(Any, counted)
    if magic.startswith(b"\x1f\x8b\x08"):
        stream = igzip.IGzipFile(fileobj=counted, mode="rb")
    elif _BZIP2.match(magic):
        stream = _Streams(counted, bz2.BZ2Decompressor)
    elif magic.startswith(b"\xfd7zXZ\x00"):
        stream = _Streams(counted, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=b"\0")
    elif _ZSTD.match(magic):
        stream = _Streams(counted, lambda: zstandard.ZstdDecompressor().decompressobj())
    return io.BufferedReader(_Checked(stream, name, counted), CHUNK)


def _open(path: str) -> io.FileIO:
    try:
        return io.FileIO(path)
    except OSError as error:
        raise unreadable(path, error) from None


def open_plain(path: str) -> io.BufferedReader:
    """Open a file for reading its bytes as they are. Raises InputError when it cannot be opened or read."""
    return io.BufferedReader(_Raw(_open(path), path))


def map_array(path: str, hint: str) -> np.memmap[Any, np.dtype[Any]]:
    """Map the array of an ``.npy`` file, which is then never all in memory. Nothing in the file is executed.

    Raises InputError, with the hint, for any other file and for an array of Python objects, which would be unpickled.
    """
    from numpy.lib.format import open_memmap  # here, so that commands that read text need not wait for it

    open_plain(path).close()  # raises what the system says of the file
    if not os.path.isfile(path):
        raise InputError(path, "is not a regular file", hint)
    try:
        return open_memmap(path, mode="r")
    except Exception as error:  # the header is parsed as Python, and its tokenizer, too, has errors of its own
        raise InputError(path, f"is not an array of numbers ({printable(str(error), 200)})", hint) from None
