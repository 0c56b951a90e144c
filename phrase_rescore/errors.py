"""The exceptions of this package, which the command line turns into one line and an exit status, and parts of messages."""

import contextlib
import errno
import math
import re
from collections.abc import Callable, Iterator

_NO_MEMORY = re.compile("(allocate|out of) memory")  # as torch says it
_FULL = "make room there, or write elsewhere"
_REMEDIES = {  # what to do when the system refuses: where something is read, and where it is written
    errno.ENOENT: ("check the path", "make its directory first, or name another"),
    errno.ENOTDIR: ("check the path: a file stands in it where a directory should", "name another directory"),
    errno.EISDIR: ("name a file in it", "name a file"),
    errno.EACCES: ("get the right to read it, or a copy", "get the right to write there, or write elsewhere"),
    errno.EPERM: ("get the right to read it, or a copy", "get the right to write there, or write elsewhere"),
    errno.ELOOP: ("its links lead in a circle; name the file itself", "its links lead in a circle; name another file"),
    errno.ENAMETOOLONG: ("check the path", "choose a shorter name"),
    errno.EBADF: ("it is closed; name a file", "it is closed; name a file to write"),
    errno.EIO: ("the disk or network fails; copy it again", "the disk or network fails; write elsewhere"),
    errno.EMFILE: ("raise the limit of open files, ulimit -n", "raise the limit of open files, ulimit -n"),
    errno.EROFS: ("copy it", "write elsewhere"),
    errno.ENOSPC: ("make room", _FULL),
    errno.EDQUOT: ("make room", _FULL),
    errno.EFBIG: ("raise the limit, ulimit -f", "raise the limit of file sizes, ulimit -f, or write elsewhere"),
}


Progress = Callable[[int], object]  # hears how many more bytes were read, or rows, say, were done
Say = Callable[[str], object]  # hears a message


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
    """Return what to do about an error of the system on reading or writing a file; '' if nothing is known."""
    return _REMEDIES.get(error.errno or 0, ("", ""))[writing]


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
        hint = remedy(error, writing=True)
        raise kind(f"cannot write {path}: {error.strerror or error}" + (f"; {hint}" if hint else "")) from None


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


class IncompleteOutput(RescoreError):
    """Some rows, as many as its argument says, went to standard output before the failure and cannot be taken back."""

    def __str__(self) -> str:
        return f"OUTPUT IS INCOMPLETE: {self.args[0]} rows"


def printable(text: bytes | str, limit: int = 60) -> str:
    """Turn any text into one printable line for a message or a terminal, cut at ``limit`` characters.

    >>> printable(b"caf\\xc3\\xa9 \\xff\\t")
    'café \\\\xff\\\\t'
    """
    data = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    line = in_one_line(data[: 4 * limit].decode("utf-8", "backslashreplace"))
    return line if len(line) <= limit and len(data) <= 4 * limit else f"{line[:limit]}…"


def first_line(error: BaseException) -> str:
    """Return the first line of any error, or its name."""
    return printable(next(iter(str(error).splitlines()), "") or type(error).__name__, 300)


def in_one_line(message: str) -> str:
    """Escape control characters, which would break a line or change the terminal: names of files may hold any character."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)


def counted(n: int, noun: str) -> str:
    """Write a number of things: ``1 row``, ``1,200 rows``."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def share(part: float, whole: float) -> float:
    """Divide; a share of nothing is nan."""
    return float(part / whole) if whole else math.nan


def percent(share: float, digits: int = 1, nothing: str = "none") -> str:
    """Write a share as a percentage; ``nothing`` stands for one of nothing."""
    return f"{share:.{digits}%}" if math.isfinite(share) else nothing


def shown(text: bytes | str, limit: int = 60) -> str:
    """Quote any text for a message, ``printable`` and cut at ``limit`` characters."""
    return f"'{printable(text, limit)}'"


def silent(*ignored: object) -> None:
    """Show nothing: the default for functions that are called with progress or messages."""
