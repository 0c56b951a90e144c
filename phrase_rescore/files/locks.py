"""Locks between processes that say who holds them.

PATH.lock is locked (flock) while somebody writes PATH, and a line in it says who. One left by a killed process is taken over,
except where the file system has no flock.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator

from phrase_rescore.errors import OptionError, writing
from phrase_rescore.messages import Say, printable, silent


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


def _holder(handle: int) -> str:
    """Return who holds, or held, a lock; '' in the moment after its file was made."""
    return printable(os.pread(handle, 4096, 0).strip(), 300)


def _open_locked(name: str, path: str, remedy: str) -> tuple[int, str]:
    """Open and lock a file; return its handle and the dead holder. Raises OptionError for a living one, OSError."""
    while True:
        with contextlib.ExitStack() as closing:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            closing.callback(os.close, handle)
            try:
                if not lock_file(handle) and (holder := _holder(handle)):
                    raise OptionError(f"{path} is in use by {holder}; if that has ended, delete {name}")
            except BlockingIOError:
                raise OptionError(f"{path} is in use by {_holder(handle) or 'another process'} ({name}); {remedy}") from None
            if has_name(handle, name):
                closing.pop_all()
                return handle, _holder(handle)


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
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename} since {since}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)  # before it is let go, so that whoever opened it meanwhile finds another file or none
        os.close(handle)
