"""Locks between processes that say who holds them.

PATH.lock is locked (flock) while somebody writes PATH, and a line of JSON in it says who: pid, host, since. It goes when the
lock is let go. One that is left over is a killed process's: the kernel let go of its lock, and the next one takes it over.
Where the file system has no flock, what the file says is believed, if it was written on another host or its process lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from phrase_rescore.errors import OptionError, cannot_write, printable

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_LONGEST = 4096  # bytes read of a lock file


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    pid: int
    host: str
    since: str  # local time

    @classmethod
    def here_and_now(cls) -> Holder:
        return cls(os.getpid(), os.uname().nodename, time.strftime("%Y-%m-%d %H:%M:%S"))

    @classmethod
    def read(cls, handle: int) -> Holder | None:
        """Read who a lock file names; None if it names nobody, as in the moment after it was made."""
        try:
            found = json.loads(os.pread(handle, _LONGEST, 0))
            return cls(int(found["pid"]), str(found["host"]), str(found["since"]))
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


def _locked_file(name: str) -> tuple[int, Holder | None]:
    """Open and lock a file, made if need be. Return its handle, and who had it and was killed, or None.

    Raises BlockingIOError if another process has it, with the Holder as its only argument; OSError if it cannot be made.
    """
    while True:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            believed = False
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(Holder.read(handle)) from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                believed = True
            earlier = Holder.read(handle)
            if believed and earlier and earlier.may_live():
                raise BlockingIOError(earlier)
            with contextlib.suppress(FileNotFoundError):  # else its last holder has taken it away since we opened it
                if os.path.samestat(os.fstat(handle), os.lstat(name)):
                    return handle, earlier
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def lock_name(path: str) -> str:
    """Return the name of the file that is locked while ``path`` is in use."""
    return f"{os.path.realpath(path)}.lock"


@contextlib.contextmanager
def locked(path: str, remedy: str, say: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """Hold the lock of what ``path`` leads to as long as the ``with`` block lasts. ``say`` is told if a killed process had it.

    Raises OptionError at once if another process has it: the message says which, since when, and ends with ``remedy``.
    """
    name = lock_name(path)
    try:
        handle, earlier = _locked_file(name)
    except BlockingIOError as error:
        holder = error.args[0] or "another process"
        raise OptionError(f"{path} is in use by {holder} ({name}); {remedy}") from None
    except OSError as error:
        raise OptionError(cannot_write(name, error)) from None
    try:
        if earlier:
            say(f"{name} is of {earlier}, which has ended; taken over")
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the words
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(asdict(Holder.here_and_now())).encode() + b"\n", 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)  # before it is let go, so that whoever opened it meanwhile finds another file or none
        os.close(handle)
