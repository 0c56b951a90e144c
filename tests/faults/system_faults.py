"""A thousand faults of the system in runs of commands: each must end well, or clearly and with nothing altered, and go on.

usage: system_faults.py [--times 1000] [--only COMMAND] [--kind KIND]

A fault is a system call that fails, whoever makes it (``system_calls``), a SIGKILL before, in or after one that changes a file,
a clock that goes backwards, or memory that runs out at a line of the package. Which call it is, and whether those after it
fail too, is drawn with a fixed seed.
"""

import argparse
import errno
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from disturbed import IDENTICAL, PACKAGE, Ended, Job, contents, jobs, run_supervised, write_inputs
from system_calls import Call, available

from phrase_rescore.cli.main import main as command_line

SHARES = {
    "annotate": 0.2, "train": 0.1, "train --overwrite": 0.1, "strip": 0.1, "moses-ini": 0.1, "train-lm": 0.1, "train-nmt": 0.1,
    "export-lm": 0.05, "rescore": 0.05, "tune": 0.05, "evaluate": 0.05,
}  # fmt: skip
ROWS = 5000
BEFORE, AFTER, HALF = -1, -2, -3  # when a process is killed: half is in a write


def _on_a_file(call: Call) -> bool:
    return call.arguments[0] != 2 and call.file.startswith("/")


def _interruptible(call: Call) -> bool:
    return call.name in ("read", "write", "open", "sync", "lock", "wait") and call.arguments[0] != 2


CALLS: dict[str, tuple[Callable[[Call], bool], tuple[int, ...]]] = {  # which calls fail, and how (0: half is written)
    "killed": (
        lambda call: call.name in ("rename", "unlink") or (call.name in ("write", "sync") and _on_a_file(call)),
        (BEFORE, AFTER, HALF),
    ),
    "disk full": (lambda call: call.creates or (call.name == "write" and _on_a_file(call)), (errno.ENOSPC,)),
    "writing fails": (lambda call: call.name == "write" and _on_a_file(call), (errno.EIO,)),
    "reading fails": (
        lambda call: (call.name == "read" and _on_a_file(call)) or (call.name == "open" and not call.creates), (errno.EIO,),
    ),
    "short writes": (lambda call: call.name == "write" and _on_a_file(call), (0,)),
    "interrupted calls": (_interruptible, (errno.EINTR,)),
    "fsync fails": (lambda call: call.name == "sync", (errno.EIO,)),
    "rename fails": (lambda call: call.name == "rename", (errno.ENOSPC, errno.EIO, errno.EACCES)),
}  # fmt: skip
KINDS = (*CALLS, "clock goes backwards", "memory runs out")


class Fault(NamedTuple):
    """What goes wrong at the ``first`` occasion, from 1, and if it is ``lasting`` at those after it too."""

    kind: str
    first: int
    lasting: bool
    error: int = 0

    def __str__(self) -> str:
        how = {0: "", BEFORE: " (before)", AFTER: " (after)", HALF: " (half)"}
        error = how[self.error] if self.error in how else f" ({errno.errorcode[self.error]})"
        return f"{self.kind}{error} at {self.first}{' and after' if self.lasting else ''}"


class Occasions:
    """Counts the occasions for a fault of one kind, and tells which of them are struck. Counts alone without a fault."""

    def __init__(self, kind: str, fault: Fault | None = None) -> None:
        self.seen, self.kind, self._fault, self._doomed = 0, kind, fault, False

    def strikes(self) -> bool:
        self.seen += 1
        fault = self._fault
        if fault is None or self.seen < fault.first:
            return False
        if self.seen == fault.first:
            return True
        return fault.lasting and (fault.kind != "interrupted calls" or (self.seen - fault.first) % 2 == 0)  # they are repeated

    def decide(self, call: Call) -> int | None:
        if self._doomed:
            os.kill(call.pid, signal.SIGKILL)
        concerned, _ = CALLS[self.kind]
        if not (concerned(call) and self.strikes() and self._fault):
            return None
        if self.kind != "killed":
            return self._fault.error
        self._doomed = True
        if self._fault.error == BEFORE:
            os.kill(call.pid, signal.SIGKILL)
        return 0 if self._fault.error == HALF and call.name == "write" else None

    def install(self) -> None:
        """Put the faults that are not system calls into this process."""
        if self.kind == "clock goes backwards":
            for name in ("time", "monotonic", "perf_counter", "time_ns"):
                setattr(time, name, self._clock(getattr(time, name), 3600 * (10**9 if name == "time_ns" else 1)))
        elif self.kind == "memory runs out":
            threading.settrace(self._trace)
            sys.settrace(self._trace)

    def _clock(self, clock: Callable[[], Any], back: int) -> Callable[[], Any]:
        return lambda: clock() - back * self.strikes()

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if frame.f_code is command_line.__code__:  # its last lines, when all is done, are in no one's hands
            return None
        if event == "line" and self.strikes():
            self._fault = None
            raise MemoryError
        return self._trace


