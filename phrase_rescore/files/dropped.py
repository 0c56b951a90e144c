"""The .dropped file: rows left out of the output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from phrase_rescore.errors import counted
from phrase_rescore.files.outputs import PartialFile, Writable, atomic_output
from phrase_rescore.files.paths import is_stream

_NAMED = 10  # rows whose place is told


class DroppedRows:
    """Rows left out of the output, in a file that is there at the end only if there are any.

    With ``expected`` false no row will be left out and nothing is touched.
    """

    def __init__(self, path: str, expected: bool) -> None:
        self.path, self.expected = path, expected
        self.rows, self.where = 0, list[str]()
        self._stream: Writable | None = None

    @contextlib.contextmanager
    def opened(self, partial: PartialFile | None = None) -> Iterator[DroppedRows]:
        """Take rows while the ``with`` block lasts: in ``partial``, which somebody else publishes, or in a file made now.

        That file is complete when the block ends well, and gone otherwise. A stream is written to as it is. Raises OptionError
        if the file cannot be made.
        """
        if partial or not self.expected:
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
                own.publish_or_remove()
            except BaseException:
                own.discard()
                raise

    def add(self, where: str, row: bytes) -> None:
        """Keep a row (without newline); ``where`` it stood is remembered for the first few."""
        assert self._stream, "only while it is opened"
        self._stream.write(row + b"\n")
        self.rows += 1
        if len(self.where) < _NAMED:
            self.where.append(where)

    def summary(self) -> str:
        """``dropped 2 rows, kept in FILE: 17, 40``, or nothing if there is nothing to say."""
        if not self.rows:
            return ""
        more = ", …" if self.rows > len(self.where) else ""
        return f"dropped {counted(self.rows, 'row')}, kept in {self.path}: {', '.join(self.where)}{more}"
