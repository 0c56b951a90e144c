"""Rows that are written: to a file that appears complete, or to a stream, of which is told when it ends too early."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from phrase_rescore.errors import IncompleteOutput, OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import is_stream


class RowWriter:
    """Counts the rows that it writes."""

    complete, begin_anew = False, ""

    def __init__(self, stream: BinaryIO, at_once: bool = False) -> None:
        self._stream, self._at_once, self.rows = stream, at_once, 0

    def write(self, data: bytes, rows: int) -> None:
        self._stream.write(data)
        if self._at_once:  # a reader need not wait, and one that went away is noticed
            self._stream.flush()
        self.rows += rows

    def commit(self, state: Callable[[], dict[str, Any]]) -> None:
        """Do nothing: what goes to a stream cannot be taken back, nor gone on with."""


@contextlib.contextmanager
def _stream_output(out: str) -> Iterator[BinaryIO]:
    if out != "-":
        with atomic_output(out) as stream:
            yield stream
        return
    try:
        yield sys.stdout.buffer
    except BaseException:
        with contextlib.suppress(OSError):
            sys.stdout.buffer.flush()
        raise
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def row_output(out: str) -> Iterator[RowWriter]:
    """Open a stream (``is_stream``) as it is, else a file that takes its name when the ``with`` block ends well.

    Raises IncompleteOutput, with the reason as its cause, when writing to a stream ends in an error.
    """
    if not is_stream(out):
        with atomic_output(out) as stream:
            yield RowWriter(stream)
        return
    writer: RowWriter | None = None
    try:
        with _stream_output(out) as stream:
            writer = RowWriter(stream, at_once=True)
            yield writer
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        rows = writer.rows if writer else 0
        if not rows and isinstance(error, OptionError):
            raise
        raise IncompleteOutput(rows) from error
