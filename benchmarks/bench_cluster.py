"""annotate on a Dask cluster: what a block costs client and scheduler, and how workers compare with local threads.

usage: bench_cluster.py [--rows 1000000] [--scored 40960] [--rounds 3] [--json FILE]

First the client alone, with workers that send blocks back as they are, and its memory as the table goes by. Then rows scored
by local threads and by as many local workers, in turn; the ratio is the median of the rounds.
"""

import argparse
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

from phrase_rescore import annotate
from phrase_rescore.annotation.pipeline import CPU_BLOCK_ROWS
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.runtime import usable_cores

ECHO = Path(__file__).with_name("echo_worker.py")


def resident_mb() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def echo(folder: Path, block_rows: int) -> list[float]:
    """Annotate with workers that echo; return rows a second, seconds a block of client and scheduler, and memory in MB."""
    cluster, times, memory = Cluster(folder / f"dask.{block_rows}"), list[float](), list[float]()

    def on_block(statistics: object) -> None:
        times.append(time.perf_counter())
        memory.append(resident_mb())

    try:
        cluster.start_worker(ECHO, usable_cores())
        before = time.process_time(), processor_seconds(cluster.scheduler.pid)
        summary = annotate(
            folder / "table", folder / "model", folder / "out", cluster=cluster.address, block_rows=block_rows,
            observer=AnnotateObserver(on_block=on_block),
        )  # fmt: skip
        client = (time.process_time() - before[0]) / len(times)
        scheduler = (processor_seconds(cluster.scheduler.pid) - before[1]) / len(times)
    finally:
        cluster.stop()
    tenth = len(times) // 10
    blocks_a_second = (len(times) - 1 - tenth) / (times[-1] - times[tenth])  # without the start
    rows_a_second = summary.statistics.rows * blocks_a_second / len(times)
    after = [memory[share * (len(times) - 1) // 10] for share in (1, 5, 10)]  # so many tenths
    print(
        f"echo, blocks of {block_rows} rows: {rows_a_second:,.0f} rows/s; of a block, the client takes {1e3 * client:.2f} ms, "
        f"the scheduler {1e3 * scheduler:.2f} ms\n"
        f"  the client's memory after 10, 50 and 100 % of the rows: {', '.join(f'{mb:.0f}' for mb in after)} MB"
    )
    return [rows_a_second, client, scheduler, *after]


def seconds_a_block(folder: Path, cluster: str | None) -> float:
    """Return the seconds a block takes, without the start, when the rows are scored."""
    times: list[float] = []
    observer = AnnotateObserver(on_block=lambda statistics: times.append(time.perf_counter()))
    annotate(folder / "scored", folder / "model", folder / "scored.out", cluster=cluster, observer=observer)
    few = max(2 * usable_cores(), len(times) // 10)
    return (times[-1] - times[few]) / (len(times) - 1 - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the table that is echoed")
    parser.add_argument("--scored", type=int, default=40_960)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, some = Path(name), table()
        (folder / "model").mkdir()
        save(paper_model(some), str(folder / "model"))
        rows = middle_rows(some, options.scored)
        (folder / "scored").write_bytes(b"".join(row + b"\n" for row in rows))
        with open(folder / "table", "wb") as stream:
            for _ in range(-(-options.rows // len(rows))):
                stream.write((folder / "scored").read_bytes())
        for block_rows in (CPU_BLOCK_ROWS, 4 * CPU_BLOCK_ROWS):
            found[f"echo.{block_rows}"] = echo(folder, block_rows)

        local, outputs, ratios = f"local:{usable_cores()}", set[bytes](), list[float]()
        for _ in range(options.rounds):
            threads = seconds_a_block(folder, None)
            outputs.add((folder / "scored.out").read_bytes())
            ratios.append(threads / seconds_a_block(folder, local))
            outputs.add((folder / "scored.out").read_bytes())
        print(
            f"{local} has {statistics.median(ratios):.2f} of the rows/s of {usable_cores()} threads "
            f"({', '.join(f'{ratio:.2f}' for ratio in ratios)}); same bytes: {len(outputs) == 1}"
        )
        found["local"] = [statistics.median(ratios), len(outputs) == 1]
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
