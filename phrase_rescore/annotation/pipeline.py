"""Blocks of rows, through an executor and out again in order, to a file that appears complete or not at all."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar

from phrase_rescore.errors import IncompleteOutput, OptionError
from phrase_rescore.files.atomic import atomic_output
from phrase_rescore.files.blocks import Block
from phrase_rescore.files.paths import is_stream

GZIP_LEVEL = "6"
BLOCK_ROWS, GPU_BLOCK_ROWS = 2048, 32768  # rows of a block, and of a gzip member, where CPUs or GPUs score

Result = TypeVar("Result")
BlockFunction = Callable[[int, int, bytes], Result]


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[Executor]:
    """Start threads that run blocks. An interruption does not wait for blocks in work; the process ends without them."""
    executor = ThreadPoolExecutor(jobs)
    try:
        yield executor
    except KeyboardInterrupt:
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def in_order(executor: Executor, function: BlockFunction[Result], blocks: Iterable[Block], in_flight: int) -> Iterator[Result]:
    """Yield ``function(number, first_row, data)`` of every block, in order; at most ``in_flight`` blocks are in memory.

    The executor is any of ``concurrent.futures``: threads, processes, a cluster engine's.
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


def gzip_level_of(out: str, level: str = GZIP_LEVEL) -> str | None:
    """Return the gzip level for an output of this name: None (plain) unless it ends in ``.gz``, as Moses decides by the name.

    Raises OptionError for names of formats that Moses does not read.
    """
    if out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
        raise OptionError(f"cannot write {out}: Moses loads plain tables and .gz")
    return level if out.endswith(".gz") else None


class TableWriter:
    """Counts the rows that it writes."""

    complete, begin_anew = False, ""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.rows = stream, 0

    def write(self, data: bytes, rows: int) -> None:
        self._stream.write(data)
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
def table_output(out: str) -> Iterator[TableWriter]:
    """Open a stream (``is_stream``) as it is, else a file that takes its name when the ``with`` block ends well.

    Raises IncompleteOutput, with the reason as its cause, when writing to a stream ends in an error.
    """
    if not is_stream(out):
        with atomic_output(out) as stream:
            yield TableWriter(stream)
        return
    writer: TableWriter | None = None
    try:
        with _stream_output(out) as stream:
            writer = TableWriter(stream)
            yield writer
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        rows = writer.rows if writer else 0
        if not rows and isinstance(error, OptionError):
            raise
        raise IncompleteOutput(rows) from error
