"""Faults at random on a cluster: no row may be lost, and the output has the bytes of a local run.

usage: cluster_faults.py [--faults 60] [--seed 1]

Each run is an annotation by some workers, to which one thing happens after a random block: to a worker, to the line between a
worker and the scheduler, or to the client or the scheduler, after which --resume continues. What came too late to happen is not
counted.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from dask_harness import Cluster, Line
from small_models import small_checkpoint

from phrase_rescore import RescoreError, annotate
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.rnn.checkpoint import save

ROWS, BLOCK, DELAY = 400, 10, 0.05
OF_A_WORKER = ("killed", "exits", "hung", "memory", "disk", "slow")
CLIENT_STOPPED, SCHEDULER_KILLED = "client stopped", "scheduler killed"  # what ends the run; --resume continues
KINDS = (*OF_A_WORKER, "killed by its nanny", "line cut", CLIENT_STOPPED, SCHEDULER_KILLED)


class Stopped(Exception):
    """Ends a client on its way."""


class Bench:
    """A table, a model, and a cluster that stands as long as it can."""

    def __init__(self, folder: Path) -> None:
        self.table, self.model, self.out = (folder / name for name in ("table", "model", "out"))
        self.table.write_bytes(
            b"".join(b"s1 s%d ||| t2 t%d ||| 0.5 0.25 ||| 0-0 1-1 ||| 4 2 1\n" % (i // 3 % 12, i % 14) for i in range(ROWS))
        )
        self.model.mkdir()
        save(small_checkpoint(), str(self.model))
        annotate(self.table, self.model, folder / "expected", block_rows=BLOCK, jobs=1)
        self.expected = (folder / "expected").read_bytes()
        self.cluster, self.swells = Cluster(folder / "dask"), folder / "swells"
        self.swells.mkdir()

    def annotate(self, kind: str, after: int) -> bool:
        """Let a fault happen in an annotation. Return whether it was there in time."""
        cluster, settings, happened = self.cluster, dict[str, object](DELAY=DELAY), False
        line = Line(cluster.port)
        while len(cluster.living()) < 3:
            cluster.wait_for_worker(cluster.add_worker(**settings))
        if kind == "line cut":
            cluster.wait_for_worker(cluster.add_worker(by=f"tcp://127.0.0.1:{line.port}", **settings))
        if kind == "killed by its nanny":
            cluster.wait_for_worker(cluster.add_worker(memory="1GB", TROUBLES=self.swells, **settings))

        faults = {"line cut": line.cut, SCHEDULER_KILLED: cluster.scheduler.kill}
        faults["killed by its nanny"] = (self.swells / "swells").touch
        fault = (lambda: cluster.trouble(kind)) if kind in OF_A_WORKER else faults.get(kind)
        blocks = 0

        def on_block(statistics: object) -> None:
            nonlocal blocks, happened
            blocks += 1
            if blocks == after:
                happened = True
                if kind == CLIENT_STOPPED:
                    raise Stopped
                threading.Thread(target=fault).start()

        observer = AnnotateObserver(on_block=on_block)
        options = {"block_rows": BLOCK, "cluster": cluster.address, "observer": observer}
        try:
            annotate(self.table, self.model, self.out, **options)
        except (Stopped, RescoreError) as error:
            if kind != CLIENT_STOPPED and not (kind == SCHEDULER_KILLED and "continue with --resume" in str(error)):
                raise
            if kind == SCHEDULER_KILLED:
                cluster.restart_scheduler()
                cluster.end_workers()
                cluster.add_worker(DELAY=DELAY)
            annotate(self.table, self.model, self.out, resume=True, **options)
        late = [*cluster.troubles.iterdir(), *self.swells.iterdir()]
        for path in late:
            path.unlink()
        if kind in ("hung", "killed by its nanny"):  # one that hangs may stand still for ever
            cluster.end_workers()
        return happened and not late


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, happened, start = random.Random(options.seed), Counter[str](), time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            while happened.total() < options.faults:
                kind = chance.choice(KINDS)
                happened[kind] += bench.annotate(kind, chance.randrange(1, 25))
                found = bench.out.read_bytes()
                if found != bench.expected:
                    lost = ROWS - found.count(b"\n")
                    sys.exit(f"{kind}, fault {happened.total()}: {lost} rows lost, and the output is not a local run's")
                bench.out.unlink()
                print(f"{happened.total()} faults, {time.monotonic() - start:.0f} s, {kind}", file=sys.stderr, flush=True)
        finally:
            bench.cluster.stop()
    for kind in KINDS:
        print(f"{happened[kind]:4} {kind}")
    print(f"{happened.total()} faults: no row lost, every output as a local run's")


if __name__ == "__main__":
    main()
