"""Blocks scored by the workers of a Dask cluster (``--cluster``). Dask schedules them; what stands here is what it leaves open:

- workers are of one kind, have the model, or are sent it;
- a lost worker, a lost scheduler and a lost connection cost time and no rows: blocks that are not back are kept here;
- a block that is there when three workers die is named.
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
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from phrase_rescore.annotation.annotator import Annotator, Model, Statistics
from phrase_rescore.annotation.executors.local import BlockExecutor, BlockLost
from phrase_rescore.annotation.executors.place import Place, dask_ready, first_line
from phrase_rescore.annotation.executors.worker import Kind, ModelMissing, Scored, introduce, kind, receive, received, score
from phrase_rescore.errors import ModelError, OptionError, RescoreError, counted, lacks_memory
from phrase_rescore.files.blocks import Block
from phrase_rescore.models.checkpoint import load
from phrase_rescore.models.storage import files_of

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
Tell = Callable[[str], object]

FAILURES = 3  # of workers at a block, after which it is given up
PATIENCE = 300.0  # seconds to wait for a lost scheduler, as Dask's own for a silent worker
FIRST_CONNECTION = 10.0  # seconds to reach a scheduler
ANSWER = 5.0  # seconds that workers have to say what they are, if others have; their first block tells it, too
PIECE = 16 << 20  # bytes of a model at a time
AHEAD = 16  # blocks in flight, a core, so that a slow worker does not stop the others
MOST_AHEAD = 1024  # blocks in flight in all, unless that is less than two a core


@dataclass(eq=False)
class _InWork:
    """A block that is not back yet."""

    block: Block
    key: str = ""  # of its task, as the scheduler knows it
    future: Any = None  # of that task
    begun_by: str = ""  # the worker that said so
    failures: list[str] = field(default_factory=list)


class Cluster(BlockExecutor):
    """The workers of a Dask cluster at a ``Place``. ``strict`` refuses workers of another kind than this process.

    Calls come from one thread; Dask's client lives in a thread of its own.
    """

    def __init__(self, where: str, *, strict: bool = False, tell: Tell = lambda line: None) -> None:
        self._place, self._strict, self._tell = Place(where), strict, tell
        self._run = f"phrase-rescore-{uuid.uuid4().hex[:12]}"
        self._client: Client | None = None
        self._in_work: dict[str, _InWork] = {}
        self._keys = itertools.count()
        self._cores: dict[str, int] = {}  # of every worker, by its address
        self._kinds: dict[str, Kind] = {}  # of the workers that have told it
        self._told: set[str] = set()
        self._left_out: set[str] = set()
        self._sent: dict[tuple[str, str], float] = {}  # when, by worker and signature of the model
        self._sending: dict[str, asyncio.Lock] = {}
        self._lost = 0
        self._most = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda loop, context: None)  # of tasks that Dask leaves when a connection is lost
        self._renewal = asyncio.Lock()
        self._thread = threading.Thread(target=self._loop.run_forever, name="phrase-rescore cluster", daemon=True)
        self._thread.start()

    # ---- What the pipeline calls

    @property
    def in_flight(self) -> int:
        cores = sum(self._cores.values()) or 1
        return max(2 * cores, min(AHEAD * cores, MOST_AHEAD)) + 2

    def submit(self, function: Annotator, /, *block: Any) -> Future[Any]:  # type: ignore[override]
        return asyncio.run_coroutine_threadsafe(self._score(function, Block(*block)), self._loop)

    def describe(self, threads: int) -> str:
        lost = f", {self._lost:,} lost on the way" if self._lost else ""
        return f"{counted(self._most, 'worker')} of {self._place.name}{lost}"

    def progress(self) -> str:
        lost = f", {self._lost:,} lost" if self._lost else ""
        return f"{counted(len(self._cores), 'worker')}{lost}, {len(self._in_work):,} blocks in flight"

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
        have = {found.has_cuda for found in self._kinds.values()}
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
        asking: set[asyncio.Future[None]] = set()
        while not self._kinds:
            if not asking:
                asking = {asyncio.ensure_future(self._ask(worker)) for worker in self._cores}
            if not asking and self._left_out:
                raise RescoreError(f"--cluster {self._place.name}: no worker there can score; see above")
            if not self._cores and time.monotonic() - begun > 5:
                self._tell_once(f"no worker yet at {self._place.name}; waiting for one")
            asking = await _answered(asking, 0.2)
        asking = await _answered(asking, ANSWER, asyncio.ALL_COMPLETED)
        if asking:
            self._tell_once(f"{counted(len(asking), 'worker')} did not answer yet")

    async def _connect(self, timeout: float) -> None:
        """Connect to the scheduler. Raises OptionError and RescoreError."""
        client = await self._place.connect(timeout)
        client.subscribe_topic("all", self._on_event)  # type: ignore[no-untyped-call]
        client.subscribe_topic(self._run, self._on_begun)  # type: ignore[no-untyped-call]
        self._client = client
        found = await self._count()
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
            if self._client is not lost:
                return
            self._tell(f"warning: lost the scheduler at {self._place.name}; trying to reach it for {PATIENCE:.0f} seconds")
            with contextlib.suppress(Exception):
                await lost.close(timeout=1)  # type: ignore[no-untyped-call]
            self._cores.clear()
            give_up = time.monotonic() + PATIENCE
            while True:
                try:
                    return await self._connect(5.0)
                except RescoreError as error:
                    if time.monotonic() > give_up:
                        raise RescoreError(f"{error}; what is done is kept: go on with --resume") from None
                    await asyncio.sleep(0.5)

    # ---- Workers

    def _on_event(self, event: tuple[float, Any]) -> None:
        """Learn from the scheduler that workers come and go, and which blocks they had."""
        message = event[1]
        if not isinstance(message, dict):
            return
        if message.get("action") == "remove-worker":
            self._cores.pop(message["worker"], None)
            if message.get("expected"):
                return
            self._lost += 1
            mine = [self._in_work[key] for key in message["processing-tasks"] if key in self._in_work]
            for work in mine:  # a block that only waited there did no harm
                if work.begun_by == message["worker"]:
                    self._failed(work, f"{message['worker']} died")
        elif message.get("action") == "add-worker":
            asyncio.ensure_future(self._count())  # noqa: RUF006

    def _on_begun(self, event: tuple[float, Any]) -> None:
        """Learn which worker has begun a block."""
        worker, key = event[1]
        if key in self._in_work:
            self._in_work[key].begun_by = worker

    async def _count(self) -> dict[str, Any]:
        """Count the workers and their cores anew. Return what the scheduler tells of itself."""
        found: dict[str, Any] = {}
        if self._client is not None:
            with contextlib.suppress(Exception):
                found = await self._client.scheduler.identity(n_workers=-1)  # type: ignore[union-attr]
                self._cores = {address: int(worker["nthreads"]) for address, worker in found["workers"].items()}
                self._most = max(self._most, len(self._cores))
        return found

    def _failed(self, work: _InWork, why: str) -> None:
        work.failures.append(why)
        if len(work.failures) >= FAILURES and self._client is not None:
            asyncio.ensure_future(self._client.cancel([work.future], force=True))  # type: ignore[no-untyped-call] # noqa: RUF006

    async def _ask(self, worker: str) -> None:
        """Ask a worker what it is, and leave it out if it cannot score. Raises RescoreError as ``start`` does."""
        assert self._client is not None
        try:
            answers = await self._client.run(introduce, workers=[worker], on_error="return")
        except (OSError, ValueError):  # it has gone meanwhile
            return
        answer = answers.get(worker)
        if isinstance(answer, tuple):
            await self._judge(worker, *answer)
        elif answer is not None and not isinstance(answer, OSError):
            await self._leave_out(worker, f"cannot run phrase_rescore ({first_line(answer)}); install it there")

    async def _judge(self, worker: str, host: str, found: Kind) -> bool:
        """Compare the kind of a worker with that of this process, once. Tell whether it may score."""
        if worker in self._kinds:
            return True
        here = kind()
        if found.version != here.version:
            await self._leave_out(worker, f"on {host} has phrase-rescore {found.version}, here is {here.version}")
            return False
        if (found.torch, found.cpu) != (here.torch, here.cpu):
            differs = f"workers with {found}; here is {here}: the last digits of scores may differ from a run here"
            if self._strict:
                raise RescoreError(f"worker {worker} on {host}: {differs} (--strict)")
            self._tell_once(f"warning: {differs}")
        self._kinds[worker] = found
        return True

    async def _leave_out(self, worker: str, why: str) -> None:
        """Retire a worker that cannot score: it would take block after block, and give none back."""
        if worker in self._left_out:
            return
        self._left_out.add(worker)
        self._tell_once(f"warning: left out: worker {worker} {why}")
        assert self._client is not None
        with contextlib.suppress(Exception):
            await self._client.retire_workers([worker])
        self._cores.pop(worker, None)

    async def _send(self, worker: str, model: Model, why: str) -> None:
        """Send a model to a worker that lacks it, once. Raises ModelError if it is not the model of this run any more."""
        assert self._client is not None
        async with self._sending.setdefault(worker, asyncio.Lock()):
            sent = worker, model.signature
            if sent in self._sent:
                return
            if os.path.isdir(model.directory) and load(model.directory).signature != model.signature:
                raise ModelError(f"{model.directory}: the model has changed since annotation began; start again")
            self._tell_once(f"sending the model to workers that lack it ({why})")
            try:
                first = True
                for name in files_of(model.directory):
                    with open(os.path.join(model.directory, name), "rb") as stream:
                        while piece := stream.read(PIECE):
                            await self._client.run(receive, model.signature, name, piece, first, workers=[worker])
                            first = False
                await self._client.run(received, model.signature, workers=[worker])
                self._sent[sent] = time.monotonic()
            except RescoreError as error:
                await self._leave_out(worker, str(error))
            except (OSError, KeyError):  # the worker is gone
                return

    # ---- Blocks

    async def _score(self, annotator: Annotator, block: Block) -> tuple[bytes, Statistics]:
        """Have a block scored, by as many workers as it takes. Raises BlockLost, and what the annotator raises."""
        from distributed import Client, KilledWorker
        from distributed.client import FutureCancelledError

        work = _InWork(block)
        models = tuple(Model(os.path.abspath(model.directory), model.signature) for model in annotator.models)
        annotator = replace(annotator, models=models)  # a worker has another working directory
        try:
            while True:
                client = self._client
                assert isinstance(client, Client)
                self._in_work.pop(work.key, None)
                work.key = f"{self._run}-{next(self._keys)}"
                self._in_work[work.key] = work
                submitted = time.monotonic()
                try:
                    work.future = client.submit(score, self._run, annotator, *block, key=work.key, pure=False)
                    scored: Scored = await work.future
                    if await self._judge(scored.worker, scored.host, scored.kind):
                        return scored.result
                except ModelMissing as missing:
                    model = annotator.models[missing.number]
                    if submitted > self._sent.get((missing.worker, model.signature), submitted):
                        await self._leave_out(missing.worker, f"has not kept the model that it was sent ({missing.why})")
                    else:
                        await self._send(missing.worker, model, missing.why)
                except KilledWorker as killed:
                    work.failures += [f"{killed.last_worker.address} died"] * (FAILURES - len(work.failures))
                except FutureCancelledError as cancelled:
                    if cancelled.reason == "scheduler-connection-lost" or client.status != "running":
                        await self._renew(client)
                except (MemoryError, RuntimeError, OSError) as error:
                    if not lacks_memory(error) and not isinstance(error, OSError):
                        raise
                    self._failed(work, first_line(error))
                if len(work.failures) >= FAILURES:
                    raise BlockLost(block, "; ".join(work.failures[-FAILURES:]))
        finally:
            self._in_work.pop(work.key, None)

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)


async def _answered(asking: set[asyncio.Future[None]], seconds: float, until: str = asyncio.FIRST_COMPLETED) -> Any:
    """Wait for what workers are asked, raise what comes of it, and return who has not answered."""
    if not asking:
        await asyncio.sleep(seconds if until == asyncio.FIRST_COMPLETED else 0)
        return asking
    done, asking = await asyncio.wait(asking, timeout=seconds, return_when=until)
    for answer in done:
        answer.result()
    return asking


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
