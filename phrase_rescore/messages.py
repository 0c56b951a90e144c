"""Parts of messages: any text and any number in one printable line; who hears what functions say."""

import math
from collections.abc import Callable
from dataclasses import dataclass


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


Progress = Callable[[int], object]  # hears how many more bytes were read, or rows, say, were done
Say = Callable[[str], object]  # hears a message


def silent(*ignored: object) -> None:
    """Show nothing: the default for functions that are called with progress or messages."""


@dataclass
class Listener:
    """Functions that hear what a function does. The defaults show nothing."""

    say: Say = silent
    warn: Say = silent  # of what its user should know even if nothing else is shown


class Shares:
    """Tells of parts of a whole, as they are done, which share of it is."""

    def __init__(self, whole: int, on_share: Callable[[float], object]) -> None:
        self._whole, self._on_share, self._done = whole, on_share, 0

    def add(self, done: int) -> None:
        """Tell that so much more is done."""
        self._done += done
        self._on_share(self._done / self._whole)
