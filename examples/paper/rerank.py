"""Translate weights between a moses.ini and mert, which knows the features of an n-best list by their order alone.

usage: rerank.py start NBEST < moses.ini > init.opt       where mert starts, and its bounds for random starts
       rerank.py tuned NBEST < weights.txt > weights.ini  what mert found, as a section [weight]
"""

import gzip
import sys


def features(path: str) -> dict[str, int]:
    """Return the labels of the first entry of a list, and how many values each has."""
    with gzip.open(path, "rt") as lines:
        fields = next(lines).split(" ||| ")
    counts: dict[str, int] = {}
    label = ""
    for word in fields[2].split():
        if word.endswith("="):
            label = word.removesuffix("=")
        counts[label] = counts.get(label, 0) + (not word.endswith("="))
    return counts


def read_weights(text: str) -> dict[str, list[str]]:
    """Return the weights of a section [weight]."""
    section = text.partition("[weight]\n")[2].partition("\n[")[0]
    lines = (line.partition("=") for line in section.splitlines())
    return {name.strip(): values.split() for name, equals, values in lines if equals}


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "tuned"):
        sys.exit(__doc__)
    counts, text = features(sys.argv[2]), sys.stdin.read()
    if sys.argv[1] == "start":
        given = read_weights(text)
        row = [weight for label in counts for weight in given[label]]
        print(" ".join(row), " ".join(["0"] * len(row)), " ".join(["1"] * len(row)), sep="\n")
        return
    weights = iter(text.split())
    print("[weight]")
    for label, count in counts.items():
        print(f"{label}=", *(next(weights) for _ in range(count)))


if __name__ == "__main__":
    main()
