"""Locks between processes that say who holds them.

PATH.lock is locked (flock) while somebody writes PATH, and a line of JSON in it says who. One left by a killed process is taken
over. Where the file system has no flock, the file is believed if it was written on another host or its process lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from phrase_rescore.errors import OptionError, writing
from phrase_rescore.messages import printable
from phrase_rescore.progress import Say, silent


class Holder(NamedTuple):
    """Who holds a lock."""

    pid: int
    host: str
    since: str  # local time

    @classmethod
    def read(cls, handle: int) -> Holder | None:
        """Read the holder from a lock file; None if it names none, as in the moment after it was made."""
        try:
            words = json.loads(os.pread(handle, 4096, 0))
            return cls(int(words["pid"]), str(words["host"]), str(words["since"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def __str__(self) -> str:
        return f"process {self.pid} on {printable(self.host)} since {printable(self.since)}"

    def may_live(self) -> bool:
        """Tell whether the process lives, or may, being another host's."""
        if self.host != os.uname().nodename:
            return True
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
        return self.pid > 0


def lock_file(handle: int) -> bool:
    """Lock an open file. Return False where the file system has no locks. Raises BlockingIOError if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP):
            raise
        return False
    return True


def has_name(handle: int, name: str) -> bool:
    """Return whether an open file still has this name: its last holder may have removed or renamed it before it was locked."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), os.lstat(name))
    return False


def _open_locked(name: str, path: str, remedy: str) -> tuple[int, Holder | None]:
    """Open and lock a file; return its handle and the dead Holder. Raises OptionError for a living one, OSError."""
    while True:
        with contextlib.ExitStack() as closing:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            closing.callback(os.close, handle)
            try:
                is_locked, earlier = lock_file(handle), Holder.read(handle)
                if not is_locked and earlier and earlier.may_live():
                    raise BlockingIOError
            except BlockingIOError:
                holder = Holder.read(handle) or "another process"
                raise OptionError(f"{path} is in use by {holder} ({name}); {remedy}") from None
            if has_name(handle, name):
                closing.pop_all()
                return handle, earlier


def lock_name(path: str) -> str:
    """Return the name of the file that is locked while ``path`` is in use."""
    return f"{os.path.realpath(path)}.lock"


@contextlib.contextmanager
def locked(path: str, remedy: str, say: Say = silent) -> Iterator[None]:
    """Hold the lock of what ``path`` leads to. ``say`` gets the name of a dead holder. Raises OptionError for a living one."""
    name = lock_name(path)
    with writing(name, OptionError):
        handle, earlier = _open_locked(name, path, remedy)
    try:
        if earlier:
            say(f"{name} is stale: {earlier} has ended; taken over")
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the words
            os.ftruncate(handle, 0)
            now = Holder(os.getpid(), os.uname().nodename, time.strftime("%Y-%m-%d %H:%M:%S"))
            os.pwrite(handle, json.dumps(now._asdict()).encode() + b"\n", 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)  # before it is let go, so that whoever opened it meanwhile finds another file or none
        os.close(handle)
