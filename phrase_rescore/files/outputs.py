"""Files that appear complete or not at all, streams that are written to as they are, gzip members."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import shutil
import time
import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from zlib_ng import zlib_ng

from phrase_rescore.errors import InputError, OptionError, RescoreError, cannot_write
from phrase_rescore.files.inputs import CHUNK, open_plain
from phrase_rescore.files.locks import Holder
from phrase_rescore.files.paths import is_stream, names_around, older_directory, partial_of

GZIP_LEVELS = ("fast", *"123456789")
_FAST = 2  # 1 is faster by a third, and files are a third larger
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)  # of file systems that have none
_MOST_LINKS = 40  # as the kernel follows


def gzip_member(data: bytes, level: str) -> bytes:
    """Compress data to one whole gzip member: no file name, mtime 0, so the same bytes whenever it is made.

    ``level`` is one of GZIP_LEVELS: zlib's, computed by zlib-ng. (ISA-L, faster still, makes one member in some thousands
    in other bytes when it is made again.)
    """
    compressor = zlib_ng.compressobj(_FAST if level == "fast" else int(level), zlib.DEFLATED, 31)
    return bytes(compressor.compress(data) + compressor.flush())


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


class Writable(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> object: ...


def _owner(handle: int) -> str:
    """Say which process has a file locked, as far as the kernel of this machine knows."""
    found = os.fstat(handle)
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for _, kind, _, _, pid, locked, *_ in map(str.split, Path("/proc/locks").read_text().splitlines()):
            if (kind, locked) == ("FLOCK", file):
                ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
                began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
                since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
                return str(Holder(int(pid), os.uname().nodename, since))
    return "another process, perhaps on another machine"


def has_bytes(path: str, length: int, crc: int) -> bool:
    """Tell whether a file has this length and its bytes this CRC-32."""
    found = total = 0
    try:
        with open_plain(path) as stream:
            while data := stream.read(CHUNK):
                total, found = total + len(data), zlib.crc32(data, found)
    except InputError:
        return False
    return (total, found) == (length, crc)


class PartialFile:
    """Bytes that take a file's name when they are complete. A link stays, and what it leads to is replaced.

    Until then they stand beside that file, as ``.NAME.partial`` or ``NAME.partial`` (``hidden`` or not), readable by their
    owner alone. The partial is locked while its writer lives; another run takes over what a dead one left.
    """

    def __init__(self, target: str, hidden: bool = True) -> None:
        self.name, self.target = target, os.path.realpath(target)
        self._directory, self.path = os.path.dirname(self.target), partial_of(target, hidden)
        self.length, self.crc, self.handle = 0, 0, -1
        self.older = ""  # the name that an older file has got

    def make(self) -> None:
        """Make the partial, empty, and lock it. What stands in its place goes, unless its writer lives.

        Raises OptionError if it cannot be made, or if another process has it.
        """
        if os.path.isdir(self.target):
            raise OptionError(f"{self.name} is a directory; name a file to write")
        try:
            while True:  # until nobody else was quicker
                with contextlib.suppress(FileExistsError):
                    self._remove_dead()
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # nobody else can have it open
                    self.handle = os.open(self.path, flags, 0o600)
                    if self._lock(self.handle):
                        return
                    self.close()
        except OSError as error:
            self.close()
            raise OptionError(cannot_write(self.name, error)) from None

    def go_on(self, length: int, crc: int) -> bool:
        """Lock what an interrupted run left and cut it at ``length``. Return whether it has those bytes, by their CRC-32.

        Raises OptionError if it cannot be written or another process has it.
        """
        try:
            self.handle = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            if os.geteuid() not in (0, os.fstat(self.handle).st_uid):
                raise PermissionError(errno.EPERM, "it is another user's")
            if not self._lock(self.handle):
                return False
            while self.length < length and (data := os.read(self.handle, min(CHUNK, length - self.length))):
                self._count(data)
            if (self.length, self.crc) == (length, crc):
                os.ftruncate(self.handle, length)
                return True
        except FileNotFoundError:
            return False
        except OSError as error:
            self.close()
            raise OptionError(cannot_write(self.path, error)) from None
        self.close()
        return False

    def _remove_dead(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            os.unlink(self.path)  # a link
            return
        try:
            if self._lock(handle):
                os.unlink(self.path)
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> bool:
        """Lock an open partial; tell whether it still has its name. Raises OptionError if another process has it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = f"{self.path} is being written by {_owner(handle)}; let it end"
            self.close()
            raise OptionError(found) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        try:
            return os.path.samestat(os.fstat(handle), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _count(self, data: bytes) -> None:
        self.length, self.crc = self.length + len(data), zlib.crc32(data, self.crc)

    def write(self, data: bytes) -> None:
        """Append all of it. Raises RescoreError when it cannot."""
        rest = memoryview(data)
        with self._failure():
            while rest:
                rest = rest[os.write(self.handle, rest) :]
        self._count(data)

    @contextlib.contextmanager
    def _failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RescoreError(cannot_write(self.name, error)) from None

    def sync(self) -> None:
        """Put the bytes on disk. Raises RescoreError when they cannot be."""
        with self._failure():
            os.fsync(self.handle)

    def publish(self) -> None:
        """Give the file its name. Raises RescoreError when it cannot have it."""
        with self._failure():
            give_usual_rights(self.handle)
            os.replace(self.path, self.target)
            with contextlib.suppress(PermissionError):  # a folder that may be written and not read
                sync(self._directory)
        self.close()

    def publish_rest(self) -> None:
        """Give the file its name if anything is in it. An older file with other bytes is kept: it is renamed to ``older``."""
        with self._failure():
            if os.path.isfile(self.target):
                if os.path.getsize(self.target) and not has_bytes(self.target, self.length, self.crc):
                    self.older = next(name for n in count(1) if not os.path.lexists(name := f"{self.target}.{n}"))
                    os.rename(self.target, self.older)
                elif not self.length:
                    os.unlink(self.target)
        if self.length:
            self.publish()
        else:
            self.discard()

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self.handle >= 0:
            handle, self.handle = self.handle, -1
            os.close(handle)

    def discard(self) -> None:
        """Remove the partial, if it is open."""
        if self.handle >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self.path)  # before it is unlocked: then it may be another run's
            self.close()


