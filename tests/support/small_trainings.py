"""Trainings that take a second: an invented language, options, and what comes of them."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.config import PRESETS, TrainingConfig
from phrase_rescore.rnn.train import train_pairs
from phrase_rescore.training.config import Observer

SMALL = PRESETS["default"].override(hidden=32, embedding=16, maxout=16, rank=16, batch_size=32, device="cpu", threads=1)
SIZES = ["--hidden", "32", "--embedding", "16", "--maxout", "16", "--rank", "16", "--batch-size", "32"]

OURS = (sys.executable, "-m", "phrase_rescore")


def write_language(path, pairs=2000, words=20, seed=0):
    """An invented language: source word i is target word i. Every phrase pair once, one to four words."""
    rng = np.random.default_rng(seed)
    phrases = {tuple(rng.integers(0, words, rng.integers(1, 5)).tolist()) for _ in range(pairs)}
    phrases |= {(word,) for word in range(words)}
    rows = sorted(" ".join(f"s{w}" for w in p) + "\t" + " ".join(f"t{w}" for w in p) for p in phrases)
    path.write_text("\n".join(rows) + "\n")
    return sorted(phrases)


def small_training(folder: Path, **settings: object) -> Training:
    """A training in a folder on 300 pairs of that language."""
    write_language(folder / "pairs.tsv", pairs=300)
    return Training((str(folder / "pairs.tsv"),), str(folder / "model")).but(held_out=20, **settings)


def trained(folder: Path, name: str = "model", observer: Observer | None = None, **settings: object) -> Checkpoint:
    """Trains on ``pairs.tsv`` of the folder into ``name`` beside it."""
    return Training((str(folder / "pairs.tsv"),), str(folder / name)).but(**settings).run(observer)


def command(tmp_path: Path, name: str, *more: str, program: tuple[str, ...] = OURS) -> list[str]:
    arguments = ["train", str(tmp_path / "pairs.tsv"), "-m", str(tmp_path / name), *SIZES, "--max-steps", "200"]
    return [*program, *arguments, "--eval-every", "4", "--held-out", "50", *more]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "train.log.jsonl"}


@dataclass(frozen=True)
class Training:
    """A training that a test runs, and runs again with something changed."""

    inputs: tuple[str, ...]
    model_dir: str
    config: TrainingConfig = SMALL

    def but(self, **changes) -> Training:
        """The same with other inputs, model directory or settings."""
        own = {name: changes.pop(name) for name in ("inputs", "model_dir") if name in changes}
        return replace(self, **own, config=self.config.override(**changes))

    def run(self, observer: Observer | None = None) -> Checkpoint:
        return train_pairs(self.inputs, self.model_dir, self.config, observer)

    def stop_after(self, step: int) -> None:
        """Run, but no further than this step."""

        def stop(at: int, *_: object) -> None:
            if at == step:
                raise Stopped

        with suppress(Stopped):
            self.run(Observer(on_step=stop))
            raise AssertionError(f"was not stopped after step {step}")

    @property
    def state_dir(self) -> Path:
        return Path(f"{self.model_dir}.training")


class Stopped(Exception):
    """What ends a training in the middle of these tests."""
