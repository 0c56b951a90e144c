"""Blocks scored by the workers of a Dask cluster (``--cluster``). Dask schedules them; what stands here is what it leaves open:

- a lost worker, a lost scheduler and a lost connection cost time and no rows: blocks that are not back are kept here;
- a block that is there when three workers die is named;
- who may score, and with which model: ``worker_pool``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from phrase_rescore.annotation.annotator import Annotator, Model, Statistics
from phrase_rescore.annotation.executors.local import BlockExecutor, BlockLost
from phrase_rescore.annotation.executors.place import Place, dask_ready
from phrase_rescore.annotation.executors.worker import DeviceMissing, ModelMissing, NotScored, Scored, score
from phrase_rescore.annotation.executors.worker_pool import FAILURES, WorkerPool
from phrase_rescore.errors import OptionError, RescoreError, counted
from phrase_rescore.files.blocks import Block

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
Tell = Callable[[str], object]

PATIENCE = 300.0  # seconds to wait for a lost scheduler, as Dask's own for a silent worker
FIRST_CONNECTION = 10.0  # seconds to reach a scheduler
ANSWER = 5.0  # seconds that workers have at the start to say what they are, if others have; their first block tells it, too
AHEAD = 16  # blocks in flight, a core, so that a slow worker does not stop the others
MOST_AHEAD = 1024  # blocks in flight in all, unless that is less than two a core
BYTES_AHEAD = 512 << 20  # of their rows, likewise


def blocks_ahead(cores: int, largest: int = 1) -> int:
    """Return how many blocks, of ``largest`` bytes at most, are on their way if workers have so many cores together."""
    return max(2 * cores, min(AHEAD * cores, MOST_AHEAD, BYTES_AHEAD // largest)) + 2


@dataclass(eq=False)
class _InWork:
    """A block that is not back yet."""

    block: Block
    key: str = ""  # of its task, as the scheduler knows it
    future: Any = None  # of that task
    begun_by: str = ""  # the worker that said so
    failures: list[tuple[str, str]] = field(default_factory=list)  # workers, and what happened to them

    def given_up(self, workers: Iterable[str]) -> bool:
        """Tell whether FAILURES workers failed at it, or as many tries of all the workers there are."""
        failed = {worker for worker, _ in self.failures}
        return len(failed) >= FAILURES or (len(self.failures) >= FAILURES and failed.issuperset(workers))

    def why(self) -> str:
        return "; ".join(f"{worker} {what}" for worker, what in self.failures[-FAILURES:])


class Cluster(BlockExecutor):
    """The workers of a Dask cluster at a ``Place``. ``strict`` refuses workers of another kind than this process.

    Calls come from one thread; Dask's client lives in a thread of its own.
    """

    def __init__(self, where: str, *, strict: bool = False, tell: Tell = lambda line: None) -> None:
        self._place, self._tell = Place(where), tell
        self._run = f"phrase-rescore-{uuid.uuid4().hex[:12]}"
        self._client: Client | None = None
        self._in_work: dict[str, _InWork] = {}
        self._keys = itertools.count()
        self._workers = WorkerPool(strict, self._tell_once, self._on_nobody)
        self._end: RescoreError | None = None  # why nothing can be scored any more
        self._told: set[str] = set()
        self._lost = 0
        self._largest = 1  # bytes of a block
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # of tasks that Dask leaves when a connection is lost
        self._renewal = asyncio.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="phrase-rescore cluster", daemon=True)
        self._thread.start()

    # ---- What the pipeline calls

    @property
    def in_flight(self) -> int:
        return blocks_ahead(self._workers.cores or 1, self._largest)

    def submit(self, function: Annotator, /, *block: Any) -> Future[Any]:  # type: ignore[override]
        self._largest = max(self._largest, len(Block(*block).data))
        return asyncio.run_coroutine_threadsafe(self._score(function, Block(*block)), self._loop)

    def describe(self, threads: int) -> str:
        lost = f", {self._lost:,} lost on the way" if self._lost else ""
        return f"{counted(self._workers.most, 'worker')} of {self._place.name}{lost}"

    def progress(self) -> str:
        lost = f", {self._lost:,} lost" if self._lost else ""
        return f"{counted(len(self._workers.known), 'worker')}{lost}, {len(self._in_work):,} blocks in flight"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, and end it if it was started for this run."""
        if self._thread.is_alive():
            with contextlib.suppress(Exception):
                self._call(self._close(), timeout=30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)

    def _call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout)

    # ---- Beginning and end

    def start(self) -> None:
        """Connect, wait for a worker, and ask those that are there what they are.

        Raises OptionError for a place that cannot be understood, RescoreError if no scheduler answers, if all workers have
        another version of this package or, when ``strict``, if one is of another kind than this process.
        """
        self._call(self._start())

    def devices(self, device: str) -> tuple[str, ...]:
        """Return the devices of ``--device`` as every worker has them. Raises OptionError for one that a worker lacks."""
        have = {kind.has_cuda for kind in self._workers.kinds}
        if device == "auto":
            if len(have) == 2:
                raise OptionError("some workers have a GPU and some have none; name what all score on with --device")
            return ("cuda" if have == {True} else "cpu",)
        devices = tuple(device.split(","))
        if not all(re.fullmatch(r"cpu|cuda(:[0-9]+)?", name) for name in devices):
            raise OptionError(f"--device {device}: on a cluster it is auto, cpu or cuda[:N],…")
        if False in have and devices != ("cpu",):
            raise OptionError(f"--device {device}: workers without a GPU are there; use --device cpu")
        return devices

    async def _start(self) -> None:
        await self._place.start()
        await self._connect(FIRST_CONNECTION)
        begun = time.monotonic()
        asked: dict[str, asyncio.Task[None]] = {}
        while not self._workers.kinds:
            for name in [name for name, answer in asked.items() if answer.done()]:
                asked.pop(name).result()  # who has not answered is asked again
            new = self._workers.known.keys() - asked.keys()
            asked |= {name: asyncio.ensure_future(self._workers.ask(name)) for name in new}
            if not self._workers.known:
                if self._workers.refused:
                    raise self._nobody()
                if time.monotonic() - begun > 5:
                    self._tell_once(f"no worker yet at {self._place.name}; waiting for one")
            await asyncio.sleep(0.1)
        if asked:
            answered, asking = await asyncio.wait(asked.values(), timeout=ANSWER)
            for answer in answered:
                answer.result()
            if asking:
                self._tell_once(f"{counted(len(asking), 'worker')} did not answer yet")
        self._workers.started = True

    def _nobody(self) -> RescoreError:
        return RescoreError(f"--cluster {self._place.name}: no worker there can score; see above")

    async def _connect(self, timeout: float) -> None:
        """Connect to the scheduler. Raises OptionError and RescoreError."""
        client = await self._place.connect(timeout)
        client.subscribe_topic("all", self._on_event)  # type: ignore[no-untyped-call]
        client.subscribe_topic(self._run, self._on_begun)  # type: ignore[no-untyped-call]
        self._client = self._workers.client = client
        found = await self._workers.count()
        if "dashboard" in found.get("services", {}):
            self._tell_once(f"dashboard of the cluster: {client.dashboard_link}")

    async def _close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                self._client.unsubscribe_topic("all")  # type: ignore[no-untyped-call]
                await self._client.close(timeout=5)  # type: ignore[no-untyped-call]
        await self._place.close()

    async def _renew(self, lost: Client) -> None:
        """Connect once more after the scheduler was lost. Raises RescoreError if that fails for as long as PATIENCE."""
        async with self._renewal:
            if self._end:
                raise self._end
            if self._client is not lost:
                return
            self._tell(f"warning: lost the scheduler at {self._place.name}; trying to reach it for {PATIENCE:.0f} seconds")
            with contextlib.suppress(Exception):
                await lost.close(timeout=1)  # type: ignore[no-untyped-call]
            self._workers.forget_all()
            give_up = time.monotonic() + PATIENCE
            while True:
                try:
                    return await self._connect(5.0)
                except RescoreError as error:
                    if time.monotonic() > give_up:
                        self._end = RescoreError(f"{error}; what is done is kept: go on with --resume")
                        raise self._end from None
                    await asyncio.sleep(0.5)

    # ---- Workers

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Learn from the scheduler that workers come and go, and which blocks they had."""
        message = event[1]
        if not isinstance(message, dict):
            return
        if message.get("action") == "remove-worker":
            address = message["worker"]
            self._workers.forget(address)
            if message.get("expected"):
                return
            self._lost += 1
            if not self._workers.known:
                self._tell_once(f"warning: no worker is left at {self._place.name}; waiting for one")
            mine = [self._in_work[key] for key in message["processing-tasks"] if key in self._in_work]
            for work in mine:  # a block that only waited there did no harm
                if work.begun_by == address:
                    work.failures.append((address, "died"))
                    if work.given_up(self._workers.known):
                        self._cancel(work)
        elif message.get("action") == "add-worker":
            asyncio.ensure_future(self._workers.welcome(message["worker"]))  # noqa: RUF006

    def _on_begun(self, event: tuple[float, Any]) -> None:
        """Learn which worker has begun a block."""
        worker, key = event[1]
        if key in self._in_work:
            self._in_work[key].begun_by = worker

    def _on_nobody(self) -> None:
        """End the run: the last worker was left out."""
        self._end = self._nobody()
        for work in self._in_work.values():
            self._cancel(work)

    # ---- Blocks

    async def _score(self, annotator: Annotator, block: Block) -> tuple[bytes, Statistics]:
        """Have a block scored, by as many workers as it takes. Raises BlockLost, and what the annotator raises."""
        from distributed import Client, KilledWorker
        from distributed.client import FutureCancelledError

        work = _InWork(block)
        models = tuple(Model(os.path.abspath(model.directory), model.signature) for model in annotator.models)
        annotator = replace(annotator, models=models)  # a worker has another working directory
        try:
            while not work.given_up(self._workers.known):
                client = self._client
                assert isinstance(client, Client)
                if self._end or client.status != "running":
                    await self._renew(client)
                    continue
                self._in_work.pop(work.key, None)
                work.key = f"{self._run}-{next(self._keys)}"
                self._in_work[work.key] = work
                submitted = time.monotonic()
                try:
                    work.future = client.submit(score, self._run, annotator, *block, key=work.key, pure=False)
                    scored: Scored = await work.future
                    if await self._workers.judge(scored.worker, scored.host, scored.kind):
                        self._workers.scored(scored.worker)
                        return scored.result
                except NotScored as missed:
                    await self._mend(work, missed, models, submitted)
                except KilledWorker as killed:
                    died = killed.last_worker.address, "died"
                    work.failures += [died] * (FAILURES - len(work.failures))
                    break
                except OSError:  # the line to the scheduler was cut while the block came; what a worker met is NotScored
                    await asyncio.sleep(0.1)
                except FutureCancelledError as cancelled:
                    if cancelled.reason == "scheduler-connection-lost" or client.status != "running":
                        await self._renew(client)
            raise BlockLost(block, work.why())
        finally:
            self._in_work.pop(work.key, None)

    async def _mend(self, work: _InWork, missed: NotScored, models: tuple[Model, ...], submitted: float) -> None:
        """Give a worker what it lacked, or leave it out, or note that it failed at a block, which goes to others then."""
        if isinstance(missed, DeviceMissing):
            await self._workers.leave_out(missed.worker, missed.why)
        elif isinstance(missed, ModelMissing):
            await self._workers.supply(missed.worker, models[missed.number], missed.why, submitted)
        else:
            work.failures.append((missed.worker, f"failed ({missed.why})"))
            await self._workers.failed(missed.worker, missed.why)

    def _cancel(self, work: _InWork) -> None:
        """Have ``_score`` look at a block again."""
        if self._client is not None and work.future is not None:
            asyncio.ensure_future(self._client.cancel([work.future], force=True))  # type: ignore[no-untyped-call] # noqa: RUF006

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)


@contextlib.contextmanager
def open_cluster(
    where: str, device: str = "auto", *, strict: bool = False, tell: Tell = lambda line: None
) -> Iterator[tuple[Cluster, tuple[str, ...]]]:
    """Reach, or start, a cluster, and leave it at the end. Yields it and the devices that each worker scores on.

    ``device``: as ``--device``; ``auto`` takes a GPU if all workers have one. Raises OptionError without Dask and for devices
    that are not there, else as ``Cluster.start``.
    """
    with dask_ready(where):
        executor = Cluster(where, strict=strict, tell=tell)
        try:
            executor.start()
            yield executor, executor.devices(device)
        finally:
            executor.shutdown()
