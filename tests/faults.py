"""Kills `annotate` where it hurts, lets `--resume` go on, and compares every byte with a run that nothing happened to.

usage: faults.py [--table FILE] [--rows 20000] [--block-size 500] [--each 10] [--threads 2]

A fault is one call of the system in the modules that write (``files.atomic``, ``files.resumable``), or of the scorer: the
process gets SIGKILL before it, after it, or, writing, with half of the bytes written. Every run is forked from this process.
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
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from phrase_rescore.annotation import run as annotation
from phrase_rescore.cli import main as command_line
from phrase_rescore.data.vocabulary import count_words, most_frequent
from phrase_rescore.files import atomic, resumable
from phrase_rescore.files.streams import open_input
from phrase_rescore.inference.scorer import Scorer
from phrase_rescore.models.checkpoint import Checkpoint, save
from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder, initialise

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "en-fr" / "phrase-table.20k.gz"
BAD_ROWS = (b"no row\n", b"a ||| b ||| inf\n")  # dropped, so that the second file is there


class Fault(NamedTuple):
    """The process dies at the ``count``-th call (from 1) of ``call``: before, half (of a write) or after it."""

    call: str  # score, write, fsync, replace, unlink, or the sidecar
    when: str
    count: int


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def failing(function: Callable[..., Any], fault: Fault, calls: Counter[str]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        calls[fault.call] += 1
        if calls[fault.call] != fault.count:
            return function(*args)
        if fault.when == "before":
            die()
        if fault.when == "half":
            function(args[0], args[1][: len(args[1]) // 2])
            die()
        function(*args)
        die()

    return call


class System:
    """``os`` with one call that fails."""

    def __init__(self, fault: Fault) -> None:
        self._fault, self.calls = fault, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return failing(found, self._fault, self.calls) if name == self._fault.call else found


def install(fault: Fault) -> None:
    resumable.SECONDS_BETWEEN = 0.0  # an entry of the journal after every block
    if fault.call == "score":
        Scorer.log_probs = failing(Scorer.log_probs, fault, Counter())  # type: ignore[method-assign]
    elif fault.call == "sidecar":
        annotation._write_sidecar = failing(annotation._write_sidecar, fault, Counter())
    else:
        system = System(fault)
        atomic.os = resumable.os = system  # type: ignore[assignment]


def start(args: list[str], errors: Path, prepare: Callable[[], None] = lambda: None, stdout: int = 1) -> int:
    """A command line in a process of its own: its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(stdout, 1)
        prepare()
        command_line(args)
    except SystemExit as done:
        status = done.code if isinstance(done.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing of this program ends in two processes


def run(args: list[str], errors: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """The exit status of a command line, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(start(args, errors, prepare), 0)[1])


def make_inputs(folder: Path, table: Path | None, rows: int) -> None:
    """``table.gz``, with two bad rows in it, and a model of random weights that knows half of its words."""
    if table:
        with open_input(str(table)) as stream:
            lines = list(islice(stream, rows))
    else:
        draw = random.Random(1)
        phrase = lambda side: " ".join(f"{side}{draw.randrange(60)}" for _ in range(draw.randint(1, 4)))  # noqa: E731
        lines = sorted(f"{phrase('s')} ||| {phrase('t')} ||| 0.5 1 ||| 0-0 ||| 1 1 1\n".encode() for _ in range(rows))
    lines[rows // 3 : rows // 3] = BAD_ROWS
    (folder / "table.gz").write_bytes(gzip.compress(b"".join(lines), 1))
    sides = ([line.split(b" ||| ")[side] for line in lines if b" ||| " in line] for side in (0, 1))
    vocabs = [most_frequent(counts, max(10, len(counts) // 2))[0] for counts in map(count_words, sides)]
    model = RNNEncoderDecoder(ModelConfig(*map(len, vocabs), hidden=32, embedding=16, maxout=16, rank=16))
    initialise(model, 1, paper=False)
    (folder / "model").mkdir()
    save(Checkpoint(model, vocabs[0], vocabs[1], (0.5, 0.5), {}), str(folder / "model"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Bench:
    """A folder to annotate in, and what an undisturbed run leaves there."""

    def __init__(self, folder: Path, block_size: int, jobs: int) -> None:
        self.folder, self.out, self.errors = folder, folder / "out", folder / "errors"
        self.args = [
            "annotate", str(folder / "table.gz"), "-m", str(folder / "model"), "-o", str(self.out / "out.gz"), "--on-bad-row",
            "drop", "--block-size", str(block_size), "--jobs", str(jobs), "--resume",
        ]  # fmt: skip
        self.fresh()
        assert run(self.args, self.errors) == 0, self.errors.read_text()
        self.expected = contents(self.out)
        assert sorted(self.expected) == ["out.gz", "out.gz.columns.json", "out.gz.dropped"], sorted(self.expected)
        self.blocks = self.errors.read_text() and -(-int(gzip.decompress(self.expected["out.gz"]).count(b"\n")) // block_size)

    def fresh(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()

    def killed(self, fault: Fault) -> bool:
        """Whether the process died of the fault; else it has ended well."""
        status = run(self.args, self.errors, lambda: install(fault))
        assert status in (0, -signal.SIGKILL), self.errors.read_text()
        return status != 0

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


def kills(bench: Bench, each: int) -> list[tuple[str, int, str]]:
    """Faults by kind: how many there were and how they ended."""
    draw = random.Random(5)
    inside = lambda n: sorted(draw.sample(range(2, bench.blocks), min(n, bench.blocks - 2)))  # noqa: E731
    last = (("fsync", 0), ("fsync", 1), ("fsync", 2), ("replace", 0), ("replace", 1))  # counted from the end of a run
    of_final = [
        *(Fault(call, when, -back) for call, back in last for when in ("before", "after")),
        Fault("unlink", "before", 0), Fault("unlink", "after", 0), Fault("sidecar", "before", 1), Fault("sidecar", "after", 1),
    ]  # fmt: skip
    kinds: dict[str, list[Fault]] = {
        "scoring a block": [Fault("score", draw.choice(("before", "after")), k) for k in inside(each)],
        "writing a block": [Fault("write", draw.choice(("before", "half", "after")), k) for k in inside(each)],
        "journal: sync": [Fault("fsync", draw.choice(("before", "after")), k) for k in inside(each)],
        "journal: its name": [Fault("replace", draw.choice(("before", "after")), k) for k in inside(each)],
        "final names": [counted_from_the_end(bench, fault) for fault in of_final],
    }
    results = []
    for kind, faults in kinds.items():
        outcomes = Counter[str]()
        for i, fault in enumerate(faults):
            bench.fresh()
            if not bench.killed(fault):
                outcomes[f"{fault} was not reached"] += 1
                continue
            if i % 3 == 2:  # once more, on the way
                bench.killed(Fault("write", "half", 2))
            outcomes[bench.goes_on()] += 1
        results.append((kind, sum(outcomes.values()), ", ".join(outcomes)))
    return results


_counts: Counter[str] = Counter()


def counted_from_the_end(bench: Bench, fault: Fault) -> Fault:
    """The fault with its place from the beginning; 0 and below are the last call, the one before it, …"""
    if fault.count > 0:
        return fault
    if fault.call not in _counts:  # the first place that is not reached
        low, high = 1, 2
        reached = lambda n: bench.fresh() or bench.killed(Fault(fault.call, "before", n))  # noqa: E731
        while reached(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if reached(middle) else (low, middle)
        _counts[fault.call] = low
    return fault._replace(count=_counts[fault.call] + fault.count)


def full_disks(bench: Bench, times: int) -> tuple[str, int, str]:
    """A process that may write no larger files than so: its error is that of the disk's end."""
    outcomes = Counter[str]()
    size = len(bench.expected["out.gz"])
    for i in range(1, times + 1):
        limit = size * i // (times + 1)

        def limited(limit: int = limit) -> None:
            save_always()
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


def save_always() -> None:
    resumable.SECONDS_BETWEEN = 0.0


def signals(bench: Bench, times: int) -> tuple[str, int, str]:
    """SIGINT and SIGTERM in turn, while it writes; how long it takes them at most."""
    outcomes, longest = Counter[str](), 0.0

    def at_a_terminal() -> None:  # a shell lets what it starts in the background ignore SIGINT
        save_always()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    for i in range(times):
        number, name, status_wanted = ((signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143))[i % 2]
        bench.fresh()
        pid = start(bench.args, bench.errors, at_a_terminal)
        journal = bench.out / "out.gz.partial.json"
        while not journal.exists():
            time.sleep(0.002)
        sent = time.monotonic()
        os.kill(pid, number)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        longest = max(longest, time.monotonic() - sent)
        told = bench.errors.read_text()
        if status != status_wanted or f"phrase-rescore: {name}\n" not in told or "--resume goes on" not in told:
            outcomes[f"status {status}: {told}"] += 1
        else:
            outcomes[bench.goes_on()] += 1
    return f"SIGINT, SIGTERM (ended within {longest:.1f} s)", times, ", ".join(outcomes)


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
            pid = start(command, bench.errors, functools.partial(os.close, reader), writer)
            os.close(writer)
            read = b""
            while len(read) < wanted and (data := os.read(reader, 1 << 13)):
                read += data
                time.sleep(0.001 if outcomes is slow else 0.0)
            os.close(reader)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, None if options.invented else options.table, options.rows)
        bench = Bench(folder, options.block_size, options.jobs)
        results = kills(bench, options.each)
        results += [full_disks(bench, options.each), signals(bench, options.each), *pipes(bench, options.each)]
    for kind, times, outcome in results:
        print(f"{kind:48s}{times:5d}  {outcome}")
    if any(outcome not in ("identical", "as it should be") for _, _, outcome in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
