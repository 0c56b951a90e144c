"""Adds translations by the network alone to n-best lists, scored by nothing but it: what rescore then scores like the others.

usage: propose.py LIST MODEL SOURCE OUT [--entries 12] [--fill mean|first|zero]

Features of the decoder that a new entry lacks are the mean of its segment, those of the first entry, or 0; WordPenalty0 is
minus its words. Every entry gets an indicator: Proposed0= 1 for new ones, 0 for others. Texts that the list has are left out.
"""

import argparse
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from phrase_rescore.files.inputs import open_input, read_rows
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.moses.hypotheses import Entry, as_value, read_entries
from phrase_rescore.moses.table import words
from phrase_rescore.nmt.checkpoint import load
from phrase_rescore.nmt.translator import SentenceHypothesis, SentenceTranslator
from phrase_rescore.runtime import prepare

FILLS = ("first", "mean", "zero")
LENGTH = b"WordPenalty0"


def filled(entries: Sequence[Entry], fill: str) -> dict[bytes, list[float]]:
    """What a new entry of this segment has of the decoder's features."""
    features = [entry.features() for entry in entries]
    if fill == "first":
        return features[0]
    means = {label: np.mean([of_entry[label] for of_entry in features], axis=0).tolist() for label in features[0]}
    return means if fill == "mean" else {label: [0.0] * len(values) for label, values in means.items()}


def proposed(entries: Sequence[Entry], hypotheses: Sequence[SentenceHypothesis], fill: str) -> list[bytes]:
    """The lines of a segment."""
    there = {tuple(entry.hypothesis()) for entry in entries}
    lines = [entry.with_feature(b"Proposed0", [0.0], False).line() for entry in entries]
    lowest = min(entry.total() for entry in entries)
    for hypothesis in hypotheses:
        if hypothesis.words and hypothesis.words not in there:
            features = filled(entries, fill) | {LENGTH: [-float(len(hypothesis.words))], b"Proposed0": [1.0]}
            text = b" ".join(b" ".join([label + b"=", *map(as_value, values)]) for label, values in features.items())
            parts = b"%d" % entries[0].segment, b" ".join(hypothesis.words), text, as_value(lowest)
            lines.append(b" ||| ".join(parts) + b"\n")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("list", "model", "source", "out"):
        parser.add_argument(name)
    parser.add_argument("--entries", type=int, default=12)
    parser.add_argument("--fill", choices=FILLS, default="mean")
    options = parser.parse_args()
    prepare()
    with open_input(options.source) as stream:
        sources = [words(line.rstrip(b"\r\n")) for line in read_rows(stream)]
    translations = SentenceTranslator(load(options.model)).n_best(sources, options.entries)
    with open_input(options.list) as stream, atomic_output(options.out) as output:
        for segment, group in groupby(read_entries(read_rows(stream), options.list), lambda entry: entry.segment):
            output.write(b"".join(proposed(list(group), translations[segment], options.fill)))


if __name__ == "__main__":
    main()
