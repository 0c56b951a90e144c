"""Trainings that take a second: an invented language, options, and what comes of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from phrase_rescore.training.presets import PRESETS

SMALL = replace(PRESETS["default"], hidden=32, embedding=16, maxout=16, rank=16, batch_size=32)
SIZES = ["--hidden", "32", "--embedding", "16", "--maxout", "16", "--rank", "16", "--batch-size", "32"]


def write_language(path, pairs=2000, words=20, seed=0):
    """An invented language: source word i is target word i. Every phrase pair once, one to four words."""
    rng = np.random.default_rng(seed)
    phrases = {tuple(rng.integers(0, words, rng.integers(1, 5)).tolist()) for _ in range(pairs)}
    phrases |= {(word,) for word in range(words)}
    rows = sorted(" ".join(f"s{w}" for w in p) + "\t" + " ".join(f"t{w}" for w in p) for p in phrases)
    path.write_text("\n".join(rows) + "\n")
    return sorted(phrases)


def command(tmp_path: Path, name: str, *more: str, launcher: tuple[str, ...] = (sys.executable,)) -> list[str]:
    arguments = ["train", str(tmp_path / "pairs.tsv"), "-m", str(tmp_path / name), *SIZES, "--max-steps", "600"]
    return [*launcher, "-m", "phrase_rescore", *arguments, "--eval-every", "4", "--held-out", "50", *more]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "train.log.jsonl"}


class Stopped(Exception):
    """What ends a training in the middle of these tests."""
