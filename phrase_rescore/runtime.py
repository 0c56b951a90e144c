"""The process torch runs in: cores, denormal numbers, memory that stays mapped."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def usable_cores() -> int:
    """The cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call outside Linux
        return os.cpu_count() or 1


def local_processes() -> int:
    """How many processes of one training torchrun started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def use_threads(threads: int) -> None:
    """On how many cores this very thread computes: torch keeps these settings for every thread apart.

    Results then do not depend on how many workers there are, nor on which of them did what.
    """
    import torch

    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)


@contextlib.contextmanager
def no_cycle_collection() -> Iterator[None]:
    """Python's search for reference cycles, off: rows make none, and looking for them doubles the time that text takes."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def keep_freed_memory(keep: bool = True) -> None:
    """Whether glibc keeps freed blocks; by default it gives large ones back to the kernel at once.

    Then mapping and clearing the pages of every large temporary takes as long as the arithmetic on it.
    """
    size = 1 << 30 if keep else 128 << 10  # glibc's own thresholds
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, size)
        mallopt(_M_TRIM_THRESHOLD, size)


def prepare(threads: int) -> None:
    """Readies torch for heavy work on ``threads`` cores; call it before anything is computed.

    Denormal numbers (the running averages of rarely seen words, softmax tails) count as 0: they would cost a hundred times
    a normal number.
    """
    import torch

    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    keep_freed_memory()
