"""A preload of ``dask worker`` that lets trouble happen to it: ``dask worker … --preload tests/support/troubled_worker.py``.

Every block first takes a file from the folder TROUBLES, if there is one, and what its name says (NAME.anything) happens. DELAY
is how many seconds a block takes at least. HIDDEN is a folder that this worker cannot see, as on another machine; BROKEN is
what it finds there instead. POISON is the block that it dies of. VERSION is what it has when blocks come, as if it came late.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

from phrase_rescore.annotation import cluster
from phrase_rescore.errors import ModelError

TROUBLES, DELAY = os.environ.get("TROUBLES"), float(os.environ.get("DELAY", "0"))
HIDDEN, BROKEN = os.environ.get("HIDDEN", ""), os.environ.get("BROKEN", "")


def take() -> str:
    """Take a trouble; no other worker gets it."""
    for path in sorted(Path(TROUBLES).iterdir()) if TROUBLES else ():
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        return path.name.split(".")[0]
    return ""


def happen(trouble: str) -> None:
    match trouble:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(1)
        case "hung":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "memory":
            raise MemoryError
        case "disk":
            raise OSError(28, "No space left on device")
        case "swells":  # until its nanny kills it
            kept = []
            while len(kept) < 100:
                kept.append(b"x" * (40 << 20))
                time.sleep(0.05)
        case "slow":
            time.sleep(10 * max(DELAY, 0.02))


class Annotator:
    """The annotator of a block, to which the trouble happens."""

    def __init__(self, annotator: Any) -> None:
        self._annotator = annotator

    def __call__(self, block: Any) -> Any:
        time.sleep(DELAY)
        if os.environ.get("POISON") == str(block.number):
            happen("killed")
        happen(take())
        return self._annotator(block)


true_ready, true_checkpoint_of, true_score = cluster.ready, cluster.checkpoint_of, cluster.score


def checkpoint_of(directory: str) -> Any:
    if HIDDEN and os.path.realpath(directory).startswith(HIDDEN):
        if not BROKEN:
            raise ModelError(f"{directory}: No such file or directory")
        directory = BROKEN
    return true_checkpoint_of(directory)


def score(*args: Any) -> Any:
    cluster.__version__ = os.environ.get("VERSION", cluster.__version__)
    return true_score(*args)


def dask_setup(worker: Any) -> None:
    cluster.score = score
    cluster.checkpoint_of = checkpoint_of
    cluster.ready = lambda given, address: Annotator(true_ready(given, address))
