"""Blocks of rows through an executor and out again in order; the executor that is always there: threads of this process."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import Block
from phrase_rescore.runtime import no_cycle_collection

if TYPE_CHECKING:
    from phrase_rescore.annotation.cluster import Cluster

GZIP_LEVEL = "6"
BLOCK_ROWS, GPU_BLOCK_ROWS = 2048, 32768  # rows of a block, and of a gzip member, where CPUs or GPUs score

Result = TypeVar("Result")


class Threads(ThreadPoolExecutor):
    """Threads of this process. Most of a block's time is spent outside Python's lock, and all share one model."""

    def __init__(self, jobs: int, threads: int = 1) -> None:
        super().__init__(jobs)
        self.in_flight = jobs + 2  # the most blocks in memory: in work, or done and waiting for their turn to be written
        self._description = f"{jobs} x {threads} threads"

    def describe(self) -> str:
        """Say, for the closing report, what scored."""
        return self._description


@contextlib.contextmanager
def local_threads(jobs: int, threads: int = 1) -> Iterator[Threads]:
    """Start threads that run blocks. An interruption does not wait for blocks in work; the process ends without them.

    Python does not look for reference cycles meanwhile: here rows make none, while Dask's messages do.
    """
    executor = Threads(jobs, threads)
    try:
        with no_cycle_collection():
            yield executor
    except BaseException as error:
        executor.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    executor.shutdown()


def in_order(
    executor: Threads | Cluster, function: Callable[[int, int, bytes], Result], blocks: Iterable[Block]
) -> Iterator[tuple[Block, Result]]:
    """Yield every block with ``function(number, first_row, data)`` of it, in order; few blocks are in memory at a time."""
    waiting: deque[tuple[Block, Any]] = deque()

    def first() -> tuple[Block, Result]:
        block, future = waiting.popleft()
        return block, future.result()

    for block in blocks:
        waiting.append((block, executor.submit(function, *block)))  # type: ignore[arg-type]
        while len(waiting) >= executor.in_flight:
            yield first()
    while waiting:
        yield first()


def gzip_level_of(out: str, level: str = GZIP_LEVEL) -> str | None:
    """Return the gzip level for an output of this name: None (plain) unless it ends in ``.gz``, as Moses decides by the name.

    Raises OptionError for names of formats that Moses does not read.
    """
    if out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
        raise OptionError(f"cannot write {out}: Moses loads plain tables and .gz")
    return level if out.endswith(".gz") else None
