"""Files and directories that appear complete or not at all, and streams that are written to as they are."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from zlib_ng import zlib_ng

from phrase_rescore.errors import OptionError, writing
from phrase_rescore.files.inputs import CHUNK
from phrase_rescore.files.locks import has_name, lock_file
from phrase_rescore.files.paths import followed, is_stream, names_around, older_directory, partial_of
from phrase_rescore.ranges import Words

GZIP_LEVELS = Words(("fast", *"123456789"))
GZIP_LEVEL = "6"  # unless another is asked for
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4")  # endings of names


def gzip_member(data: bytes, level: str) -> bytes:
    """Compress data to a gzip member at one of GZIP_LEVELS, always the same bytes (ISA-L's differ once in some thousands)."""
    # fast is 2: 1 is faster by a third, and files are a third larger
    compressor = zlib_ng.compressobj(2 if level == "fast" else int(level), zlib.DEFLATED, 31)
    return bytes(compressor.compress(data) + compressor.flush())


def asks_for_gzip(out: str, readers: str, read_gzip: bool = True) -> bool:
    """Return whether a name ends in .gz. Raises OptionError for a compression that ``readers`` of the file do not know."""
    is_gzip = out.endswith(".gz")
    if out.endswith(_COMPRESSED) and not (is_gzip and read_gzip):
        raise OptionError(f"cannot write {out}: {readers}")
    return is_gzip


def gzip_level_of(out: str, level: str = GZIP_LEVEL) -> str | None:
    """Return the level of a table's file, None for a plain one. Raises OptionError for formats that Moses does not read."""
    return level if asks_for_gzip(out, "Moses loads plain tables and .gz") else None


def sync(path: str) -> None:
    """Put a file's bytes, or a directory's names, on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def apply_umask(file: str | int, most: int = 0o666) -> None:
    """Give a file (path or handle) that its owner alone could read the rights of any new one: ``most``, less the umask."""
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(file, most & ~umask)


def write_durably(path: str, data: bytes) -> None:
    """Replace a file, whole even after a power cut, by one for its owner alone. The caller holds a lock. Raises OSError."""
    new = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)  # a killed run's, or anybody's link
    try:
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    sync(os.path.dirname(path))


def measured(handle: int, most: int) -> tuple[int, int]:
    """Read an open file up to ``most`` bytes. Return how many there are, and their CRC-32."""
    length = crc = 0
    while length < most and (data := os.read(handle, min(CHUNK, most - length))):
        length, crc = length + len(data), zlib.crc32(data, crc)
    return length, crc


class PartialFile:
    """Bytes that take a file's name when they are complete. A link stays, and what it leads to is replaced.

    Until then they stand beside that file (``partial_of``), readable by their owner alone. The partial is locked while its
    writer lives; another run takes over what a dead one left.
    """

    def __init__(self, target: str, hidden: bool = True) -> None:
        self.name, self.target, self.path = target, os.path.realpath(target), partial_of(target, hidden)
        self.length, self.crc, self.handle = 0, 0, -1

    def make(self) -> None:
        """Make the partial, empty, and lock it; what a dead run left goes. Raises OptionError if it cannot be made."""
        if os.path.isdir(self.target):
            raise OptionError(f"{self.name} is a directory; name a file to write")
        with writing(self.name, OptionError):
            while True:  # until nobody else was quicker
                with contextlib.suppress(FileExistsError):
                    self.check_dead(remove=True)
                    self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)  # nobody else can have it open
                    if self._lock(self.handle):
                        return
                    self.close()

    def resume(self, length: int, crc: int) -> bool:
        """Lock what a dead run left and cut it; tell whether it fits. If OptionError is raised, the caller closes it."""
        with writing(self.path, OptionError), contextlib.suppress(FileNotFoundError):
            self.handle = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW)
            if os.geteuid() not in (0, os.fstat(self.handle).st_uid):
                raise PermissionError(errno.EPERM, "it belongs to another user")
            if self._lock(self.handle):
                self.length, self.crc = measured(self.handle, length)
                if (self.length, self.crc) == (length, crc):
                    os.ftruncate(self.handle, length)
                    return True
        return False

    def check_dead(self, remove: bool = False) -> None:
        """Raise OptionError if a living run writes the partial; ``remove`` what a dead one left."""
        with contextlib.suppress(FileNotFoundError):
            if remove and os.path.islink(self.path):
                os.unlink(self.path)
            handle = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if self._lock(handle) and remove:
                    os.unlink(self.path)
            finally:
                os.close(handle)

    def _lock(self, handle: int) -> bool:
        """Lock an open partial; tell whether it still has its name. Raises OptionError if another process has it."""
        try:
            lock_file(handle)
        except OSError as error:
            self.close()
            if not isinstance(error, BlockingIOError):
                raise
            raise OptionError(f"{self.path} is being written by another process; let it end") from None
        return has_name(handle, self.path)

    def write(self, data: bytes) -> None:
        """Append all of it. Raises RescoreError when it cannot."""
        rest = memoryview(data)
        with writing(self.name):
            while rest:
                rest = rest[os.write(self.handle, rest) :]
        self.length, self.crc = self.length + len(data), zlib.crc32(data, self.crc)

    def sync(self) -> None:
        """Put the bytes on disk. Raises RescoreError when they cannot be."""
        with writing(self.name):
            os.fsync(self.handle)

    def publish(self, keep_empty: bool = True) -> None:
        """Give the file its name; if it is empty and not to be kept, remove what has it. Raises RescoreError if it cannot."""
        with writing(self.name):
            if not self.length and not keep_empty:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.target)
                self.discard()
                return
            apply_umask(self.handle)
            os.replace(self.path, self.target)
            with contextlib.suppress(PermissionError):  # a folder that may be written and not read
                sync(os.path.dirname(self.target))
        self.close()

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

    @contextlib.contextmanager
    def written(self, keep_empty: bool = True) -> Iterator[PartialFile]:
        """Make it; publish it when the ``with`` block ends well, otherwise leave nothing of it. Raises as these do."""
        self.make()
        try:
            yield self
            self.sync()
            self.publish(keep_empty)
        except BaseException:
            self.discard()
            raise


class _Output(io.FileIO):
    """A file whose failing writes name it as its user did."""

    def __init__(self, handle: int, path: str, closefd: bool) -> None:
        super().__init__(handle, "wb", closefd)
        self._path = path

    def write(self, data: Any, /) -> int:
        with writing(self._path):
            return super().write(data)


def _open_stream(path: str) -> int:
    """Open a stream. A descriptor of this process is duplicated: opened by its name, a file would start over."""
    for link in followed(path):
        directory, name = os.path.split(os.path.abspath(link))
        if name.isdigit() and re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd", os.path.realpath(directory)):
            return os.dup(int(name))
    return os.open(path, os.O_WRONLY)


@contextlib.contextmanager
def atomic_output(path: str) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when the ``with`` block ends well; otherwise nothing is left of it.

    A link stays and its target is replaced. A stream (``is_stream``) is written to as it is. Raises OptionError if the file
    cannot be made, RescoreError when writing fails; OSError when standard output (``-``) fails.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if is_stream(path):
        with writing(path, OptionError):
            handle = _open_stream(path)
        with io.BufferedWriter(_Output(handle, path, closefd=True)) as stream:
            yield stream
        return
    with PartialFile(path).written() as partial, io.BufferedWriter(_Output(partial.handle, path, closefd=False)) as stream:
        yield stream


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
    """Give the older directory its name back if a run was killed replacing it. The caller holds its lock. Raises OSError."""
    target, temporary, old = names_around(directory)
    if older_directory(directory):
        os.rename(old, target)
    for left in (temporary, old):
        remove_directory(left)


@contextlib.contextmanager
def replace_directory(directory: str) -> Iterator[str]:
    """Make a directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    What stood under that name goes; a link stays and its target is replaced. The caller holds the lock of the directory
    (``files.locks``). Raises OptionError if it cannot be made.
    """
    target, temporary, old = names_around(directory)
    with writing(directory, OptionError):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        recover_directory(directory)
        os.mkdir(temporary, 0o700)
    try:
        yield temporary
        apply_umask(temporary, 0o777)
        for path in (os.path.join(temporary, name) for name in os.listdir(temporary)):
            apply_umask(path)  # safetensors makes its files readable by nobody else
            sync(path)
        sync(temporary)
        if os.path.isdir(target):
            os.rename(target, old)
        os.rename(temporary, target)
        sync(os.path.dirname(target))
    finally:
        recover_directory(directory)
