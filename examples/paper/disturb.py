"""Multiply the weights of a moses.ini by exp(0.35 z), z from N(0, 1): where a tuning run with this seed starts.

usage: disturb.py SEED < moses.ini > start.ini

A weight's z depends on the seed, the feature's name and the weight's number alone, so that the weights which two systems share
start their run of one number from the same place. UnknownWordPenalty is not tuned and stays.
"""

import math
import random
import sys


def disturbed(line: str, seed: str) -> str:
    name, equals, weights = line.partition("=")
    if not equals or name.strip() == "UnknownWordPenalty0":
        return line
    drawn = [random.Random(f"{seed} {name.strip()} {i}").gauss(0, 1) for i in range(len(weights.split()))]
    return f"{name}= {' '.join(f'{float(w) * math.exp(0.35 * z):.6g}' for w, z in zip(weights.split(), drawn, strict=True))}\n"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    in_weights = False
    for line in sys.stdin:
        if line.startswith("["):
            in_weights = line.strip() == "[weight]"
        sys.stdout.write(disturbed(line, sys.argv[1]) if in_weights else line)


if __name__ == "__main__":
    main()
