"""Blocks of rows through an executor and out again in order; the executors: threads, processes, or a cluster."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files.inputs import Block
from phrase_rescore.messages import Listener, printable
from phrase_rescore.runtime import no_cycle_collection, prepare, resolve_devices, usable_cores

if TYPE_CHECKING:
    from phrase_rescore.annotation.cluster import Cluster
    from phrase_rescore.annotation.options import AnnotateOptions

CPU_BLOCK_ROWS, GPU_BLOCK_ROWS = 2048, 32768  # rows of a block, and of a gzip member, where CPUs or GPUs score
GPU_JOBS = 8  # processes that share a GPU: twice as many are hardly faster, and each takes some 3 GB of its memory
THREADS_UP_TO = 4  # jobs on CPUs; with more, threads of one process wait for each other

T = TypeVar("T")


class Workers(NamedTuple):
    """What runs blocks on this machine. A cluster has the same three."""

    submit: Callable[..., Future[Any]]
    in_flight: int  # the most blocks in memory, in work or done and waiting for their turn to be written
    description: str  # for the closing report


def _start_process(threads: int) -> None:
    """Prepare a process for blocks. It ends when its parent does, and not by Ctrl-C."""

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    prepare(threads)
    threading.Thread(target=end_with_parent, daemon=True).start()


@contextlib.contextmanager
def local(jobs: int, threads: int, device: str, small: bool) -> Iterator[Workers]:
    """Start what runs blocks here, with no search for reference cycles. An interruption does not wait for blocks in work.

    For a ``small`` table no process is worth starting.
    """
    executor: Executor
    if not small and (jobs > THREADS_UP_TO or not device.startswith("cpu")):
        context = multiprocessing.get_context("forkserver")  # CUDA does not work in a fork of a process that has used it
        context.set_forkserver_preload(["phrase_rescore.annotation.annotator"])  # torch, once for all
        executor, in_flight, kind = ProcessPoolExecutor(jobs, context, _start_process, (threads,)), 2 * jobs, "processes"
    else:  # all share one model, and spend most of a block's time outside Python's lock
        executor, in_flight, kind = ThreadPoolExecutor(jobs), jobs + 2, "threads"
    try:
        with no_cycle_collection():
            yield Workers(executor.submit, in_flight, f"{jobs} x {threads} {kind}")
    except BaseException as error:
        executor.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    executor.shutdown()


def in_order(executor: Workers | Cluster, function: Callable[[Block], T], blocks: Iterable[Block]) -> Iterator[tuple[Block, T]]:
    """Yield every block with ``function(block)``, in order; few are in memory. Raises RescoreError if a process is killed."""
    waiting: deque[tuple[Block, Any]] = deque()
    try:
        for block in chain(blocks, [None]):
            if block is not None:
                waiting.append((block, executor.submit(function, block)))
            while waiting and (block is None or len(waiting) >= executor.in_flight):
                done, future = waiting.popleft()
                yield done, future.result()
    except BrokenProcessPool:
        raise RescoreError("a process that scores was killed, perhaps for lack of memory; use fewer --jobs") from None


def choose_devices(
    options: AnnotateOptions, listener: Listener, stack: contextlib.ExitStack
) -> tuple[Cluster | None, tuple[str, ...]]:
    """Return the cluster that is asked for, None for this machine, and the devices that score there."""
    if options.cluster is None:
        return None, resolve_devices(options.device)
    if options.jobs is not None:
        raise OptionError("--jobs is for this machine; leave it out, a cluster uses every thread of its workers")
    try:
        from phrase_rescore.annotation.cluster import open_cluster

        return stack.enter_context(open_cluster(options.cluster, options.device, listener))
    except ImportError as error:
        needs = f"--cluster {printable(options.cluster)} needs {error.name}"
        raise OptionError(f"{needs}; run: pip install 'phrase-rescore[cluster]'") from None


def choose_jobs(options: AnnotateOptions, devices: tuple[str, ...]) -> int:
    """Return how many blocks are in work at a time on this machine. Raises OptionError if it has too few cores."""
    cores, threads = usable_cores(), options.threads
    most = cores if devices[0].startswith("cpu") else GPU_JOBS * len(devices)
    jobs = options.jobs or max(1, min(cores // threads, most))
    if jobs * threads > (there := len(os.sched_getaffinity(0))):
        raise OptionError(f"--jobs {jobs} with --threads {threads} needs {jobs * threads} cores; this process may use {there}")
    prepare(threads)
    return jobs
