"""A Dask scheduler and workers as a user starts them by hand, and things that happen to them."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
# What a scheduler loads with its first task, deaf to workers for seconds, after which it would take them for lost
WORKER_MODULE = "phrase_rescore.annotation.cluster"
QUICK = {  # so that what is silent is noticed in seconds
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.02)


def broken_copy(model_dir: str | Path, to: Path) -> Path:
    """Copy a model, one bit of its last weight turned."""
    shutil.copytree(model_dir, to)
    (weights,) = to.glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-9] ^= 1
    weights.write_bytes(content)
    return to


class Cluster:
    """A scheduler on this machine and any number of workers, each a process of ``python``."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self.port, self._python = folder, free_port(), python
        self.troubles = folder / "troubles"
        self.troubles.mkdir(parents=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._troubles = 0
        self.start_scheduler()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _start(self, python: str, *command: object, **env: object) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{len(self.processes) + 1}.log", "wb") as log:
            process = subprocess.Popen(
                [python, "-m", "dask", *map(str, command)], stdout=log, stderr=log,
                env={**os.environ, **QUICK, **{name: str(value) for name, value in env.items()}},
            )  # fmt: skip
        self.processes.append(process)
        return process

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            self._python, "scheduler", "--host", "127.0.0.1", "--port", self.port,
            "--dashboard-address", "127.0.0.1:0", "--preload", WORKER_MODULE,
        )  # fmt: skip
        wait_for(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def add_worker(self, threads: int = 1, port: int = 0, **settings: object) -> subprocess.Popen[bytes]:
        """Start a worker that lets trouble happen to it. ``settings`` are as of ``start_worker``."""
        settings = {"TROUBLES": self.troubles, **settings}
        return self.start_worker(HERE / "troubled_worker.py", threads, port, **settings)  # type: ignore[arg-type]

    def start_worker(
        self, preload: Path, threads: int = 1, port: int = 0, *, by: str = "", memory: str = "", **env: object
    ) -> subprocess.Popen[bytes]:
        """Start a worker, which reaches the scheduler at another address if ``by`` names it. With a limit of memory it gets
        one of Dask's nannies, which kills it above that and starts another one, always a process of its own.
        """
        limit = ("--nanny", "--memory-limit", memory) if memory else ("--no-nanny",)
        if memory:
            env["DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE"] = "0.95"
        worker = self._start(
            sys.executable if memory else self._python, "worker", by or self.address, "--nthreads", threads, *limit,
            "--host", "127.0.0.1", "--worker-port", port, "--no-dashboard",
            "--local-directory", self.folder / f"worker{len(self.processes)}", "--preload", preload, **env,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def trouble(self, kind: str) -> None:
        """Let something happen to the worker that takes the next block."""
        self._troubles += 1
        (self.troubles / f"{kind}.{self._troubles}").touch()

    def wait_for_worker(self, worker: subprocess.Popen[bytes]) -> None:
        """Wait until the scheduler knows a worker."""
        log = self.folder / f"{self.processes.index(worker) + 1}.log"
        wait_for(lambda: b"Registered to" in log.read_bytes())

    def restart_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.wait()
        self.start_scheduler()

    def living(self) -> list[subprocess.Popen[bytes]]:
        return [worker for worker in self.workers if worker.poll() is None]

    def end_workers(self) -> None:
        """Kill the workers, also those that are retired and end in a moment."""
        for worker in self.living():
            worker.kill()
            worker.wait()

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes:
            process.wait()


@contextlib.contextmanager
def cluster(folder: Path, workers: int = 2, python: str = sys.executable, **env: object) -> Iterator[Cluster]:
    """Start a scheduler and workers; end them all with the ``with`` block."""
    started = Cluster(folder, python)
    try:
        for _ in range(workers):
            started.add_worker(**env)
        yield started
    finally:
        started.stop()


class Line:
    """A network line to a port of this machine that can be cut: connections to ``port`` are passed on while it stands."""

    def __init__(self, to: int) -> None:
        self._to, self._pairs, self.closed = to, list[tuple[socket.socket, socket.socket]](), False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
                if self.closed:
                    here.close()
                    continue
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                continue
            self._pairs.append((here, there))
            for source, sink in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End all connections; new ones are passed on again."""
        for pair in self._pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()
