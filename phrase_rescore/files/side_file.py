"""Rows that were left out, in a file of their own beside the one that they do not stand in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from phrase_rescore.errors import counted
from phrase_rescore.files.outputs import PartialFile, Writable, atomic_output
from phrase_rescore.files.paths import is_stream


class SideFile:
    """Rows that were left out, in a file that is there at the end only if there are any.

    With ``expected`` false no row will be left out and nothing is touched. An older file of this name is never lost: unless
    it has the same rows, it is renamed to ``PATH.1`` (2, 3, …).
    """

    def __init__(self, path: str, expected: bool, named: int = 10) -> None:
        self.path, self.expected, self._named = path, expected, named
        self.rows, self.where = 0, list[str]()
        self._stream: Writable | None = None

    @contextlib.contextmanager
    def opened(self, partial: PartialFile | None = None) -> Iterator[SideFile]:
        """Take rows while the ``with`` block lasts: in ``partial``, which somebody else publishes, or in a file made now.

        That file is complete when the block ends well, and gone otherwise. A stream is written to as it is. Raises OptionError
        if the file cannot be made.
        """
        if not self.expected:
            yield self
        elif partial:
            self._stream = partial
            yield self
        elif is_stream(self.path):
            with atomic_output(self.path) as self._stream:
                yield self
        else:
            self._stream = own = PartialFile(self.path)
            own.make()
            try:
                yield self
                own.sync()
                own.publish_rest()
            except BaseException:
                own.discard()
                raise

    def add(self, where: str, row: bytes) -> None:
        """Keep a row (without newline); ``where`` it stood is remembered for the first few."""
        if self._stream is None:
            raise ValueError(f"{self.path} is not open")
        self._stream.write(row + b"\n")
        self.rows += 1
        if len(self.where) < self._named:
            self.where.append(where)

    def summary(self) -> str:
        """``dropped 2 rows, kept in FILE: 17, 40``, or nothing if there is nothing to say."""
        older = getattr(self._stream, "older", "")
        renamed = f"an older {self.path} with other rows is {older} now" if older else ""
        if not self.rows:
            return renamed and f"dropped no row; {renamed}"
        more = ", …" if self.rows > len(self.where) else ""
        kept = f"dropped {counted(self.rows, 'row')}, kept in {self.path}: {', '.join(self.where)}{more}"
        return f"{kept}; {renamed}" if older else kept
