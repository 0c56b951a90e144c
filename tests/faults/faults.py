"""Kills `annotate` where it hurts, lets `--resume` go on, and compares every byte with a run that nothing happened to.

usage: faults.py [--table FILE] [--rows 20000] [--block-size 500] [--each 12] [--jobs 1]

A kill is a SIGKILL before or after a system call (``system_calls``) or a block's scoring, or when half of a write is done.
Every run is a process forked from this one. ``system_faults.py`` has what fails without a kill, ``signals.py`` every line.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import gzip
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from disturbed import contents, run_here, run_supervised, start, wait, write_inputs
from system_calls import Call, Failure, available

from phrase_rescore.data.vocabulary import count_words, most_frequent
from phrase_rescore.files.inputs import open_input
from phrase_rescore.rnn.checkpoint import Checkpoint, save
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.scorer import Scorer

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "en-fr" / "phrase-table.20k.gz"
BAD_ROWS = (b"no row\n", b"a ||| b ||| inf\n")  # dropped, so that the second file is there


class Kill(NamedTuple):
    """The process dies at the ``count``-th call (from 1) of a kind: before, half (of a write) or after it."""

    call: str  # score, or a name of ``system_calls``
    when: str
    count: int


class Killer:
    """Counts the calls that change files below a folder, and kills their process at one of them."""

    def __init__(self, folder: Path, kill: Kill | None) -> None:
        self.counts = Counter[str]()
        self._folder, self._kill, self._now = str(folder), kill, False

    def decide(self, call: Call) -> Failure | None:
        if self._now:
            os.kill(call.pid, signal.SIGKILL)
        if call.name not in ("write", "sync", "rename", "unlink") or not self._concerned(call):
            return None
        self.counts[call.name] += 1
        if self._kill and (call.name, self.counts[call.name]) == (self._kill.call, self._kill.count):
            self._now = True  # at the next call, or
            if self._kill.when == "before":
                os.kill(call.pid, signal.SIGKILL)
            elif self._kill.when == "half":
                return Failure()
        return None

    def _concerned(self, call: Call) -> bool:
        return call.name not in ("write", "sync") or call.file.startswith(self._folder)


def kill_scoring(kill: Kill) -> None:
    """Let the scorer of this process die at a block."""
    log_probs, calls = Scorer.log_probs, 0

    def dies(self: Scorer, pairs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == kill.count and kill.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = log_probs(self, pairs)
        if calls == kill.count:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Scorer.log_probs = dies  # type: ignore[method-assign]


def run(args: list[str], errors: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """The exit status of a command line, negative for a signal."""
    return wait(start(args, errors, prepare), errors, 600).status


def make_inputs(folder: Path, table: Path | None, rows: int) -> None:
    """``table.gz``, with two bad rows in it, and a model of random weights that knows half of its words."""
    if table is None:
        write_inputs(folder, rows)
        return
    with open_input(str(table)) as stream:
        lines = list(islice(stream, rows))
    lines[rows // 3 : rows // 3] = BAD_ROWS
    (folder / "table.gz").write_bytes(gzip.compress(b"".join(lines), 1))
    sides = ([line.split(b" ||| ")[side] for line in lines if b" ||| " in line] for side in (0, 1))
    vocabs = [most_frequent(counts, max(10, len(counts) // 2))[0] for counts in map(count_words, sides)]
    model = RNNEncoderDecoder(ModelConfig(*map(len, vocabs), hidden=32, embedding=16, maxout=16, rank=16))
    initialise(model, 1, paper=False)
    (folder / "model").mkdir()
    save(Checkpoint(model, vocabs[0], vocabs[1], (0.5, 0.5), {}), str(folder / "model"))


class Bench:
    """A folder to annotate in, and what an undisturbed run leaves there."""

    def __init__(self, folder: Path, block_size: int, jobs: int) -> None:
        self.folder, self.out, self.errors = folder, folder / "out", folder / "errors"
        self.args = [
            "annotate", str(folder / "table.gz"), "-m", str(folder / "model"), "-o", str(self.out / "out.gz"), "--on-bad-row",
            "drop", "--block-size", str(block_size), "--jobs", str(jobs), "--resume",
        ]  # fmt: skip
        self.fresh()
        run_here(self.args)
        self.fresh()
        self.calls = self.killed(None)
        self.expected = contents(self.out)
        assert sorted(self.expected) == ["out.gz", "out.gz.columns.json", "out.gz.dropped"], sorted(self.expected)
        self.blocks = -(-int(gzip.decompress(self.expected["out.gz"]).count(b"\n")) // block_size)

    def fresh(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def killed(self, kill: Kill | None) -> Counter[str]:
        """Run, to be killed or to end well; return the calls that were counted."""
        if kill and kill.call == "score":
            status = run(self.args, self.errors, lambda: kill_scoring(kill))
            counts = Counter[str]()
        else:
            killer = Killer(self.out, kill)
            status, counts = run_supervised(self.args, self.errors, killer.decide, 600).status, killer.counts
        assert status in (0, -signal.SIGKILL), self.errors.read_text()
        return counts

    def goes_on(self) -> str:
        """Resumes, and compares: ``identical``, or what is wrong."""
        before = set(contents(self.out))
        if "out.gz" in before and contents(self.out)["out.gz"] != self.expected["out.gz"]:
            return "half a table under the final name"
        if run(self.args, self.errors):
            return f"does not resume: {self.errors.read_text().splitlines()[-1]}"
        found = contents(self.out)
        if found == self.expected:
            return "identical"
        return "left or lost: " + ", ".join(
            sorted(k for k in found.keys() | self.expected.keys() if found.get(k) != self.expected.get(k))
        )


def kills(bench: Bench, each: int) -> Iterator[tuple[str, int, str]]:
    """Kills by kind: how many there were and how they ended."""
    draw = random.Random(5)

    def inside(call: str, *when: str) -> list[Kill]:
        places = range(2, bench.blocks if call == "score" else bench.calls[call] - 2)
        return [Kill(call, draw.choice(when), k) for k in sorted(draw.sample(places, min(each, len(places))))]

    last = [
        Kill(call, when, bench.calls[call] - back)
        for call, backs in (("sync", 5), ("rename", 3), ("unlink", 1))
        for back in range(min(backs, bench.calls[call]))
        for when in ("before", "after")
    ]
    kinds = {
        "scoring a block": inside("score", "before", "after"),
        "writing": inside("write", "before", "half", "after"),
        "fsync": inside("sync", "before", "after"),
        "rename": inside("rename", "before", "after"),
        "the last fsyncs, renames and removals": last,
    }
    for kind, chosen in kinds.items():
        outcomes = Counter[str]()
        for i, kill in enumerate(chosen):
            bench.fresh()
            bench.killed(kill)
            if i % 3 == 2:  # once more, on the way
                bench.killed(Kill("write", "half", 2))
            outcomes[bench.goes_on()] += 1
        yield kind, sum(outcomes.values()), ", ".join(outcomes)


def full_disks(bench: Bench, times: int) -> tuple[str, int, str]:
    """A process that may write no larger files than so: its error is that of the disk's end."""
    outcomes = Counter[str]()
    size = len(bench.expected["out.gz"])
    for i in range(1, times + 1):
        limit = size * i // (times + 1)

        def limited(limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        bench.fresh()
        status = run(bench.args, bench.errors, limited)
        told = bench.errors.read_text()
        if status != 1 or "File too large" not in told or "--resume goes on" not in told:
            outcomes[f"status {status}: {told.splitlines()[-1]}"] += 1
        else:
            outcomes[bench.goes_on()] += 1
    return "disk full", times, ", ".join(outcomes)


def signals(bench: Bench, times: int) -> tuple[str, int, str]:
    """SIGINT and SIGTERM in turn, while it writes; how long it takes them at most."""
    outcomes, longest = Counter[str](), 0.0

    for i in range(times):
        number, name, status_wanted = ((signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143))[i % 2]
        bench.fresh()
        pid = start(bench.args, bench.errors, lambda: None)
        journal = bench.out / "out.gz.partial.json"
        while not journal.exists():
            time.sleep(0.002)
        sent = time.monotonic()
        os.kill(pid, number)
        status = wait(pid, bench.errors, 600).status
        longest = max(longest, time.monotonic() - sent)
        told = bench.errors.read_text()
        if status != status_wanted or f"phrase-rescore: {name}\n" not in told or "--resume goes on" not in told:
            outcomes[f"status {status}: {told}"] += 1
        else:
            outcomes[bench.goes_on()] += 1
    return f"SIGINT, SIGTERM (ended within {longest:.1f} s)", times, ", ".join(outcomes)


def only_writes(reader: int, writer: int) -> None:
    """Let this process's standard output be a pipe of which it has one end."""
    os.close(reader)
    os.dup2(writer, 1)
    os.close(writer)


def pipes(bench: Bench, times: int) -> list[tuple[str, int, str]]:
    """Readers of standard output: one that goes away, one that is slow."""
    args = [arg for arg in bench.args if arg != "--resume"]
    args[args.index("-o") + 1] = "-"
    plain = gzip.decompress(bench.expected["out.gz"])
    closed, slow = Counter[str](), Counter[str]()
    for i in range(times):
        for outcomes, wanted in ((closed, 1000 * i), (slow, len(plain))):
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            command = [*args, "--dropped", str(bench.folder / "dropped"), "-q"]
            pid = start(command, bench.errors, functools.partial(only_writes, reader, writer))
            os.close(writer)
            read = b""
            while len(read) < wanted and (data := os.read(reader, 1 << 13)):
                read += data
                time.sleep(0.001 if outcomes is slow else 0.0)
            os.close(reader)
            status = wait(pid, bench.errors, 600).status
            told = "" if outcomes is slow else bench.errors.read_text()
            good = (
                (status == 0 and read == plain) if outcomes is slow else (status == 1 and not told and plain.startswith(read))
            )
            outcomes["as it should be" if good else f"status {status}, {len(read)} bytes, {told!r}"] += 1
    return [("pipe closed by its reader: quiet", times, ", ".join(closed)), ("slow reader", times, ", ".join(slow))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=REAL if REAL.exists() else None, help="[default: invented rows]")
    parser.add_argument("--invented", action="store_true", help="invented rows, though there is a real table")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--block-size", type=int, default=500)
    parser.add_argument("--each", type=int, default=12, help="faults of each kind")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    if not available():
        sys.exit("faults.py needs Linux 5.6 or later on x86_64")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, None if options.invented else options.table, options.rows)
        bench = Bench(folder, options.block_size, options.jobs)
        results = list(kills(bench, options.each))
        results += [full_disks(bench, options.each), signals(bench, options.each), *pipes(bench, options.each)]
    for kind, times, outcome in results:
        print(f"{kind:48s}{times:5d}  {outcome}")
    if any(outcome not in ("identical", "as it should be") for _, _, outcome in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
