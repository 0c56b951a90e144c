"""Sentences of a few words and changed copies of them, as references and outputs to compare."""

import random
from collections.abc import Sequence
from pathlib import Path

# fmt: off
WORDS = ["le", "la", "les", "un", "une", "de", "d&apos;", "l&apos;", "chat", "Chien", "maison", "été", "a", ",", "dort"]
# fmt: on


def sentences(seed: int, n: int) -> list[list[str]]:
    rng = random.Random(seed)
    return [[*rng.choices(WORDS, k=rng.randint(3, 14)), "."] for _ in range(n)]


def changed(lines: Sequence[Sequence[str]], share: float, seed: int) -> list[list[str]]:
    """Replace this share of the words."""
    rng = random.Random(seed)
    return [[rng.choice(WORDS) if rng.random() < share else word for word in line] for line in lines]


def write_lines(path: Path, lines: Sequence[Sequence[str]]) -> str:
    path.write_text("".join(" ".join(line) + " \n" for line in lines), "utf-8")  # the decoder's last blank too
    return str(path)
