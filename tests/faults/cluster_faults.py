"""Faults at random on a cluster: no row may be lost, and the output has the bytes of a local run.

usage: cluster_faults.py [--faults 200] [--seed 1]

Each run is an annotation by some workers, to which one thing happens after a random block: to a worker, to the scheduler, to
the line between client and scheduler or between scheduler and a worker, or to the client, which then goes on with --resume.
What came too late to happen is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from dask_harness import Cluster, Line, broken_copy, wait_for
from small_models import small_checkpoint

from phrase_rescore import annotate
from phrase_rescore.rnn.checkpoint import save

ROWS, BLOCK, DELAY = 400, 10, 0.05
OF_A_WORKER = ("killed", "exits", "hung", "memory", "disk", "slow")
OF_A_NEWCOMER = {  # of a worker that comes to those that work: its settings, and what the client says of it
    "no model": ({}, "sending"),
    "broken model": ({"BROKEN": "broken"}, "another model"),
    "full disk": ({"FILE_LIMIT": "1000"}, "cannot keep the model"),
    "fails always": ({"ALWAYS": "memory", "HIDDEN": ""}, "left out"),
}
SWELLS, ITS_LINE = "killed by its nanny", "line of a worker cut"  # a newcomer again, of which the client says nothing
KINDS = (*OF_A_WORKER, *OF_A_NEWCOMER, SWELLS, ITS_LINE, "scheduler restarted", "line cut", "client killed")


class Bench:
    """A table, a model, a broken copy of it, and a cluster that stands as long as it can."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.table, self.model = folder, folder / "table", folder / "model"
        self.table.write_bytes(
            b"".join(b"s1 s%d ||| t2 t%d ||| 0.5 0.25 ||| 0-0 1-1 ||| 4 2 1\n" % (i // 3 % 12, i % 14) for i in range(ROWS))
        )
        self.model.mkdir()
        save(small_checkpoint(), str(self.model))
        broken_copy(self.model, folder / "broken")
        annotate(self.table, self.model, folder / "expected", block_rows=BLOCK, jobs=1)
        self.expected = (folder / "expected").read_bytes()
        self.cluster = Cluster(folder / "dask")
        self.line = Line(self.cluster.port)
        self.lost = self.changed = 0
        self.swells = folder / "swells"
        self.swells.mkdir()

    def ready(self) -> None:
        while len(self.cluster.living()) < 3:
            self.cluster.add_worker(DELAY=DELAY)

    def run(self, kind: str, after: int) -> bool:
        """Let a fault happen in an annotation. Tell whether it was there in time."""
        self.ready()
        out, told = self.folder / "out", list[str]()
        if kind in OF_A_NEWCOMER:
            settings = {"HIDDEN": self.model, "DELAY": DELAY} | OF_A_NEWCOMER[kind][0]
            if "BROKEN" in settings:
                settings["BROKEN"] = self.folder / settings["BROKEN"]
            self.cluster.wait_for_worker(self.cluster.add_worker(**settings))
        if kind == "client killed" and not self._kill_client(out, after):
            return False
        its_line = Line(self.cluster.port) if kind == ITS_LINE else self.line
        faults = {"scheduler restarted": self._restart, "line cut": self.line.cut, ITS_LINE: its_line.cut}
        if kind == ITS_LINE:
            self.cluster.wait_for_worker(self.cluster.add_worker(by=f"tcp://127.0.0.1:{its_line.port}", DELAY=DELAY))
        if kind == SWELLS:
            (self.swells / "swells").touch()
            self.cluster.wait_for_worker(self.cluster.add_worker(memory="1GB", TROUBLES=self.swells, DELAY=DELAY))
        fault = faults.get(kind) or (lambda: self.cluster.trouble(kind) if kind in OF_A_WORKER else None)
        where = f"tcp://127.0.0.1:{self.line.port}" if kind == "line cut" else self.cluster.address
        blocks = 0

        def on_block(statistics: object) -> None:
            nonlocal blocks
            blocks += 1
            if blocks == after:
                threading.Thread(target=fault).start()

        annotate(
            self.table, self.model, out, block_rows=BLOCK, cluster=where, on_block=on_block, tell=told.append,
            resume=kind == "client killed",
        )  # fmt: skip
        found = out.read_bytes()
        self.lost += ROWS - found.count(b"\n")
        self.changed += found != self.expected
        out.unlink()
        newcomer = self.cluster.workers[-1]
        if kind == ITS_LINE:
            newcomer.wait(30)  # it ends without its scheduler
        if kind == SWELLS:
            newcomer.terminate()  # the nanny, and with it the worker
            newcomer.wait(30)
            happened = not list(self.swells.iterdir())
            (self.swells / "swells").unlink(missing_ok=True)
            return happened
        if kind in OF_A_NEWCOMER:
            newcomer.kill()
        for worker in self.cluster.living():  # one that hangs may stand still for ever
            if Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                worker.kill()
        if kind in OF_A_WORKER:
            late = list(self.cluster.troubles.iterdir())
            for path in late:
                path.unlink()
            return not late
        sign = OF_A_NEWCOMER[kind][1] if kind in OF_A_NEWCOMER else "lost the scheduler"
        return kind in ("client killed", ITS_LINE) or any(sign in line for line in told)

    def _restart(self) -> None:
        self.cluster.restart_scheduler()
        for worker in self.cluster.living():
            worker.kill()
            worker.wait()
        self.ready()

    def _kill_client(self, out: Path, after: int) -> bool:
        """Kill a client on its way. Tell whether it was in time."""
        command = [
            "annotate",
            self.table,
            "-m",
            self.model,
            "-o",
            out,
            "--block-size",
            BLOCK,
            "--cluster",
            self.cluster.address,
        ]
        client = subprocess.Popen([sys.executable, "-m", "phrase_rescore", *map(str, command), "-q"], stderr=subprocess.DEVNULL)
        partial = out.with_name("out.partial")
        wait_for(lambda: client.poll() is not None or (partial.exists() and partial.stat().st_size > 50 * BLOCK * after))
        client.kill()
        client.wait()
        late = out.exists()
        out.unlink(missing_ok=True)
        return not late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, happened = random.Random(options.seed), Counter[str]()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        start = time.monotonic()
        try:
            while (number := sum(happened.values())) < options.faults:
                kind = chance.choice(KINDS)
                happened[kind] += bench.run(kind, chance.randrange(1, 25))
                if bench.lost or bench.changed:
                    sys.exit(f"{kind}, fault {number + 1}: {bench.lost} rows lost, {bench.changed} outputs changed")
                print(f"{number} faults, {time.monotonic() - start:.0f} s, {kind}", file=sys.stderr, flush=True)
        finally:
            bench.cluster.stop()
    for kind in KINDS:
        print(f"{happened[kind]:4} {kind}")
    print(f"{sum(happened.values())} faults: {bench.lost} rows lost, {bench.changed} outputs that differ from a local run's")


if __name__ == "__main__":
    main()
