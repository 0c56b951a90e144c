"""Blocks of rows, through an executor and out again in order, to a file that appears complete or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from phrase_rescore.annotation.executors.local import BlockExecutor
from phrase_rescore.errors import OptionError
from phrase_rescore.files.blocks import Block

GZIP_LEVEL = "6"
BLOCK_ROWS, GPU_BLOCK_ROWS = 2048, 32768  # rows of a block, and of a gzip member, where CPUs or GPUs score

Result = TypeVar("Result")
BlockFunction = Callable[[int, int, bytes], Result]


def in_order(executor: BlockExecutor, function: BlockFunction[Result], blocks: Iterable[Block]) -> Iterator[Result]:
    """Yield ``function(number, first_row, data)`` of every block, in order; ``executor.in_flight`` are in memory at most."""
    waiting: deque[Future[Result]] = deque()
    try:
        for block in blocks:
            waiting.append(executor.submit(function, *block))
            while len(waiting) >= executor.in_flight:
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