def run(job: Job, occasions: Occasions) -> Ended:
    """Run a job in a fresh folder with these occasions for faults."""
    job.fresh()
    if occasions.kind in CALLS:
        return run_supervised(job.args, job.errors, occasions.decide)
    return job.run(prepare=occasions.install)


def occasions_of(job: Job, kinds: Iterable[str]) -> dict[str, int]:
    """Count the occasions of each kind in undisturbed runs, one for all that are system calls; moses-ini asks no clock."""
    calls = {kind: Occasions(kind) for kind in kinds if kind in CALLS}

    def count(call: Call) -> None:
        for occasions in calls.values():
            occasions.decide(call)

    job.fresh()
    assert run_supervised(job.args, job.errors, count).status == 0, job.errors.read_text()
    seen = {kind: calls[kind].seen for kind in calls}
    for kind in kinds:
        if kind not in CALLS:
            occasions = Occasions(kind)
            seen[kind] = job.noted(occasions.install, lambda occasions=occasions: occasions.seen)
    return {kind: times for kind, times in seen.items() if times}


def outcome(job: Job, fault: Fault) -> tuple[str, str]:
    """Return how the run ended, and ``identical`` or what is wrong with that or with what is left in the end."""
    ended = run(job, Occasions(fault.kind, fault))
    if ended.status == -signal.SIGKILL and fault.kind == "killed":
        return "killed", job.goes_on()
    if ended.breakdown:
        return "breakdown", ended.breakdown
    if ended.status == 0:
        left = [
            name for name in job.wrong_files() if f"{name.split()[1].partition('/')[0]} cannot be removed" not in ended.told
        ]
        return "ended well", f"status 0 and wrong: {', '.join(left)}" if left else IDENTICAL
    errors = [line for line in ended.told.splitlines() if line.startswith("phrase-rescore: error: ")]
    if ended.status not in (1, 2) or len(errors) != 1:
        return f"status {ended.status}", f"status {ended.status} and {len(errors)} lines of errors: {ended.told}"
    return "clear end", job.goes_on()


def thousand(folder: Path, times: int, only: str | None, kind: str | None) -> list[str]:
    """Try the faults; print how the runs of each command ended, and return what is wrong."""
    inputs = folder / "inputs"
    inputs.mkdir()
    write_inputs(inputs, ROWS)
    before = contents(inputs)
    draw, wrong = random.Random(1), []
    for job in jobs(inputs, folder / "out", ROWS):
        if only not in (None, job.name) or job.name not in SHARES:
            continue
        job.learn(here=True)
        ends, total = Counter[str](), round(times * SHARES[job.name])
        found_kinds = occasions_of(job, [kind] if kind else KINDS)
        for number, (name, there) in enumerate(found_kinds.items()):
            for i in range(total * (number + 1) // len(found_kinds) - total * number // len(found_kinds)):
                errors = CALLS[name][1] if name in CALLS else (0,)
                fault = Fault(name, draw.randint(1, there), i % 2 == 1 and name != "killed", errors[i % len(errors)])
                end, found = outcome(job, fault)
                ends[end] += 1
                if found != IDENTICAL:
                    wrong.append(f"{job.name}, {fault}: {found}")
        print(f"{job.name}: {', '.join(f'{n} {end}' for end, n in sorted(ends.items()))}", flush=True)
    if contents(inputs) != before:
        wrong.append("an input has changed")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--only", choices=SHARES)
    parser.add_argument("--kind", choices=KINDS)
    options = parser.parse_args()
    if not available():
        sys.exit("system_faults.py needs Linux 5.6 or later on x86_64")
    with tempfile.TemporaryDirectory() as name:
        wrong = thousand(Path(name), options.times, options.only, options.kind)
    print("".join(f"{line}\n" for line in wrong), end="")
    print(f"{options.times:,} faults, {len(wrong):,} with another result")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
