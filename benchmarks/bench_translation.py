"""Sentences that a translation model translates in a second: one beam at a time, and many sources at once, in turn.

usage: bench_translation.py MODEL SOURCE [--sentences 200] [--rounds 3] [--json FILE]

MODEL is one of train-nmt, SOURCE a tokenized text. One thread. The share of equal translations is told, too.
"""

import argparse
import json
import statistics
import time
from itertools import islice

from phrase_rescore.files.inputs import open_input, read_rows
from phrase_rescore.moses.table import words
from phrase_rescore.nmt.checkpoint import load
from phrase_rescore.nmt.translator import SentenceHypothesis, SentenceTranslator
from phrase_rescore.runtime import prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    prepare(1)
    translator = SentenceTranslator(load(options.model))
    with open_input(options.source) as stream:
        sources = [words(line.rstrip(b"\r\n")) for line in islice(read_rows(stream), options.sentences)]
    speeds: dict[str, list[float]] = {"one at a time": [], "together": []}
    found: dict[str, list[list[SentenceHypothesis]]] = {}
    for _ in range(options.rounds):
        for name, spent in speeds.items():
            start = time.process_time()
            if name == "together":
                found[name] = translator.n_best(sources)
            else:
                found[name] = [translator.n_best([source])[0] for source in sources]
            spent.append(len(sources) / (time.process_time() - start))
    medians = {name: statistics.median(spent) for name, spent in speeds.items()}
    pairs = zip(*found.values(), strict=True)
    equal = sum(alone[0].words == together[0].words for alone, together in pairs) / len(sources)
    for name, speed in medians.items():
        print(f"{name:<14}{speed:8.1f} sentences/s of a core{speed / medians['one at a time']:8.2f}")
    print(f"equal translations: {equal:.1%}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as stream:
            json.dump({"sentences_per_second": medians, "equal": equal}, stream)


if __name__ == "__main__":
    main()
