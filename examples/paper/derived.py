"""Columns made of the score p(t|s) and the counts of a phrase table: what of the score is it that helps?

usage: derived.py COLUMN TABLE > NUMBERS          COLUMN: one of

  mass         Σ p(t'|s) over the targets t' that the table has for s: how much of what the network would say stands there
  posterior    p(t|s) / mass: which of these targets, and nothing of the source alone
  pmi          p(t|s) / p(t), with p(t) = c(t) / Σ c(t): what the source adds to the target (pointwise mutual information)
  per-word     p(t|s) to the power of 1 / (words of t + 1): the mean of log p over words and end of phrase
  discounted   (max(c(s,t) − D, 0) + D n(s) posterior) / c(s): absolute discounting of the relative frequency, as Kneser and
               Ney (1995), that backs off to the network. n(s): targets of s; D = n₁ / (n₁ + 2 n₂), n_k: pairs seen k times

The last score of every row of TABLE is p(t|s); its fifth field has c(t), c(s) and c(s,t). TABLE has all targets of its sources,
in any order, and may be compressed. The output has a line for every row; no number is below 1e-30.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from phrase_rescore.errors import RescoreError
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.table import split_fields, words

SMALLEST = 1e-30


class Row(NamedTuple):
    src: bytes
    tgt: bytes
    score: float
    of_tgt: float  # c(t)
    of_src: float  # c(s)
    count: float  # c(s,t)


def read(table: str) -> Iterator[Row]:
    with open_input(table) as lines:
        for line in lines:
            src, tgt, scores, _, counts, *_ = (field.strip() for field in split_fields(line, 5))
            yield Row(src, tgt, float(words(scores)[-1]), *map(float, words(counts)[:3]))


def column(name: str, table: str) -> Iterator[float]:
    """Yield the number of every row."""
    mass, targets, seen, of_tgt = Counter[bytes](), Counter[bytes](), Counter[float](), dict[bytes, float]()
    for row in read(table):
        mass[row.src] += row.score  # type: ignore[assignment]  # a Counter of floats
        targets[row.src] += 1
        seen[row.count] += 1
        of_tgt[row.tgt] = row.of_tgt
    total, discount = sum(of_tgt.values()), seen[1] / max(1, seen[1] + 2 * seen[2])
    for row in read(table):
        posterior = row.score / mass[row.src]
        match name:
            case "mass":
                yield mass[row.src]
            case "posterior":
                yield posterior
            case "pmi":
                yield row.score / (row.of_tgt / total)
            case "per-word":
                yield row.score ** (1 / (len(words(row.tgt)) + 1))
            case "discounted":
                yield (max(row.count - discount, 0) + discount * targets[row.src] * posterior) / row.of_src
            case _:
                sys.exit(__doc__)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for number in column(*sys.argv[1:]):
        print(f"{max(SMALLEST, number):.7g}")


if __name__ == "__main__":
    try:
        main()
    except RescoreError as error:
        sys.exit(f"derived.py: {error}")