def check_writable(path: str) -> None:
    """Raise OptionError if no file can be written under this name."""
    if not is_stream(path):
        partial = PartialFile(path)
        partial.make()
        partial.discard()


class _Output(io.FileIO):
    """A file whose failing writes name it as its user did."""

    def __init__(self, handle: int, path: str, closefd: bool) -> None:
        super().__init__(handle, "wb", closefd)
        self._path = path

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RescoreError(cannot_write(self._path, error)) from None


def _own_descriptor(path: str) -> int | None:
    """Return the number of the descriptor of this process that a path such as ``/dev/stdout`` leads to; 1 for ``-``."""
    if path == "-":
        return 1
    for _ in range(_MOST_LINKS):
        directory, name = os.path.split(os.path.abspath(path))
        if name.isdigit() and re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd", os.path.realpath(directory)):
            return int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(directory, os.readlink(path))
    return None


def _open_stream(path: str) -> int:
    """Open a stream. A descriptor of this process is duplicated: opened by its name, a file would begin anew."""
    own = _own_descriptor(path)
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC) if own is None else os.dup(own)


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when the ``with`` block ends well; otherwise nothing is left of it.

    A link stays and its target is replaced. A stream (``is_stream``) is written to as it is.

    Raises OptionError if the file cannot be made, RescoreError when writing fails before the end, as on a full disk.
    """
    if is_stream(path):
        try:
            handle = _open_stream(path)
        except OSError as error:
            raise OptionError(cannot_write(path, error)) from None
        with io.BufferedWriter(_Output(handle, path, closefd=True)) as stream:
            yield stream
        return
    partial = PartialFile(path)
    partial.make()
    try:
        with io.BufferedWriter(_Output(partial.handle, path, closefd=False)) as stream:
            yield stream
            stream.flush()
            partial.sync()
        partial.publish()
    except BaseException:
        partial.discard()
        raise


def check_replaceable(directory: str) -> None:
    """Raise OptionError if the directory cannot be replaced by another one because of what it is, whatever is in it."""
    target = os.path.realpath(directory)
    if os.path.commonpath([target, os.path.realpath(os.curdir)]) == target:
        raise OptionError(f"{directory} is the current directory or has it inside, and would be replaced; name another")
    if os.path.ismount(target):
        raise OptionError(f"{directory} is a mount point and cannot be replaced; name a directory in it")


def remove_directory(directory: str | os.PathLike[str]) -> None:
    """Remove a directory and all in it, if it is there; a disk that fails once is asked again."""
    for _ in range(2):
        shutil.rmtree(directory, ignore_errors=True)


def recover_directory(directory: str) -> None:
    """Put right what was left by a run that was killed while it replaced the directory: the older one gets its name back.

    The caller holds the lock of the directory (``files.locks``). Raises OSError if the older one cannot be moved.
    """
    target, temporary, old = names_around(directory)
    if older_directory(directory):
        os.rename(old, target)
    for left in (temporary, old):
        remove_directory(left)


@contextlib.contextmanager
def replace_directory(directory: str) -> Iterator[str]:
    """Make a directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    What stood under that name goes; a link stays and its target is replaced. After a kill, ``recover_directory`` and this
    put right what is left: at every moment the older directory or the new one is there, whole. The caller holds the lock of
    the directory (``files.locks``). Raises OptionError if it cannot be made.
    """
    target, temporary, old = names_around(directory)
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
