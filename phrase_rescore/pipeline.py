"""Blocks of rows through an executor and out again in order, into a file that appears complete or not at all."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import BinaryIO, TypeVar

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.fileio import Block, atomic_output

GZIP_LEVEL = 6
BLOCK_ROWS = 8192  # rows of a block, and of a gzip member

Result = TypeVar("Result")
BlockFunction = Callable[[int, int, bytes], Result]


class IncompleteOutput(RescoreError):
    """Some rows went to standard output before the failure and cannot be taken back."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows

    def __str__(self) -> str:
        return f"OUTPUT IS INCOMPLETE: {self.rows} rows"


def in_order(executor: Executor, function: BlockFunction[Result], blocks: Iterable[Block], in_flight: int) -> Iterator[Result]:
    """``function(number, first_row, data)`` of every block, in order; at most ``in_flight`` blocks are in memory.

    Takes any ``concurrent.futures`` executor: threads, processes, a cluster engine's.
    """
    waiting: deque[Future[Result]] = deque()
    try:
        for block in blocks:
            waiting.append(executor.submit(function, *block))
            if len(waiting) >= in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def gzip_level_of(out: str) -> int | None:
    """The gzip level for an output of this name: None (plain) unless it ends in ``.gz``, as Moses decides by the name.

    Raises OptionError for names of formats that Moses does not read.
    """
    if out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
        raise OptionError(f"cannot write {out}: Moses loads plain tables and .gz")
    return GZIP_LEVEL if out.endswith(".gz") else None


@contextlib.contextmanager
def table_output(out: str) -> Iterator[BinaryIO]:
    """Standard output for ``-``, else a file that takes its name at the end."""
    if out == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_output(out) as stream:
            yield stream
