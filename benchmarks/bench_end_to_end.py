"""annotate at paper size, gzip in and out, beside the scorer alone on the same rows; and the command's memory.

usage: bench_end_to_end.py [--rows 20000] [--rounds 2] [--json FILE]

Each round runs the scorer over encoded rows and annotate, both in this process with the model loaded. Then the command is
run once in a process of its own: its time, start and loading included, and its peak memory.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from bench_scoring import ours
from inputs import encode, middle_rows, paper_model, table

from phrase_rescore import annotate
from phrase_rescore.annotation.annotator import scorer_of
from phrase_rescore.annotation.pipeline import CPU_BLOCK_ROWS
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.runtime import prepare, usable_cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    jobs = usable_cores()
    prepare(1)
    path = table()
    with tempfile.TemporaryDirectory() as folder:
        model, source, out = (os.path.join(folder, name) for name in ("model", "table.gz", "out.gz"))
        os.mkdir(model)
        checkpoint = paper_model(path)
        save(checkpoint, model)
        rows = middle_rows(path, options.rows)
        with gzip.open(source, "wb") as stream:
            stream.write(b"".join(row + b"\n" for row in rows))
        pairs, scorer = encode(rows, checkpoint), scorer_of(model)
        alone, whole = [], []
        for _ in range(options.rounds):
            start = time.perf_counter()
            ours(scorer, pairs, jobs, CPU_BLOCK_ROWS)
            alone.append(len(rows) / (time.perf_counter() - start))
            start = time.perf_counter()
            annotate(source, model, out, jobs=jobs)
            whole.append(len(rows) / (time.perf_counter() - start))
        del scorer
        start = time.perf_counter()
        command = [sys.executable, "-m", "phrase_rescore", "annotate", source, "-m", model, "-o", out, "--overwrite", "--quiet"]
        subprocess.run(command, check=True)
        process = len(rows) / (time.perf_counter() - start)
    result = {
        "rows": len(rows),
        "jobs": jobs,
        "scorer_alone": statistics.median(alone),
        "annotate": statistics.median(whole),
        "ratio": statistics.median(a / b for a, b in zip(whole, alone, strict=True)),
        "process": process,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6,
    }
    print(f"{len(rows):,} rows, {jobs} jobs; rows/s: scorer {result['scorer_alone']:,.0f}, annotate {result['annotate']:,.0f}")
    print(f"annotate / scorer {result['ratio']:.1%}")
    print(f"the command, start and loading included: {process:,.0f} rows/s, peak memory {result['peak_memory_gb']:.2f} GB")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
