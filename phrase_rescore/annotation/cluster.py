"""Blocks scored by the workers of a Dask cluster. Imported only with ``--cluster``: Dask may not be there."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, get_worker
from distributed.client import FutureCancelledError

from phrase_rescore._version import __version__
from phrase_rescore.annotation.annotator import Annotator, Statistics, checkpoint_of
from phrase_rescore.errors import ModelError, OptionError, RescoreError, lacks_memory
from phrase_rescore.files.inputs import Block
from phrase_rescore.messages import Listener, counted, first_line, printable
from phrase_rescore.ranges import WORKERS
from phrase_rescore.runtime import no_cycle_collection, prepare, resolve_device

# Of --cluster NAME:JOBS, each with the class of dask_jobqueue that submits to it
QUEUES = {name.lower(): f"{name}Cluster" for name in ("SLURM", "PBS", "SGE", "LSF", "OAR", "HTCondor", "Moab")}
PLACES = "tcp://HOST:PORT, tls://HOST:PORT, file:SCHEDULER.json, local:WORKERS, " + ", ".join(f"{name}:JOBS" for name in QUEUES)
FIRST_CONNECTION = 10.0  # seconds to reach a scheduler
WATCH = 5.0  # seconds between looks at the workers


class WorkerState(NamedTuple):
    """What a worker has."""

    version: str
    torch: str  # its version
    has_cuda: bool


def introduce() -> WorkerState:
    """Return, on a worker, what it has."""
    import torch

    return WorkerState(__version__, torch.__version__, torch.cuda.is_available())


def score(annotator: Annotator, version: str, *block: Any) -> tuple[bytes, Statistics]:
    """Annotate a block, on a worker. Raises RescoreError if this worker, which may have come late, lacks something."""
    worker = get_worker()
    if version != __version__:
        raise RescoreError(f"worker {worker.address} has phrase-rescore {__version__}, here is {version}")
    _prepare(annotator.options.threads)
    try:
        with no_cycle_collection():
            return ready(annotator, worker.address)(Block(*block))
    except (MemoryError, RuntimeError, OSError) as error:
        if not lacks_memory(error) and not isinstance(error, OSError):
            raise
        raise RescoreError(f"worker {worker.address} failed ({first_line(error)})") from None


_prepare = functools.cache(prepare)  # once a process


def ready(annotator: Annotator, address: str) -> Annotator:
    """Return the annotator, on a worker of this address that has its devices and models. Raises RescoreError."""
    for device in annotator.devices:
        resolve_device(device)
    for model in annotator.models:
        try:
            signature = checkpoint_of(model.directory).signature
        except ModelError as error:
            raise RescoreError(f"worker {address} lacks the model ({error})") from None
        if signature != model.signature:
            raise RescoreError(f"worker {address} has another model at {model.directory}")
    return annotator


class Scoring(NamedTuple):
    """A block on its way, on the client."""

    cluster: Cluster
    block: Block
    table: str
    future: Future[Any]

    def result(self) -> tuple[bytes, Statistics]:
        """Wait for the block. Raises RescoreError if workers died of it or the scheduler is lost, else as ``score``."""
        while True:
            try:
                found: tuple[bytes, Statistics] = self.future.result(WATCH)
                self.cluster.in_work.remove(self)
                return found
            except KilledWorker as killed:
                rows = f"rows {self.block.first_row:,} to {self.block.first_row + self.block.n_rows - 1:,}"
                last = f"{killed.last_worker.address} died"
                raise RescoreError(f"{self.table}: {rows}: workers failed at them again and again ({last})") from None
            except FutureCancelledError:
                raise RescoreError("the scheduler is lost; rows so far are kept: continue with --resume") from None
            except OSError:  # a TimeoutError; or the line was cut while the block came, which a lost scheduler cancels
                time.sleep(0.1)
                self.cluster.watch()


class Cluster:
    """The workers of a Dask cluster, as an executor of blocks."""

    def __init__(self, client: Client, name: str, listener: Listener) -> None:
        self._client, self._name, self._listener = client, name, listener
        self._cores, self._most, self._watched, self._waiting = 0, 0, 0.0, False
        self.in_work: deque[Scoring] = deque()

    @property
    def in_flight(self) -> int:
        """Some blocks a core, so that a slow worker does not stop the others, and not too many for the client's memory."""
        if time.monotonic() > self._watched + WATCH:
            self.watch()
        return max(2 * self._cores, min(16 * self._cores, 1024)) + 2

    def submit(self, annotator: Any, block: Block, /) -> Scoring:
        """Have a block annotated by a worker."""
        # so often a block is tried again that a worker failed at; how many may die of one is Dask's allowed-failures
        # Dask takes a tuple apart and copies it; bytes that stand alone it sends as they are
        future = self._client.submit(score, annotator, __version__, *block, retries=3, pure=False)
        self.in_work.append(Scoring(self, block, annotator.table, future))
        return self.in_work[-1]

    @property
    def description(self) -> str:
        return f"{counted(self._most, 'worker')} of {self._name}"

    def watch(self) -> None:
        """Count the workers. If there is none, raise the error of a block that they died of, or say so."""
        cores = dict[str, int]()
        with contextlib.suppress(Exception):  # the scheduler may be lost
            cores = self._client.nthreads()  # type: ignore[no-untyped-call]
        self._cores, self._most, self._watched = sum(cores.values()), max(self._most, len(cores)), time.monotonic()
        if not cores:
            for scoring in self.in_work:
                if scoring.future.status == "error":
                    scoring.result()
            if not self._waiting:
                self._listener.warn(f"no worker is left at {self._name}; waiting for one")
        self._waiting = not cores


