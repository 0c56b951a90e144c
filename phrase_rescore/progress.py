"""What functions tell while they work: lines, warnings, progress. Those who call them choose who hears it."""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int], object]  # hears how many more bytes were read, or rows, say, were done
Say = Callable[[str], object]  # hears a message


def silent(*ignored: object) -> None:
    """Show nothing: the default for functions that are called with progress or messages."""


@dataclass
class Listener:
    """Functions that hear what a function does. The defaults show nothing."""

    say: Say = silent
    warn: Say = silent  # of what its user should know even if nothing else is shown
