"""The exceptions of this package, which the command line turns into one line and an exit status."""

import contextlib
import errno
import re
from collections.abc import Iterator

_NO_MEMORY = re.compile("(allocate|out of) memory")  # as torch says it
_RIGHT, _ROOM = "get the right to", "make room there, or write elsewhere"
_REMEDIES = {  # what to do when the system refuses: where something is read, and where it is written
    errno.ENOENT: ("check the path", "make its directory first, or name another"),
    errno.EACCES: (f"{_RIGHT} read it, or a copy", f"{_RIGHT} write there, or write elsewhere"),
    errno.EPERM: (f"{_RIGHT} read it, or a copy", f"{_RIGHT} write there, or write elsewhere"),
    errno.EIO: ("the disk or network fails; copy it again", "the disk or network fails; write elsewhere"),
    errno.EMFILE: ("raise the limit of open files, ulimit -n",) * 2,
    errno.ENOSPC: ("make room", _ROOM),
    errno.EDQUOT: ("make room", _ROOM),
}


class RescoreError(Exception):
    """Every error that a user can cause or mend. ``str()`` is one line: what was found, and what to do."""


class OptionError(RescoreError):
    """Options that contradict each other or the input (the command line exits with 2)."""


class ModelError(RescoreError):
    """A model directory that is missing, of another format, or damaged."""


class InputError(RescoreError):
    """A file with wrong contents: ``path:line: found; hint``, without ``:line`` where no row is to blame."""

    def __init__(self, path: str, found: str, hint: str = "", line: int | None = None) -> None:
        super().__init__(path, found, hint, line)  # all of them, so that the error survives pickling
        self.path, self.found, self.hint, self.line = path, found, hint, line

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.found}".replace("\n", "\\n") + (f"; {self.hint}" if self.hint else "")


def remedy(error: OSError, writing: bool = False) -> str:
    """Return what to do about an error of the system on reading or writing a file."""
    return _REMEDIES.get(error.errno or 0, ("name another file", "write elsewhere"))[writing]


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out; torch says so in a RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error))))


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn an OSError in the ``with`` block into an InputError with a hint."""
    try:
        yield
    except OSError as error:
        raise InputError(path, error.strerror or str(error), remedy(error)) from None


@contextlib.contextmanager
def writing(path: str, kind: type[RescoreError] = RescoreError) -> Iterator[None]:
    """Turn an OSError in the ``with`` block, except of a pipe whose reader has gone, into an error with a hint."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"cannot write {path}: {error.strerror or error}; {remedy(error, writing=True)}") from None


class RowError(RescoreError):
    """A row that cannot be used; the reader, which knows its line, turns it into an InputError."""

    def __init__(self, found: str, hint: str) -> None:
        super().__init__(found, hint)
        self.found, self.hint = found, hint

    def __str__(self) -> str:
        return f"{self.found}; {self.hint}"

    def at(self, path: str, line: int) -> InputError:
        """Return the error with the file and the line of the row."""
        return InputError(path, self.found, self.hint, line)
