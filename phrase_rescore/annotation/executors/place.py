"""Where a Dask cluster is: one that runs already is reached, one of ``local:N`` or of a queue is started and ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from phrase_rescore.errors import OptionError, RescoreError, first_line, printable
from phrase_rescore.ranges import WORKERS

if TYPE_CHECKING:
    from distributed import Client

QUEUES = {  # of --cluster NAME:JOBS, by the classes of dask_jobqueue that submit to them
    "slurm": "SLURMCluster", "pbs": "PBSCluster", "sge": "SGECluster", "lsf": "LSFCluster", "oar": "OARCluster",
    "htcondor": "HTCondorCluster", "moab": "MoabCluster",
}  # fmt: skip
PLACES = "tcp://HOST:PORT, tls://HOST:PORT, file:SCHEDULER.json, local:WORKERS, " + ", ".join(f"{name}:JOBS" for name in QUEUES)


class Place:
    """A value of ``--cluster``, one of PLACES. Its name is for people."""

    def __init__(self, where: str) -> None:
        self._where, self.name = where, printable(where, 200)
        self._started: Any = None  # Dask's cluster, if it was started for this run

    async def start(self) -> None:
        """Start the cluster of ``local:N`` or of a queue; leave any other as it is. Raises OptionError and RescoreError."""
        name, _, rest = self._where.partition(":")
        if name != "local" and name not in QUEUES:
            return
        try:
            workers = int(WORKERS.read(rest))
        except OptionError as error:
            raise OptionError(f"--cluster {self.name}: {error}, as in {name}:4") from None
        if name == "local":
            from distributed import LocalCluster

            try:
                self._started = await LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL, asynchronous=True,
                )  # fmt: skip
            except (RuntimeError, OSError) as error:
                raise RescoreError(f"--cluster {self.name}: its workers did not start ({first_line(error)})") from None
            return
        import dask_jobqueue

        try:
            self._started = await getattr(dask_jobqueue, QUEUES[name])(asynchronous=True)
            self._started.scale(jobs=workers)
        except Exception as error:  # of dask-jobqueue, or of the queue's own command
            raise RescoreError(
                f"--cluster {self.name}: {first_line(error)}; its settings are in ~/.config/dask/jobqueue.yaml"
            ) from None

    async def connect(self, timeout: float) -> Client:
        """Return a client of the scheduler. Raises OptionError for what is no place, RescoreError if no scheduler answers."""
        from distributed import Client

        scheme, _, rest = self._where.partition(":")
        if self._started is not None:
            to: dict[str, Any] = {"address": self._started}
        elif scheme == "file":
            if not os.path.exists(rest):
                raise RescoreError(f"--cluster {self.name}: no such file; start dask scheduler with it as --scheduler-file")
            to = {"scheduler_file": rest}
        elif "://" in self._where:
            to = {"address": self._where}
        else:
            raise OptionError(f"--cluster {self.name}: is none of {PLACES}")
        try:
            return await Client(**to, asynchronous=True, set_as_default=False, timeout=timeout, name="phrase-rescore")  # type: ignore[no-untyped-call,no-any-return]
        except (OSError, ValueError, ImportError, TypeError) as error:
            raise RescoreError(f"--cluster {self.name}: no scheduler answers there ({first_line(error)})") from None

    async def close(self) -> None:
        """End the cluster if it was started here."""
        if self._started is not None:
            await self._started.close()


@contextlib.contextmanager
def dask_ready(where: str) -> Iterator[None]:
    """Ready Dask for a place: quiet, and with no memory of messages. Raises OptionError if it is not installed."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        import dask
        import distributed  # noqa: F401

        if where.partition(":")[0] in QUEUES:
            import dask_jobqueue  # noqa: F401
    except ImportError as error:
        raise OptionError(f"--cluster {printable(where)} needs {error.name}: pip install 'phrase-rescore[cluster]'") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)  # dask_jobqueue puts its own in its place
    # For debugging Dask keeps its last thousand messages to everyone, which here are blocks, and samples the workers' stacks
    for_debugging = {"distributed.admin.low-level-log-length": 0, "distributed.worker.profile.enabled": False}
    with _quiet(), dask.config.set(for_debugging):
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from reporting lost connections, over many lines each: what matters of them is told by the executor."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.scheduler")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
