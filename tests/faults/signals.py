"""Sends a signal at every line of the package that long commands come by, goes on, and compares every byte.

usage: signals.py [--sample N] [--jobs 2] [--only NAME] [--at FILE:LINE]

A point is a line of a file of the package, at its first and at its last passing, in whatever thread. SIGINT and SIGTERM meet
the handlers of the command line; SIGKILL ends the process there. Every run is a process forked from this one.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from disturbed import HANGS, IDENTICAL, PACKAGE, Job, jobs, write_inputs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
COMMANDS = ("annotate", "train", "train --overwrite", "train-lm", "train-nmt", "rescore", "tune", "evaluate", "generate")
ROWS = 40
# How a process may end: by the signal's exit status; by the signal itself, before the command line begins or when it is over;
# or well, when nothing is left to be done
STATUSES = {
    signal.SIGINT: (130, -signal.SIGINT, 0),
    signal.SIGTERM: (143, -signal.SIGTERM, -signal.SIGINT, 0),
    signal.SIGKILL: (-signal.SIGKILL, 0),
}


class Line(NamedTuple):
    """A line of the package at its ``time``-th passing, from 1."""

    file: str
    number: int
    time: int

    def __str__(self) -> str:
        return f"{self.file.removeprefix(PACKAGE)}:{self.number} ({self.time})"


class Tracer:
    """Counts the lines of the package in all threads, and acts at one of them."""

    def __init__(self, wanted: Line | None = None, act: Callable[[], None] = lambda: None) -> None:
        self.passed = Counter[tuple[str, int]]()
        self._wanted, self._act = wanted, act

    def start(self) -> None:
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def stop(self) -> None:
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._on_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            here = frame.f_code.co_filename, frame.f_lineno
            self.passed[here] += 1
            if self._wanted and here == self._wanted[:2] and self.passed[here] == self._wanted.time:
                self._wanted = None
                self.stop()
                self._act()
        return self._on_line


def lines_of(job: Job) -> list[Line]:
    """Return the first and the last passing of every line of a run."""
    tracer = Tracer()

    def passed() -> list[tuple[str, int, int]]:
        tracer.stop()
        return [(*line, times) for line, times in tracer.passed.items()]

    return [Line(file, number, time) for file, number, times in job.noted(tracer.start, passed) for time in sorted({1, times})]


def outcome(job: Job, line: Line, number: signal.Signals) -> tuple[int, str]:
    """Send the signal there, and go on; return the exit status, and ``identical`` or what is wrong."""
    job.fresh()
    ended = job.run(prepare=Tracer(line, lambda: os.kill(os.getpid(), number)).start)
    if ended.status not in (*STATUSES[number], HANGS):
        return ended.status, f"status {ended.status}: {ended.last_line}"
    return ended.status, ended.breakdown or job.goes_on()


def share_of(folder: Path, name: str, points: list[tuple[Line, signal.Signals]], share: int) -> tuple[Counter[str], list[str]]:
    """Try points in a folder of its own; count how the processes ended, and return what is wrong."""
    job = next(job for job in jobs(folder, folder / str(share), ROWS) if job.name == name)
    job.learn()
    statuses, wrong = Counter[str](), []
    for line, number in points:
        status, found = outcome(job, line, number)
        statuses[f"{number.name} {status}"] += 1
        if status == 0 and number != signal.SIGKILL:
            print(f"{job.name}, {number.name} at {line}: ended well", flush=True)
        if found != IDENTICAL:
            wrong.append(f"{job.name}, {number.name} at {line}: {found}")
            print(wrong[-1], file=sys.stderr, flush=True)
    return statuses, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="so many points, drawn with a fixed seed  [default: all]")
    parser.add_argument("--jobs", type=int, default=2, help="processes that try points")
    parser.add_argument("--only", choices=COMMANDS, help="this command alone")
    parser.add_argument("--at", help="FILE:LINE within the package alone")
    options = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, ROWS)
        points = []
        for job in jobs(folder, folder / "all", ROWS):
            if job.name in ([options.only] if options.only else COMMANDS):
                job.learn(here=True)
                points += [(job.name, line, number) for line in lines_of(job) for number in SIGNALS]
        if options.at:
            points = [point for point in points if str(point[1]).startswith(f"{options.at} ")]
        if options.sample:
            points = random.Random(1).sample(points, options.sample)
        for command in dict.fromkeys(point[0] for point in points):
            chosen = [(line, number) for name, line, number in points if name == command]
            with get_context("fork").Pool(options.jobs) as pool:
                shares = [(folder, command, chosen[i :: options.jobs], i) for i in range(options.jobs)]
                found = pool.starmap(share_of, shares)
            statuses = sum((statuses for statuses, _ in found), Counter[str]())
            wrong += [line for _, lines in found for line in lines]
            print(f"{command}: {len(chosen)} points; {', '.join(f'{k}: {n}' for k, n in sorted(statuses.items()))}", flush=True)
    print(f"{len(points):,} points, {len(points) - len(wrong):,} identical, {len(wrong):,} not")
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
