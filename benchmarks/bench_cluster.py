"""annotate on a Dask cluster: what a block costs client and scheduler, how many workers that serves, and beside local threads.

usage: bench_cluster.py [--rows 1000000] [--scored 40960] [--rounds 3] [--json FILE]

First the client alone, with workers that send blocks back as they are, and its memory as the table goes by. From what that
took, a discrete-event model of 1 to 1,000 workers; it stands beside runs whose workers wait and leave this machine's cores
alone: 50 ms a block, when workers are what limits, and 5 ms, when the client is. Then the same rows scored by local threads and
by as many local workers, in turn; the ratio is the median of the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from dask_harness import Cluster
from inputs import middle_rows, paper_model, table
from phrase_rescore.annotation.executors.cluster import blocks_ahead
from simulate_cluster import Costs, simulate

from phrase_rescore import annotate
from phrase_rescore.annotation.annotator import Statistics
from phrase_rescore.annotation.pipeline import BLOCK_ROWS
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.runtime import usable_cores

ECHO = Path(__file__).with_name("echo_worker.py")
WAITS = (0.05, 0.005)  # seconds a block of workers that wait


def resident_mb() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Run:
    """An annotation on a cluster of workers that echo: rows, seconds, the cost to client and scheduler, memory."""

    def __init__(self, folder: Path, path: Path, model: Path, threads: int, block_rows: int, wait: float) -> None:
        cluster = Cluster(folder / f"{threads}.{block_rows}.{wait}")
        try:
            cluster.start_worker(ECHO, threads, SECONDS_A_BLOCK=wait)
            self._times: list[float] = []
            memory: list[float] = []

            def on_block(statistics: Statistics) -> None:
                self._times.append(time.perf_counter())
                memory.append(resident_mb())

            before = time.process_time(), processor_seconds(cluster.scheduler.pid)
            summary = annotate(
                path, model, folder / "out", cluster=cluster.address, block_rows=block_rows, on_block=on_block,
            )  # fmt: skip
            self.rows = summary.statistics.rows
            self.blocks = len(self._times)
            self.memory = [memory[share * (self.blocks - 1) // 10] for share in (1, 5, 10)]  # after so many tenths
            self.client = (time.process_time() - before[0]) / self.blocks
            self.scheduler = (processor_seconds(cluster.scheduler.pid) - before[1]) / self.blocks
        finally:
            cluster.stop()
        tenth = self.blocks // 10
        self.blocks_a_second = (self.blocks - 1 - tenth) / (self._times[-1] - self._times[tenth])  # without the start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table that is echoed")
    parser.add_argument("--scored", type=int, default=40_960)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        some = table()
        (folder / "model").mkdir()
        save(paper_model(some), str(folder / "model"))
        rows = middle_rows(some, options.scored)
        (folder / "scored").write_bytes(b"".join(row + b"\n" for row in rows))
        with open(folder / "table", "wb") as stream:
            for _ in range(-(-options.rows // len(rows))):
                stream.write((folder / "scored").read_bytes())

        for block_rows in (BLOCK_ROWS, 4 * BLOCK_ROWS):
            echo = Run(folder, folder / "table", folder / "model", usable_cores(), block_rows, 0.0)
            costs = Costs(echo.client / 2, echo.client / 2, echo.scheduler / 2, 0.0)
            print(
                f"echo, blocks of {block_rows} rows: {echo.rows * echo.blocks_a_second / echo.blocks:,.0f} rows/s; of a block, "
                f"the client takes {1e3 * echo.client:.2f} ms, the scheduler {1e3 * echo.scheduler:.2f} ms"
            )
            print(
                f"  the client's memory after 10, 50 and 100 % of the rows: {', '.join(f'{mb:.0f}' for mb in echo.memory)} MB"
            )
            found[f"echo.{block_rows}"] = [echo.rows * echo.blocks_a_second / echo.blocks, echo.client, echo.scheduler]
            found[f"memory.{block_rows}"] = echo.memory
            if block_rows == BLOCK_ROWS:
                of_a_block = costs

        (folder / "short").write_bytes(b"".join((folder / "table").read_bytes().splitlines(keepends=True)[: 300 * BLOCK_ROWS]))
        around = 0.0  # seconds that a worker takes for a block beside its work: what the first run has more than the model
        for wait, workers in itertools.product(WAITS, (1, 2, 4)):
            run = Run(folder, folder / "short", folder / "model", workers, BLOCK_ROWS, wait)
            around = around or 1 / run.blocks_a_second - wait
            costs = Costs(of_a_block.read, of_a_block.write, of_a_block.schedule, wait + around)
            expected = run.blocks / simulate(run.blocks, workers, costs, blocks_ahead(workers)).seconds
            print(
                f"{workers} workers that wait {1e3 * wait:.0f} ms a block: {run.blocks_a_second:.1f} blocks/s; "
                f"the model says {expected:.1f}, {run.blocks_a_second / expected:.2f} of it"
            )
            found[f"waiting.{wait}.{workers}"] = [run.blocks_a_second, expected]

        def seconds_a_block(cluster: str | None) -> float:
            """Return the seconds a block takes, without the start, when the rows are scored."""
            times: list[float] = []
            annotate(
                folder / "scored", folder / "model", folder / "scored.out", cluster=cluster,
                on_block=lambda statistics: times.append(time.perf_counter()),
            )  # fmt: skip
            outputs.add((folder / "scored.out").read_bytes())
            few = max(2 * usable_cores(), len(times) // 10)
            return (times[-1] - times[few]) / (len(times) - 1 - few)

        local, outputs = f"local:{usable_cores()}", set[bytes]()
        rounds = [(seconds_a_block(None), seconds_a_block(local)) for _ in range(options.rounds)]
        ratios = [threads / workers for threads, workers in rounds]
        print(
            f"{local} has {statistics.median(ratios):.2f} of the rows/s of {usable_cores()} threads "
            f"({', '.join(f'{ratio:.2f}' for ratio in ratios)}); same bytes: {len(outputs) == 1}"
        )
        found["local"] = [statistics.median(ratios), len(outputs) == 1]
        a_block = statistics.median(threads for threads, _ in rounds) * usable_cores()
        print(f"a block of {BLOCK_ROWS} rows is scored in {a_block:.2f} s of a core")
        for workers in (10, 100, 1000):
            costs = Costs(of_a_block.read, of_a_block.write, of_a_block.schedule, a_block)
            model = simulate(30 * workers + 300, workers, costs, blocks_ahead(workers))
            rate = (30 * workers + 300) * BLOCK_ROWS / model.seconds
            alike = rate * a_block / BLOCK_ROWS / workers
            print(
                f"model, {workers} cores: {rate:,.0f} rows/s, {alike:.2f} of {workers} single ones; "
                f"busy: client {model.client:.0%}, scheduler {model.scheduler:.0%}, workers {model.workers:.0%}"
            )
            found[f"model.{workers}"] = [rate, model.client, model.scheduler, model.workers]

    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
