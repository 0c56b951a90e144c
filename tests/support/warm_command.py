"""A ``python`` and a ``phrase-rescore`` that start in milliseconds: forked from a process that has loaded everything.

What they inherit is their caller's: arguments, environment, current directory, every open file, the largest size of a file;
and the caller ends as they do.
As a program this is that process (``warm_command.py serve SOCKET``) or a caller (``warm_command.py call SOCKET ARGUMENTS``,
these as Python takes them: ``-m MODULE …``, ``-c CODE …``, ``SCRIPT …``).
"""

import json
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

MESSAGE = 1 << 17  # bytes; larger than a command line and an environment
OUT_OF_THE_WAY = 1000  # numbers of files from here on
# Memory in huge pages where the system has them: a fork copies a table of pages, which is then a fifth of the work
QUICK_TO_FORK = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class WarmCommand:
    """Starts the process. ``folder``, put first on a PATH, has the commands that are forked from it."""

    def __init__(self, folder: Path) -> None:
        import subprocess

        self.folder = folder
        here, path = f'"{sys.executable}" -I -S "{__file__}"', folder / "socket"
        for name, arguments in (("python", ""), ("phrase-rescore", "-m phrase_rescore")):
            (folder / name).write_text(f'#!/bin/sh\nexec {here} call "{path}" {arguments} "$@"\n')
            (folder / name).chmod(0o755)
        command = [sys.executable, "-W", "ignore", __file__, "serve", str(path)]
        env = {**os.environ, **QUICK_TO_FORK, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def call(path: str, args: list[str]) -> int:
    """Let the command line run with what this process has; end as it does."""
    open_files = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # that of the listing is closed
            os.fstat(number)
            open_files.append(number)
    umask, limit = os.umask(0), resource.getrlimit(resource.RLIMIT_FSIZE)
    request = {
        "args": args, "cwd": os.getcwd(), "env": dict(os.environ), "umask": umask, "files": open_files, "limit": limit,
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], open_files)
        status = int(connection.recv(16))
    if status < 0:
        with suppress(OSError):  # SIGKILL has no other
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def serve(path: str) -> None:
    """Fork a process for every call, which forks the command; return in the command."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(64)
    os.write(1, b"ready\n")
    while True:
        connection, _ = listener.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not os.fork():
            break
        connection.close()
    listener.detach()
    message, files, _, _ = socket.recv_fds(connection, MESSAGE, 253)
    request = json.loads(message)
    pid = os.fork()
    if not pid:
        connection.detach()
        _become(request, files)
        return
    for number in files:
        os.close(number)
    watched, ended = select.poll(), os.pidfd_open(pid)
    watched.register(ended, select.POLLIN)
    watched.register(connection, select.POLLIN)
    if ended not in dict(watched.poll()):  # the caller was killed
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        connection.send(str(status).encode())
    os._exit(0)


def _become(request: dict, files: list[int]) -> None:  # type: ignore[type-arg]
    """Make this process the one that was called."""
    import fcntl
    import tempfile

    kept = [fcntl.fcntl(number, fcntl.F_DUPFD, OUT_OF_THE_WAY) for number in files]
    os.closerange(0, OUT_OF_THE_WAY)
    for source, number in zip(kept, request["files"], strict=True):
        os.dup2(source, number)
        os.close(source)
    for number, stream in enumerate(("stdin", "stdout", "stderr")):
        if number not in request["files"]:
            setattr(sys, stream, None)
    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(request["limit"]))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    tempfile.tempdir = None  # may have been found already
    if "dask" in sys.modules:  # its settings come from the environment
        sys.modules["dask"].config.refresh()
    sys.path[0] = ""  # was the folder of this file
    sys.path[1:1] = filter(None, request["env"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = request["args"]


def _run() -> int:
    """Do what the arguments say, as the interpreter would."""
    import runpy

    what, *args = sys.argv
    try:
        if what == "-m":
            sys.argv = args
            runpy.run_module(args[0], run_name="__main__", alter_sys=True)
        elif what == "-c":
            sys.argv = ["-c", *args[1:]]
            exec(args[0], {"__name__": "__main__"})
        else:
            sys.path[0] = os.path.dirname(what)
            runpy.run_path(what, run_name="__main__")
    except SystemExit as done:
        if isinstance(done.code, str):
            print(done.code, file=sys.stderr)
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> None:
    """End as the interpreter does, but for taking everything apart that was loaded, which takes seconds."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(status)


def _load_everything() -> None:
    """Import what the commands import when they run."""
    import importlib
    import pkgutil

    import phrase_rescore

    modules = [module.name for module in pkgutil.walk_packages(phrase_rescore.__path__, "phrase_rescore.")]
    heavy = ["torch._dynamo", "torch.distributed.run", "sacrebleu", "sacremoses", "altair", "vl_convert", "openTSNE"]
    for name in [*(name for name in modules if not name.endswith("__main__")), *heavy]:
        importlib.import_module(name)
    with suppress(ImportError):  # not installed
        for name in ("dask.__main__", "distributed.cli.dask_worker", "distributed.cli.dask_scheduler"):
            importlib.import_module(name)


if __name__ == "__main__":
    if sys.argv[1] == "call":
        sys.exit(call(sys.argv[2], sys.argv[3:]))
    import atexit
    import gc
    import threading
    import traceback

    _load_everything()
    gc.freeze()  # a collection would copy the memory that the processes share
    serve(sys.argv[2])
    _end(_run())
