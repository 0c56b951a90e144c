"""Rows of an input: one at a time, a few at a time, and in blocks, the unit of work."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import CHUNK, display_name, open_input

BLOCK_BYTES = 1 << 24  # a block of rows ends, however few they are, with the row by which it has so many bytes
LONGEST_ROW = 1 << 24  # bytes; what is longer is not a row


class Block(NamedTuple):
    """Consecutive rows of an input: the unit of work."""

    number: int  # 0, 1, 2, …
    first_row: int  # 1-based number of its first row
    data: bytes  # whole rows with their newlines; the file's last row may lack one

    def rows(self) -> list[bytes]:
        """Return the rows without their newlines."""
        rows = self.data.split(b"\n")
        if not rows[-1]:
            rows.pop()
        return rows


def read_rows(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield the rows with their newlines, one at a time.

    Raises InputError for a row of more than LONGEST_ROW bytes, and reads no further: a file without newlines would be one row.
    """
    for number, row in enumerate(iter(partial(stream.readline, LONGEST_ROW + 1), b""), 1):
        if len(row) > LONGEST_ROW:
            found = f"a row of more than {LONGEST_ROW >> 20} MiB"
            raise InputError(getattr(stream, "name", "<stdin>"), found, "is this text with a row a line?", number)
        yield row


def batches(rows: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """Yield rows in lists of ``most``, or of fewer that come to BLOCK_BYTES: long rows take no more memory than others.

    Where a list ends depends on the rows alone.
    """
    taken, size = list[bytes](), 0
    for row in rows:
        taken.append(row)
        size += len(row)
        if len(taken) == most or size >= BLOCK_BYTES:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


def read_blocks(stream: io.BufferedReader, rows: int) -> Iterator[Block]:
    """Cut a stream into blocks as ``batches`` does; one is in memory at a time. Raises InputError as ``read_rows`` does."""
    first_row = 1
    for number, taken in enumerate(batches(read_rows(stream), rows)):
        yield Block(number, first_row, b"".join(taken))
        first_row += len(taken)


def count_rows(path: str) -> int:
    """Count the rows of a file; a last row without a newline counts. Raises InputError for an endless one, as ``read_rows``."""
    newlines, last, row = 0, b"\n", 0
    with open_input(path) as stream:
        while chunk := stream.read(CHUNK):
            found = chunk.count(b"\n")
            newlines, last, row = newlines + found, chunk[-1:], 0 if found else row + len(chunk)
            if row > LONGEST_ROW:
                what = f"a row of more than {LONGEST_ROW >> 20} MiB"
                raise InputError(display_name(path), what, "is this text with a row a line?", newlines + 1)
    return newlines + (last != b"\n")
