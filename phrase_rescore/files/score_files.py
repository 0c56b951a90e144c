"""Files of scores that other models gave: a number a line, for the rows of a table or the entries of an n-best list."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Self

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import Block, display_name, open_input, read_rows
from phrase_rescore.messages import printable, shown


def natural_log(path: str, number: int, line: bytes, log: bool) -> float:
    """Return the natural logarithm of the number in a line, or with ``log`` the number. Raises InputError without one."""
    name = display_name(path)
    try:
        value = math.nan if b"_" in line else float(line)  # Python reads 1_0 as 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(name, f"{shown(line.strip())} is not a number", "write a number a line", number)
    if log:
        return value
    if value <= 0:
        hint = "a probability is; add --log if the file has natural logarithms"
        raise InputError(name, f"{printable(line.strip())} is not above 0", hint, number)
    return math.log(value)


class ScoreFiles(ExitStack):
    """Such files, open at once in a ``with`` block, with a line for each of the ``items`` of the file ``scored``."""

    def __init__(self, paths: Sequence[str], scored: str, items: str) -> None:
        super().__init__()
        self._paths, self._scored, self._items = paths, display_name(scored), items
        self.taken = 0  # lines of each
        self._hint = f"write a number for each of its {items}, in their order"

    def __enter__(self) -> Self:
        self._rows = [read_rows(self.enter_context(open_input(path))) for path in self._paths]
        return self

    def take(self, n: int) -> list[list[bytes]]:
        """Return the next ``n`` lines of every file. Raises InputError for a file that ends before."""
        taken = [list(islice(rows, n)) for rows in self._rows]
        for path, lines in zip(self._paths, taken, strict=True):
            if len(lines) < n:
                last = self.taken + len(lines)
                raise InputError(
                    display_name(path), f"ends at line {last:,}; {self._scored} has more {self._items}", self._hint
                )
        self.taken += n
        return taken

    def end(self) -> None:
        """Raise InputError for a file that has more lines than were taken."""
        for path, rows in zip(self._paths, self._rows, strict=True):
            if next(rows, None) is not None:
                fault = f"has more lines than {self._scored} has {self._items} ({self.taken:,})"
                raise InputError(display_name(path), fault, self._hint)

    def beside(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks of rows with the lines of these files. Raises InputError as ``take`` and ``end``."""
        for block in blocks:
            yield block._replace(scores=tuple(map(b"".join, self.take(block.n_rows))))
        self.end()
