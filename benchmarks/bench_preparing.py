"""Preparing many pairs: time, memory and disk for a table of 20 million distinct rows.

usage: bench_preparing.py [--rows 20000000] [--folder DIR] [--memory 1G] [--json FILE]

The rows are those of the table with their targets exchanged: row i has source i and the target of row i + k, for as many k
as it takes; duplicates are dropped by what is measured. Then `phrase-rescore train … --max-steps 1` with a network too small
to matter runs in processes of its own, whose resident memory and files are looked at twice a second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from inputs import table
from isal import igzip_threaded

from phrase_rescore.moses.pairs import read_pair_blocks

SHIFTS = (0, 1_000_003, 500_009, 250_007, 1_500_007, 750_019, 300_007, 1_200_007)  # far from the neighbours' like targets
EVERY = 0.5  # seconds between looks
SMALL = ("--hidden", "4", "--embedding", "4", "--maxout", "4", "--rank", "4", "--batch-size", "8", "--held-out", "1000")


def recombine(path: Path, rows: int, out: str) -> None:
    src: list[bytes] = []
    tgt: list[bytes] = []
    for block in read_pair_blocks(str(path)):
        src += block.src
        tgt += block.tgt
    n, left = len(src), rows
    with igzip_threaded.open(out, "wb", compresslevel=0) as stream:
        for shift in SHIFTS:
            for start in range(0, n, 100_000):
                indices = range(start, min(start + 100_000, n, start + left))
                pairs = ((src[i], tgt[(i + shift) % n]) for i in indices)
                stream.write(b"".join(b"%b ||| %b ||| 1 1 1 1 ||| 0-0 ||| 1 1 1 ||| |||\n" % pair for pair in pairs))
                left -= len(indices)
                if not left:
                    return
    raise SystemExit(f"{path} is too small to make {rows:,} rows of")


def processes_of(pid: int) -> Iterator[tuple[str, int]]:
    """(name, resident bytes) of a process and all its children."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        yield status["Name"].strip(), 1024 * int(status.get("VmRSS", "0").split()[0])
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from processes_of(int(child))
    except OSError:
        return


def size_of(directory: str) -> int:
    """Bytes of all files under a directory that changes meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(folder, name))
            except OSError:
                continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", help="where some 3 GB may be written  [default: where temporary files go]")
    parser.add_argument("--memory", default="1G", help="what sorting may use")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source, scratch, pairs = (os.path.join(folder, name) for name in ("table.gz", "scratch", "pairs"))
        os.mkdir(scratch)
        recombine(table(), options.rows, source)
        command = [
            *(sys.executable, "-m", "phrase_rescore", "train", source, "-m", os.path.join(folder, "model"), "--pairs", pairs),
            *("--scratch", scratch, "--memory", options.memory, "--max-steps", "1", "--quiet", *SMALL),
        ]
        start, peaks, most_scratch, both = time.perf_counter(), {"python": 0, "sort": 0}, 0, 0
        process = subprocess.Popen(command)
        while process.poll() is None:
            found = list(processes_of(process.pid))
            for name, resident in found:
                kind = "sort" if "sort" in name else "python"
                peaks[kind] = max(peaks[kind], resident)
            both = max(both, sum(resident for _, resident in found))
            most_scratch = max(most_scratch, size_of(scratch))
            time.sleep(EVERY)
        seconds = time.perf_counter() - start
        if process.returncode:
            raise SystemExit(process.returncode)
        numbers = json.loads(Path(pairs, "pairs.json").read_text())["numbers"]
        distinct = numbers["training"] + numbers["held_out"]
        types = sum(Path(pairs, name).read_bytes().count(b"\n") for name in ("source.vocab", "target.vocab"))
        result = {
            "rows": options.rows, "distinct": distinct, "seconds": seconds, "rows_per_second": options.rows / seconds,
            "peak_resident": {**peaks, "together": both}, "table_bytes": os.path.getsize(source), "scratch_bytes": most_scratch,
            "store_bytes": size_of(pairs), "shortlists": types,
        }  # fmt: skip
    print(f"{options.rows:,} rows, {distinct:,} distinct pairs: {seconds:.0f} s, {options.rows / seconds:,.0f} rows/s")
    resident = ", ".join(f"{name} {most / 1e6:.0f} MB" for name, most in result["peak_resident"].items())
    print(f"resident at most: {resident}")
    print(f"disk: scratch {most_scratch / 1e9:.2f} GB at most, pairs kept {result['store_bytes'] / 1e9:.2f} GB")
    scale = 1e9 / options.rows
    print(
        f"10⁹ rows, if all grows with them: {seconds * scale / 3600:.1f} h, scratch {most_scratch * scale / 1e9:.0f} GB, "
        f"pairs kept {result['store_bytes'] * scale / 1e9:.0f} GB"
    )
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
