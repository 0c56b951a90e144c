"""What could any score of phrase pairs give? Bounds around a baseline, each a line of JSON on standard output.

usage: headroom.py oracle NBEST REFERENCE          BLEU of the best choices within n-best lists
       headroom.py coverage SEGMENTED SOURCE TABLE tokens of the source by the phrases that the decoder took
       headroom.py column EXTRACT TABLE            the cheat: a relative frequency for every row of TABLE, counted in EXTRACT
       headroom.py recount EXTRACT TABLE           the same, counted in EXTRACT and in the text that TABLE comes from

The cheat knows the sets that it is judged on. It says how far a column could come that always knew which target is right. If
EXTRACT comes from more text like that of TABLE, "recount" says what better counts of the same pairs are worth.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import RescoreError
from phrase_rescore.evaluation.metrics import Counts, Metric
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.table import split_fields, words

LONG = 4  # words of a long phrase
UNSEEN = 1e-3  # for pairs that the sets do not have; those that they have are 0.1 and more, nearly all
_SPAN = re.compile(rb"\|(\d+)-(\d+)\|")


def lines(path: str) -> Iterator[bytes]:
    with open_input(path) as stream:
        for line in stream:
            yield line.removesuffix(b"\n")


def bleu(sums: Counts) -> NDArray[np.float64]:
    """Return BLEU, (...,), of sums of sacrebleu's counts (..., 10): lengths of output and reference, matches, n-grams.

    Matches of zero are smoothed to a tiny number: this compares candidates, and corpora have matches.
    """
    precisions = np.maximum(sums[..., 2:6], 1e-3) / np.maximum(sums[..., 6:10], 1)
    brevity = np.minimum(0.0, 1 - sums[..., 1] / np.maximum(sums[..., 0], 1))
    return 100 * np.exp(np.log(precisions).mean(-1) + brevity)


def oracle(nbest: str, reference: str) -> dict[str, float]:
    """Choose a hypothesis of each list so that the BLEU of the corpus is highest, one list after the other.

    It ends when no list would choose another one. This is a local optimum: the true oracle is at least as high.
    """
    references = [line.decode() for line in lines(reference)]
    lists: list[list[str]] = [[] for _ in references]
    for line in lines(nbest):
        number, hypothesis, *_ = split_fields(line)
        lists[int(number)].append(b" ".join(words(hypothesis)).decode())
    flat = [hypothesis for found in lists for hypothesis in found]
    repeated = tuple(reference for reference, found in zip(references, lists, strict=True) for _ in found)
    counts = Metric("bleu", [repeated]).counts(tuple(flat))
    by_segment = np.split(counts, np.cumsum([len(found) for found in lists])[:-1])
    chosen = [0] * len(lists)
    sums = sum(of_list[0] for of_list in by_segment)
    first, changed = float(bleu(sums)), True
    while changed:
        changed = False
        for i, of_list in enumerate(by_segment):
            others = sums - of_list[chosen[i]]
            best = int(bleu(others + of_list).argmax())
            if bleu(others + of_list[best]) > bleu(sums) + 1e-9:
                chosen[i], sums, changed = best, others + of_list[best], True
    return {"lists": len(lists), "hypotheses": len(flat), "first": first, "oracle": float(bleu(sums))}


def coverage(segmented: str, source: str, table: str) -> dict[str, float]:
    """Share the source's tokens out by the phrases that the decoder took: long ones, pairs seen once, unknown words."""
    taken = Counter[tuple[bytes, bytes]]()
    for line, src in zip(lines(segmented), lines(source), strict=True):
        src_words, begin = words(src), 0
        for span in _SPAN.finditer(line):
            first, last = int(span[1]), int(span[2])
            taken[b" ".join(src_words[first : last + 1]), line[begin : span.start()].strip()] += 1
            begin = span.end()
    joint: dict[tuple[bytes, bytes], float] = {}
    for row in lines(table):
        fields = split_fields(row)
        pair = fields[0].strip(), fields[1].strip()
        if pair in taken:
            joint[pair] = float(words(fields[4])[2])
    tokens = Counter[str]()
    for pair, n in taken.items():
        length = n * len(words(pair[0]))
        tokens["all"] += length
        tokens["long phrases"] += length * (length >= n * LONG)
        tokens["seen once"] += length * (joint.get(pair) == 1)
        tokens["unknown"] += length * (pair not in joint)
    return {"tokens": tokens["all"]} | {name: tokens[name] / tokens["all"] for name in ("long phrases", "seen once", "unknown")}


def column(extract: str, table: str, recount: bool = False) -> Iterator[str]:
    """Yield p(target | source) counted in an extract file, ``UNSEEN`` where it is 0; ``recount``: there and in the table."""
    pairs, sources = Counter[tuple[bytes, bytes]](), Counter[bytes]()
    for row in lines(extract):
        src, tgt, *_ = (field.strip() for field in split_fields(row))
        pairs[src, tgt] += 1
        sources[src] += 1
    for row in lines(table):
        src, tgt, *_ = (field.strip() for field in split_fields(row, 2))
        pair, source = float(pairs[src, tgt]), float(sources[src])
        if recount:
            _, of_src, of_pair = map(float, words(split_fields(row, 5)[4])[:3])
            pair, source = pair + of_pair, source + of_src
        yield f"{max(UNSEEN, pair / max(1, source)):.7g}"


def main() -> None:
    match sys.argv[1:]:
        case "oracle", nbest, reference:
            print(json.dumps(oracle(nbest, reference)))
        case "coverage", segmented, source, table:
            print(json.dumps(coverage(segmented, source, table)))
        case "column" | "recount" as which, extract, table:
            for number in column(extract, table, recount=which == "recount"):
                print(number)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except RescoreError as error:
        sys.exit(f"headroom.py: {error}")