@contextlib.contextmanager
def open_cluster(where: str, device: str, listener: Listener) -> Iterator[tuple[Cluster, tuple[str, ...]]]:
    """Connect to a cluster, or start one, check that its workers can score, and leave it at the end.

    Yields it and the devices that each worker scores on: with ``auto`` a GPU, if all have one. Raises OptionError for a place
    that cannot be understood, RescoreError if no scheduler answers or a worker has another version.
    """
    # For debugging Dask keeps its last thousand messages to everyone, which here are blocks, and samples the workers' stacks
    for_debugging = {"distributed.admin.low-level-log-length": 0, "distributed.worker.profile.enabled": False}
    name = printable(where, 200)
    with dask.config.set(for_debugging), contextlib.ExitStack() as stack:
        for logger in map(logging.getLogger, ("distributed", "distributed.client", "distributed.scheduler")):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)  # lost connections are reported over many lines each
        client = _connect(where, name, stack)
        try:
            client.wait_for_workers(1, timeout=WATCH)
        except TimeoutError:
            listener.say(f"no worker yet at {name}; waiting for one")
            client.wait_for_workers(1)
        states = _check_workers(client, listener)
        if device == "auto":
            device = "cuda" if all(state.has_cuda for state in states) else "cpu"
        yield Cluster(client, name, listener), tuple(device.split(","))


def _connect(where: str, name: str, stack: contextlib.ExitStack) -> Client:
    """Connect to a scheduler, which is started and ended here for ``local:N`` and queues."""
    scheme, _, rest = where.partition(":")
    to: dict[str, Any] = {"address": where}
    if scheme == "local" or scheme in QUEUES:
        try:
            workers = int(WORKERS.read(rest))
        except OptionError as error:
            raise OptionError(f"--cluster {name}: {error}, as in {scheme}:4") from None
        to = {"address": stack.enter_context(_start(scheme, workers, name))}
    elif scheme == "file":
        if not os.path.exists(rest):
            raise RescoreError(f"--cluster {name}: no such file; start dask scheduler with it as --scheduler-file")
        to = {"scheduler_file": rest}
    elif "://" not in where:
        raise OptionError(f"--cluster {name} is not one of {PLACES}")
    try:
        client: Client = Client(**to, set_as_default=False, timeout=FIRST_CONNECTION, name="phrase-rescore")  # type: ignore[no-untyped-call]
    except (OSError, ValueError, ImportError, TypeError) as error:
        raise RescoreError(f"--cluster {name}: no scheduler answers there ({first_line(error)})") from None
    stack.enter_context(client)
    return client


def _start(scheme: str, workers: int, name: str) -> Any:
    """Start the cluster of ``local:N`` or of a queue. Raises RescoreError."""
    try:
        if scheme == "local":
            settings = {"n_workers": workers, "threads_per_worker": 1, "silence_logs": logging.CRITICAL}
            return LocalCluster(host="127.0.0.1", dashboard_address="127.0.0.1:0", **settings)  # type: ignore[no-untyped-call]
        interrupt = signal.getsignal(signal.SIGINT)
        import dask_jobqueue

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)  # dask_jobqueue puts its own in its place
        cluster = getattr(dask_jobqueue, QUEUES[scheme])()
        cluster.scale(jobs=workers)
        return cluster
    except ImportError:
        raise
    except Exception as error:  # of Dask, of dask-jobqueue, or of the queue's own command
        raise RescoreError(f"--cluster {name}: its workers did not start ({first_line(error)})") from None


def _check_workers(client: Client, listener: Listener) -> list[WorkerState]:
    """Ask the workers what they have. Raises RescoreError if one cannot score."""
    here = introduce()
    states = dict[str, Any]()
    while not states:
        answers = client.run(introduce, on_error="return")
        states = {address: state for address, state in answers.items() if not isinstance(state, OSError)}  # else it has gone
        time.sleep(0 if states else 0.5)
    for address, state in states.items():
        if not isinstance(state, WorkerState):
            raise RescoreError(f"worker {address} cannot run phrase_rescore ({first_line(state)}); install it there")
        if state.version != here.version:
            raise RescoreError(f"worker {address} has phrase-rescore {state.version}, here is {here.version}")
        if state.torch != here.torch:
            found = f"worker {address} has torch {state.torch}, here is {here.torch}"
            listener.warn(f"{found}: last digits of scores may differ")
    return list(states.values())
