"""Command lines in processes of their own that start in milliseconds: forked from one that has loaded everything.

As a program (``python warm_process.py SCRIPT``) it is that process: it reads a request a line, JSON, and answers with a line.
SCRIPT has the one of the pages, which takes seconds to make, and makes threads that are lost in a fork.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from warm_command import QUICK_TO_FORK

if __name__ != "__main__":  # the client needs neither torch nor the package
    disturbed: Any = None
else:
    import gc
    import resource
    import signal
    import socket

    import disturbed
    import system_calls

    from phrase_rescore.report import page


class Done(NamedTuple):
    """How a command line ended; the status is negative for a signal, 99 if it had to be killed."""

    status: int
    out: bytes
    err: str


class WarmProcess:
    """Runs command lines. ``script`` is the file SCRIPT, ``environment`` that of the process, set before ``python`` starts."""

    def __init__(
        self, folder: Path, script: Path, environment: Mapping[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self._folder = folder
        command = [python, __file__, str(script)]
        env = {**os.environ, **QUICK_TO_FORK, "PYTHONWARNINGS": "ignore", **(environment or {})}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    def run(
        self, *args: object, stdin: bytes = b"", stdout: str | None = "", stderr: str | None = "", cwd: Path | None = None,
        most: int | None = None, swap: Sequence[object] = (),
    ) -> Done:  # fmt: skip
        """Run a command line. Of ``stdout`` and ``stderr``, a name is that of a file to write, None closes it.

        ``stdout`` may be ``|``: a pipe whose reader has gone, or ``| head``: one whose reader goes after the first bytes.
        ``most``: the largest file that may be written, in bytes.
        ``swap``: the path of a directory, what is to take its place, and before which opening of a file in it.
        """
        out, err, given = (self._folder / name for name in ("stdout", "stderr", "stdin"))
        given.write_bytes(stdin)
        request = {
            "args": [str(arg) for arg in args], "cwd": str(cwd or self._folder), "stdin": str(given),
            "stdout": str(out) if stdout == "" else stdout, "stderr": str(err) if stderr == "" else stderr,
            "most": most, "swap": [str(part) for part in swap],
        }  # fmt: skip
        for path in (out, err):
            path.unlink(missing_ok=True)
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        read = [path.read_bytes() if path.exists() else b"" for path in (out, err)]
        return Done(status, read[0], read[1].decode("utf-8", "backslashreplace"))

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _enter(request: dict[str, Any], pipe: tuple[int, int] | None) -> None:
    """Make this process one as the request wants it."""
    os.chdir(request["cwd"])
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        to = request[stream]
        if to is None:
            os.close(number)
            setattr(sys, stream, None)
        elif to.startswith("|"):
            assert pipe
            os.close(pipe[0])
            os.dup2(pipe[1], number)
        else:
            os.dup2(os.open(to, os.O_WRONLY | os.O_CREAT, 0o666), number)
    if request["most"] is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["most"], request["most"]))


def _serve(request: dict[str, Any]) -> int:
    piped = str(request["stdout"]).startswith("|")
    pipe = os.pipe() if piped else None
    if pipe and request["stdout"] == "|":
        gone, kept = os.pipe()
        os.close(gone)
        os.close(pipe[1])
        pipe = pipe[0], kept
    channel = socket.socketpair() if request["swap"] else None

    def prepare() -> None:
        _enter(request, pipe)
        if channel:
            system_calls.hand_over(channel[1])

    errors = Path("/dev/null")
    pid = disturbed.start(request["args"], errors, prepare)
    if pipe:
        os.close(pipe[1])
        if request["stdout"] == "| head":
            os.read(pipe[0], 1)
        os.close(pipe[0])
    if channel:
        channel[1].close()
        path, other, when = request["swap"]
        system_calls.supervise(pid, channel[0], _Swap(path, other, int(when)), 60)
        channel[0].close()
    return disturbed.wait(pid, errors).status


class _Swap:
    """Puts a directory in another's place before the ``when``-th opening of a file in it."""

    def __init__(self, path: str, other: str, when: int) -> None:
        self._path, self._other, self._left = path, other, when

    def __call__(self, call: system_calls.Call) -> None:
        if call.name == "open" and call.path.startswith(f"{self._path}/"):
            self._left -= 1
            if self._left == 0:
                os.rename(self._path, f"{self._path}.before")
                os.rename(self._other, self._path)


def load_everything() -> None:
    """Import what the commands import when they run."""
    import importlib
    import pkgutil

    import phrase_rescore

    for module in pkgutil.walk_packages(phrase_rescore.__path__, "phrase_rescore."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("torch._dynamo", "sacrebleu", "sacremoses", "altair", "vl_convert", "openTSNE"):
        importlib.import_module(name)


if __name__ == "__main__":
    load_everything()
    script = Path(sys.argv[1]).read_text("utf-8")
    page._script = lambda: script
    gc.freeze()  # a collection would copy the memory that the processes share
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        answers.write(f"{_serve(json.loads(line))}\n")
        answers.flush()
