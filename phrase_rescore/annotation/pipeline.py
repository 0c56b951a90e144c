"""Blocks of rows through an executor and out again in order; threads and processes as executors; ``strip``."""

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
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from phrase_rescore.errors import InputError, OptionError, RescoreError, RowError
from phrase_rescore.files.inputs import BLOCK_BYTES, Block, display_name, open_input, read_blocks
from phrase_rescore.files.outputs import asks_for_gzip, gzip_member
from phrase_rescore.files.paths import check_apart
from phrase_rescore.files.row_outputs import row_output
from phrase_rescore.moses.columns import JUDGED_ROWS, TableColumns
from phrase_rescore.moses.file_kinds import JUDGED, TABLE, check_kind
from phrase_rescore.moses.sidecar import sidecar_path
from phrase_rescore.moses.table import TableRow, parse_block, parse_row, score_values, valid_rows
from phrase_rescore.progress import Progress
from phrase_rescore.runtime import no_cycle_collection, prepare

if TYPE_CHECKING:
    from phrase_rescore.annotation.cluster import Cluster

GZIP_LEVEL = "6"
FIT_ROWS = 100_000  # rows whose words are counted to see whether model and table go together
AHEAD_ROWS, JUDGED_AHEAD = 20_000, 2000  # rows read before the first is written, and those whose words tell the direction
BLOCK_ROWS, GPU_BLOCK_ROWS = 2048, 32768  # rows of a block, and of a gzip member, where CPUs or GPUs score
GPU_JOBS = 8  # processes that share a GPU: twice as many are hardly faster, and each takes some 3 GB of its memory
THREADS_UP_TO = 4  # jobs on CPUs; with more, threads of one process wait for each other

T = TypeVar("T")


class Workers(NamedTuple):
    """What runs blocks on this machine."""

    submit: Callable[..., Future[Any]]
    in_flight: int  # the most blocks in memory: in work, or done and waiting for their turn to be written
    description: str  # for the closing report


def _start_process(threads: int) -> None:
    """Prepare a process for blocks. It ends when its parent does, and not by Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    prepare(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def local(jobs: int, threads: int = 1, processes: bool = False) -> Iterator[Workers]:
    """Start what runs blocks here, with no search for reference cycles. An interruption does not wait for blocks in work."""
    executor: Executor
    if processes:
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


def in_order(executor: Workers | Cluster, function: Callable[..., T], blocks: Iterable[Block]) -> Iterator[tuple[Block, T]]:
    """Yield every block with ``function(*block)``, in order; few are in memory. Raises RescoreError if a process is killed."""
    waiting: deque[tuple[Block, Any]] = deque()
    try:
        for block in chain(blocks, [None]):
            if block is not None:
                waiting.append((block, executor.submit(function, *block)))
            while waiting and (block is None or len(waiting) >= executor.in_flight):
                done, future = waiting.popleft()
                yield done, future.result()
    except BrokenProcessPool:
        raise RescoreError("a process that scores was killed, perhaps for lack of memory; use fewer --jobs") from None


def first_valid_rows(blocks: Iterator[Block], table: str, drops: bool = False) -> tuple[list[TableRow], Iterator[Block]]:
    """Return the first valid rows, whose number of scores all rows must have, and the stream. Raises InputError."""
    ahead, blocks = read_ahead(blocks, JUDGED)
    if ahead:  # else it is empty, or an error comes
        check_kind(table, [row for block in ahead for row in block.rows()], TABLE)
    taken = list[Block]()
    for block in blocks:
        if not drops and block.number == 0:
            try:
                parse_row(block.rows()[0])
            except RowError as error:
                raise error.at(table, 1) from None
        taken.append(block)
        if rows := list(islice(valid_rows(block.rows()), JUDGED_ROWS)):
            return rows, chain(taken, blocks)
        if block.first_row > FIT_ROWS:
            break
    raise InputError(table, "no valid row in it" if taken else "is empty", "pass a phrase table")


def read_ahead(blocks: Iterator[Block], rows: int) -> tuple[list[Block], Iterator[Block]]:
    """Return the blocks of the first rows, so many or some megabytes, and the whole stream."""
    taken, size, rest = list[Block](), 0, blocks
    try:
        for block in blocks:
            taken.append(block)
            size += len(block.data)
            if block.first_row + block.n_rows > rows or size > BLOCK_BYTES:
                break
    except InputError as error:  # which comes when the blocks before it are done
        rest = _failing(error)
    return taken, chain(taken, rest)


def _failing(error: InputError) -> Iterator[Block]:
    raise error
    yield


def gzip_level_of(out: str, level: str = GZIP_LEVEL) -> str | None:
    """Return the level for a ``.gz`` file, None for a plain one. Raises OptionError for formats that Moses does not read."""
    return level if asks_for_gzip(out, "Moses loads plain tables and .gz") else None


def strip(table: str, out: str, columns: int | None, on_read: Progress | None) -> tuple[int, list[str]]:
    """Write the table without its last ``columns``, by default those that its sidecar names; return rows and columns.

    Raises InputError for a bad table, OptionError if nothing says which columns, and as ``TableColumns.last``.
    """
    check_apart([("TABLE", table), ("its sidecar", sidecar_path(table))], [("-o", out)])
    name, gzip_level = display_name(table), gzip_level_of(out)
    with local(1) as executor, open_input(table, on_read) as stream, row_output(out) as output:
        first, blocks = first_valid_rows(read_blocks(stream, BLOCK_ROWS), name)
        n_scores = first[0].n_scores
        known = TableColumns.of(table, score_values([row.fields[2] for row in first if row.n_scores == n_scores], n_scores))
        removed = known.last(columns, "--columns") if columns else known.last_added()
        if not removed:
            found = known.doubt or f"nothing says which columns of {name} annotate wrote"
            raise OptionError(f"{found}; to remove the last K give --columns K")
        last = len(removed)

        def stripped(*block: Any) -> tuple[bytes, int]:
            rows = parse_block(Block(*block), n_scores)
            for line, _, error in rows.bad:
                raise error.at(name, line)
            text = rows.write(last, [b""] * len(rows.heads))
            return text if gzip_level is None else gzip_member(text, gzip_level), len(rows.heads)

        for _, (data, rows) in in_order(executor, stripped, blocks):
            output.write(data, rows)
    return output.rows, list(map(str, removed))
