"""What every executor of blocks offers, and the one that is always there: threads of this process."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from phrase_rescore.errors import RescoreError
from phrase_rescore.files.blocks import Block
from phrase_rescore.runtime import no_cycle_collection


class BlockLost(RescoreError):
    """A block that workers died of, or failed at, as often as is tried; ``str()`` says how."""

    def __init__(self, block: Block, why: str) -> None:
        super().__init__(block, why)
        self.block, self.why = block, why

    def __str__(self) -> str:
        return self.why


class BlockExecutor(Executor):
    """An executor of ``concurrent.futures`` that says how many blocks it wants at a time."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """The most blocks that may be in memory, in work or done and waiting for their turn to be written. It may change."""

    @abstractmethod
    def describe(self, threads: int) -> str:
        """Say, for the closing report, what scored if ``threads`` cores score a block."""

    def progress(self) -> str:
        """Say, beside a bar, how work stands; nothing if there is nothing to say."""
        return ""


class LocalExecutor(ThreadPoolExecutor, BlockExecutor):
    """Threads of this process. Most of a block's time is spent outside Python's lock, and all share one model."""

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._jobs = jobs

    @property
    def in_flight(self) -> int:
        return self._jobs + 2

    def describe(self, threads: int) -> str:
        return f"{self._jobs} x {threads} threads"


@contextlib.contextmanager
def workers(jobs: int) -> Iterator[LocalExecutor]:
    """Start threads that run blocks. An interruption does not wait for blocks in work; the process ends without them.

    Python does not look for reference cycles meanwhile: here rows make none, while Dask's messages do.
    """
    executor = LocalExecutor(jobs)
    try:
        with no_cycle_collection():
            yield executor
    except KeyboardInterrupt:
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()
