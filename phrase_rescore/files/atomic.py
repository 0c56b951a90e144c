"""Files that appear complete or not at all, gzip members, rows that were left out."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from zlib_ng import zlib_ng

from phrase_rescore.errors import OptionError, RescoreError, cannot_write, counted

GZIP_LEVELS = ("fast", *"123456789")
_FAST = 2  # 1 is faster by a third, and files are a third larger


def gzip_member(data: bytes, level: str) -> bytes:
    """Compress data to one whole gzip member: no file name, mtime 0, so the same bytes whenever it is made.

    ``level`` is one of GZIP_LEVELS: zlib's, computed by zlib-ng. (ISA-L, faster still, makes one member in some thousands
    in other bytes when it is made again.)
    """
    compressor = zlib_ng.compressobj(_FAST if level == "fast" else int(level), zlib.DEFLATED, 31)
    return bytes(compressor.compress(data) + compressor.flush())


def is_special(path: str) -> bool:
    """Tell whether the path is written to as it is: a device, a named pipe."""
    target = os.path.realpath(path)
    return os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)


def sync(path: str) -> None:
    """Put a file's bytes, or a directory's names, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_usual_rights(file: str | int, most: int = 0o666) -> None:
    """Give a file (path or handle) that its owner alone could read the rights of any new one: ``most``, less the umask."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(file, most & ~umask)


def _temporary(path: str) -> tuple[int, str]:
    """Make a file beside the one that ``path`` leads to and return its handle and name. Raises OptionError if it cannot."""
    if os.path.isdir(path):
        raise OptionError(f"{path} is a directory; name a file to write")
    directory, name = os.path.split(os.path.realpath(path))
    try:
        return tempfile.mkstemp(dir=directory, prefix=f".{name}.", suffix=".partial")
    except OSError as error:
        raise OptionError(cannot_write(path, error)) from None


def check_writable(path: str) -> None:
    """Raise OptionError if no file can be written under this name."""
    if not is_special(path):
        handle, temporary = _temporary(path)
        os.close(handle)
        os.unlink(temporary)


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
    """Open a file that appears under its name only when the ``with`` block ends well; otherwise nothing is left of it.

    A link stays and its target is replaced. A device or a named pipe is written to as it is.

    Raises OptionError if the file cannot be made, RescoreError when writing fails before the end, as on a full disk.
    """
    target = os.path.realpath(path)
    if is_special(path):
        try:
            raw = _Output(target, path)
        except OSError as error:
            raise OptionError(cannot_write(path, error)) from None
        with io.BufferedWriter(raw) as stream:
            yield stream
        return
    handle, temporary = _temporary(path)
    try:
        with io.BufferedWriter(_Output(handle, path)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        give_usual_rights(temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def check_replaceable(directory: str) -> None:
    """Raise OptionError if the directory cannot be replaced by another one because of what it is, whatever is in it."""
    target = os.path.realpath(directory)
    if os.path.commonpath([target, os.path.realpath(os.curdir)]) == target:
        raise OptionError(f"{directory} is the current directory or has it inside, and would be replaced; name another")
    if os.path.ismount(target):
        raise OptionError(f"{directory} is a mount point and cannot be replaced; name a directory in it")


def _names_around(directory: str) -> tuple[str, str, str]:
    """Return what a directory's name leads to, the name under which its successor grows, and the one under which it goes."""
    target = os.path.realpath(directory)
    parent, name = os.path.split(target)
    return target, os.path.join(parent, f".{name}.partial"), os.path.join(parent, f".{name}.old")


def older_directory(directory: str) -> str | None:
    """Return where the directory is that a killed run was about to replace, None if it has its name."""
    target, _, old = _names_around(directory)
    return old if os.path.isdir(old) and not os.path.lexists(target) else None


def recover_directory(directory: str) -> None:
    """Put right what was left by a run that was killed while it replaced the directory: the older one gets its name back.

    The caller holds the lock of the directory (``files.locks``). Raises OSError if the older one cannot be moved.
    """
    target, temporary, old = _names_around(directory)
    if older_directory(directory):
        os.rename(old, target)
    for left in (temporary, old):
        shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def replace_directory(directory: str) -> Iterator[str]:
    """Make a directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    What stood under that name goes; a link stays and its target is replaced. After a kill, ``recover_directory`` and this
    put right what is left: at every moment the older directory or the new one is there, whole. The caller holds the lock of
    the directory (``files.locks``). Raises OptionError if it cannot be made.
    """
    target, temporary, old = _names_around(directory)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        recover_directory(directory)
        os.mkdir(temporary, 0o700)
    except OSError as error:
        raise OptionError(cannot_write(directory, error)) from None
    try:
        yield temporary
        give_usual_rights(temporary, 0o777)
        for path in (os.path.join(temporary, name) for name in os.listdir(temporary)):
            give_usual_rights(path)  # safetensors makes its files readable by nobody else
            sync(path)
        sync(temporary)
        if os.path.isdir(target):
            os.rename(target, old)
        os.rename(temporary, target)
        sync(os.path.dirname(target))
    finally:
        recover_directory(directory)


class Writable(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> object: ...


class SideFile:
    """Rows that were left out, in a file of their own, which is made only if there are any.

    With ``expected`` false no row will be left out and nothing is touched. Otherwise an older file of this name, from a run
    that left rows out, goes when this one leaves out none.
    """

    def __init__(self, path: str, expected: bool, named: int = 10) -> None:
        self.path, self._expected, self._named = path, expected, named
        self.rows, self.where = 0, list[str]()
        self._stream: Writable | None = None

    @contextlib.contextmanager
    def opened(
        self, opener: Callable[[str], contextlib.AbstractContextManager[Writable]] = atomic_output
    ) -> Iterator[SideFile]:
        """Take rows while the ``with`` block lasts; the file is made by ``opener``, and complete when the block ends well."""
        with contextlib.ExitStack() as self._stack:
            self._opener = opener
            yield self
        if self._expected and not self.rows and os.path.isfile(self.path):
            os.unlink(self.path)

    def add(self, where: str, row: bytes) -> None:
        """Keep a row (without newline); ``where`` it stood is remembered for the first few."""
        if self._stream is None:
            self._stream = self._stack.enter_context(self._opener(self.path))
        self._stream.write(row + b"\n")
        self.rows += 1
        if len(self.where) < self._named:
            self.where.append(where)

    def summary(self) -> str:
        """``dropped 2 rows, kept in FILE: 17, 40``."""
        more = ", …" if self.rows > len(self.where) else ""
        return f"dropped {counted(self.rows, 'row')}, kept in {self.path}: {', '.join(self.where)}{more}"
