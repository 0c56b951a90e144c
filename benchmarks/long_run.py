"""One process that annotates the same table again and again: does it need more memory, or leave descriptors open?

usage: long_run.py [--table FILE] [--times 10] [--hidden 32] [--shortlist 1000] [--jobs N] [--json FILE]

The model has random weights. After every pass: memory in use and its highest during the pass, open descriptors, and whether
the output is that of the first pass. Ends with an error if memory grows by more than 5 % after the first pass, the number of
descriptors changes, or a byte differs. Linux only, as it reads /proc.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from inputs import paper_model, table

from phrase_rescore import annotate
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.runtime import usable_cores

GROWTH = 1.05  # most of what the first pass needed


@dataclass(frozen=True)
class Pass:
    """What a pass left behind. Memory in MiB."""

    rows: int
    seconds: float
    resident: float
    peak: float
    descriptors: int
    digest: str


def _memory(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, name
    return int(found[1]) / 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def run_once(table: str, model: str, out: str, jobs: int) -> Pass:
    _forget_peak()
    summary = annotate(table, model, out, jobs=jobs)
    with open(out, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    descriptors = len(os.listdir("/proc/self/fd"))
    return Pass(summary.statistics.rows, summary.seconds, _memory("VmRSS"), _memory("VmHWM"), descriptors, digest)


def faults(passes: list[Pass]) -> list[str]:
    """What the passes after the first show that they should not."""
    first, found = passes[0], []
    for number, later in enumerate(passes[1:], 2):
        for name in ("resident", "peak"):
            growth = getattr(later, name) / getattr(first, name)
            if growth > GROWTH:
                found.append(f"pass {number}: {name} memory is {growth:.1%} of the first pass's")
        if later.descriptors != first.descriptors:
            found.append(f"pass {number}: {later.descriptors} open descriptors, {first.descriptors} after the first pass")
        if later.digest != first.digest:
            found.append(f"pass {number}: the output differs from the first pass's")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--shortlist", type=int, default=1_000)
    parser.add_argument("--jobs", type=int, default=usable_cores())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    source = options.table or table()
    passes: list[Pass] = []
    with tempfile.TemporaryDirectory() as folder:
        sizes = {
            "hidden": options.hidden,
            "embedding": options.hidden,
            "maxout": options.hidden // 2,
            "rank": options.hidden // 2,
        }
        os.mkdir(f"{folder}/model")
        save(paper_model(source, options.shortlist, **sizes), f"{folder}/model")
        print(f"{source}, {options.hidden} hidden units, {options.jobs} jobs")
        print(f"{'pass':>4} {'rows':>10} {'rows/s':>8} {'MiB':>7} {'peak':>7} {'open':>5}  output", flush=True)
        for number in range(1, options.times + 1):
            done = run_once(str(source), f"{folder}/model", f"{folder}/out.gz", options.jobs)
            passes.append(done)
            print(
                f"{number:4} {done.rows:10,} {done.rows / done.seconds:8,.0f} {done.resident:7.1f} {done.peak:7.1f} "
                f"{done.descriptors:5}  {done.digest[:16]}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(done) for done in passes], indent=2) + "\n")
    found = faults(passes)
    print("\n".join(found) or f"flat within {GROWTH - 1:.0%}, no descriptor left open, the same bytes {options.times} times")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
