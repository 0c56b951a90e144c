"""The text path alone: annotate with the scorer taken out, on one core and on two, and each stage by itself.

usage: bench_text.py [--rows 500000] [--json FILE]

Rows from the middle of the table go from a gzip file to a gzip file; scores and unknown words are constants.
"""

import argparse
import gc
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from inputs import middle_rows, paper_model, table

from phrase_rescore import annotate
from phrase_rescore.annotation.annotator import scorer_of
from phrase_rescore.annotation.pipeline import CPU_BLOCK_ROWS
from phrase_rescore.files.inputs import open_input, read_blocks
from phrase_rescore.files.outputs import gzip_member
from phrase_rescore.moses.columns import ColumnFormat
from phrase_rescore.moses.table import parse_block
from phrase_rescore.rnn.checkpoint import save
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.runtime import prepare


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def whole(folder: str, gzip_level: str, jobs: int) -> float:
    """Rows per second of annotate from gzip to gzip on ``jobs`` cores."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:jobs])
    try:
        summary = annotate(f"{folder}/table.gz", f"{folder}/model", f"{folder}/out.gz", jobs=jobs, gzip_level=gzip_level)
    finally:
        os.sched_setaffinity(0, cores)
    return summary.statistics.rows / summary.seconds


def stages(folder: str, scorer: Scorer) -> dict[str, float]:
    """Microseconds a row of each stage."""
    took: dict[str, float] = {}
    with open_input(f"{folder}/table.gz") as stream:
        took["decompress, cut into blocks"], blocks = seconds(lambda: list(read_blocks(stream, CPU_BLOCK_ROWS)))
    rows = 0

    def stage(name: str, function: Callable[[], Any]) -> Any:
        spent, value = seconds(function)
        took[name] = took.get(name, 0.0) + spent
        return value

    for block in blocks:
        parsed = stage("split, check", lambda block=block: parse_block(block, 4))
        stage("words to ids", lambda p=parsed: scorer.encode_phrases(p.src, p.tgt))
        columns = stage("format", lambda p=parsed: ColumnFormat().columns(np.full(len(p.src), -3.25), [0] * len(p.src)))
        out = stage("join", lambda p=parsed, c=columns: p.write(0, c))
        for level in ("6", "fast"):
            stage(f"gzip {level}", lambda out=out, level=level: gzip_member(out, level))
        rows += len(parsed.lines)
    return {name: 1e6 * spent / rows for name, spent in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    prepare(1)
    gc.disable()  # as annotate does
    path = table()
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/model")
        save(paper_model(path, hidden=8, maxout=8, rank=8), f"{folder}/model")
        with gzip.open(f"{folder}/table.gz", "wb") as stream:
            stream.write(b"".join(row + b"\n" for row in middle_rows(path, options.rows)))
        scorer = scorer_of(f"{folder}/model")
        result: dict[str, Any] = {"rows": options.rows, "microseconds_a_row": stages(folder, scorer), "rows_per_second": {}}
        with mock.patch.object(Scorer, "log_probs", lambda self, pairs: np.full(len(pairs), -3.25)):
            for level in ("6", "fast"):
                for jobs in (1, 2):
                    result["rows_per_second"][f"gzip {level}, jobs {jobs}"] = whole(folder, level, jobs)
    for name, spent in result["microseconds_a_row"].items():
        print(f"{name:32s}{spent:8.2f} µs/row")
    for name, rate in result["rows_per_second"].items():
        print(f"{name:32s}{rate:10,.0f} rows/s")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
