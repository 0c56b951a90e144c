"""Files that appear complete or not at all, gzip members, rows that were left out."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from zlib_ng import zlib_ng

from phrase_rescore.errors import OptionError, RescoreError, cannot_write

GZIP_LEVELS = ("fast", *"123456789")
_FAST = 2  # 1 is faster by a third, and files are a third larger


def gzip_member(data: bytes, level: str) -> bytes:
    """One whole gzip member: no file name, mtime 0, so the same bytes whenever it is made.

    ``level`` is one of GZIP_LEVELS: zlib's, done by zlib-ng. (ISA-L, faster still, makes one member in some thousands in
    other bytes when it is made again.)
    """
    compressor = zlib_ng.compressobj(_FAST if level == "fast" else int(level), zlib.DEFLATED, 31)
    return bytes(compressor.compress(data) + compressor.flush())


def is_special(path: str) -> bool:
    """Whether the path is something that is written to as it is: a device, a named pipe."""
    target = os.path.realpath(path)
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


def check_writable(path: str) -> None:
    """Raises OptionError if no file can be written under this name."""
    if os.path.isdir(path):
        raise OptionError(f"{path} is a directory; name a file to write")
    if not is_special(path):
        try:
            directory, name = os.path.split(os.path.realpath(path))
            handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".partial")
            os.close(handle)
            os.unlink(temporary)
        except OSError as error:
            raise OptionError(cannot_write(path, error)) from None


class _Output(io.FileIO):
    """A file whose failing writes name it as its user did."""

    def __init__(self, file: int | str, path: str) -> None:
        super().__init__(file, "wb")
        self._path = path

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RescoreError(cannot_write(self._path, error)) from None


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[BinaryIO]:
    """A file that appears under its name only when the ``with`` block ends well; otherwise nothing is left of it.

    A link stays and its target is replaced. What is no regular file (a device, a named pipe) is written to as it is.

    Raises OptionError if there is no writing there, RescoreError when writing fails before the end, as on a full disk.
    """
    if os.path.isdir(path):
        raise OptionError(f"{path} is a directory; name a file to write")
    target, temporary = os.path.realpath(path), None
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            raw = _Output(target, path)
        else:
            directory, name = os.path.split(target)
            handle, temporary = tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".partial")
            raw = _Output(handle, path)
    except OSError as error:
        raise OptionError(cannot_write(path, error)) from None
    if temporary is None:
        with io.BufferedWriter(raw) as stream:
            yield stream
        return
    try:
        with io.BufferedWriter(raw) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def replace_directory(directory: str) -> Iterator[str]:
    """A directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    What stood under that name goes; a link stays and its target is replaced. Raises OptionError if there is no writing there.
    """
    target = os.path.realpath(directory)
    parent, name = os.path.split(target)
    try:
        os.makedirs(parent, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=parent, prefix=f".{name}.", suffix=".partial")
    except OSError as error:
        raise OptionError(cannot_write(directory, error)) from None
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o777 & ~umask)
        for entry in os.scandir(temporary):  # safetensors makes its files readable by nobody else
            os.chmod(entry.path, 0o666 & ~umask)
        if os.path.isdir(target):
            old = tempfile.mkdtemp(dir=parent, prefix=f".{name}.", suffix=".old")
            os.rename(target, os.path.join(old, name))
            os.rename(temporary, target)
            shutil.rmtree(old)
        else:
            os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


class Writable(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> object: ...


class SideFile:
    """Rows that were left out, in a file that appears when the ``with`` block ends well, and only if there are any.

    With ``expected`` false no row will be left out and nothing is touched. Otherwise an older file of this name, from a run
    that left rows out, goes when this one leaves out none.
    """

    def __init__(self, path: str, expected: bool, named: int = 10) -> None:
        self.path, self.rows, self._expected, self._named = path, 0, expected, named
        self.where: list[str] = []
        self.opened: Callable[[str], contextlib.AbstractContextManager[Writable]] = atomic_output
        self._stream: Writable | None = None

    def __enter__(self) -> SideFile:
        self._stack = contextlib.ExitStack()
        return self

    def add(self, where: str, row: bytes) -> None:
        """Keeps a row (without newline); ``where`` it stood is remembered for the first few."""
        if self._stream is None:
            self._stream = self._stack.enter_context(self.opened(self.path))
        self._stream.write(row + b"\n")
        self.rows += 1
        if len(self.where) < self._named:
            self.where.append(where)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is None and self._expected and not self.rows and os.path.isfile(self.path):
            os.unlink(self.path)

    def summary(self) -> str:
        """``dropped 2 rows, kept in FILE: 17, 40``."""
        more = ", …" if self.rows > len(self.where) else ""
        return f"dropped {self.rows:,} row{'s' * (self.rows != 1)}, kept in {self.path}: {', '.join(self.where)}{more}"
