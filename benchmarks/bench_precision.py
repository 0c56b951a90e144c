"""What lower precision does to log p: deviations from float32 on real rows, with a trained model, and speed.

usage: bench_precision.py MODEL_DIR [--rows 100000] [--precision bf16] [--json FILE]
"""

import argparse
import json

import numpy as np
from bench_scoring import ours, timed
from inputs import encode, middle_rows, table

from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.runtime import prepare, usable_cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--precision", nargs="+", default=["bf16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    jobs = usable_cores()
    prepare(1)
    checkpoint = load(options.model_dir)
    pairs = encode(middle_rows(table(), options.rows), checkpoint)
    words = pairs.tgt.lengths + 1
    exact_took, exact = timed(lambda: ours(Scorer(checkpoint, options.device), pairs, jobs))
    print(f"{len(pairs):,} rows; float32: {len(pairs) / exact_took:,.0f} rows/s, log p {exact.mean():.2f} ± {exact.std():.2f}")
    result = {}
    for precision in options.precision:
        scorer = Scorer(checkpoint, options.device, precision)
        took, found = timed(lambda scorer=scorer: ours(scorer, pairs, jobs))
        off = found - exact
        result[precision] = {
            "speed_to_float32": exact_took / took,
            "mean_deviation": float(abs(off).mean()),
            "mean_deviation_per_word": float(abs(off / words).mean()),
            "bias": float(off.mean()),
            "percentile_99": float(np.percentile(abs(off), 99)),
            "largest_deviation": float(abs(off).max()),
        }
        print(precision, json.dumps({name: float(f"{value:.3g}") for name, value in result[precision].items()}), flush=True)
    if options.json:
        with open(options.json, "w") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
