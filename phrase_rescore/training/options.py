"""What ``train`` is asked for, and whom it tells how it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from phrase_rescore.moses.factors import WHOLE, Factors
from phrase_rescore.training.presets import Preset


@dataclass(frozen=True)
class Options:
    """What ``train`` was asked for. ``settings`` has the preset and whatever overrode it."""

    inputs: tuple[str, ...]
    model_dir: str
    settings: Preset
    preset: str = "default"
    inverse: bool = False  # learn p(source | target)
    factors: Factors = WHOLE
    form: str | None = None
    drop_bad_rows: bool = False
    vocab_corpus: tuple[str, str] | None = None
    source_vocab: str | None = None
    target_vocab: str | None = None
    held_out: int = 10_000
    min_count: int = 1
    max_length: int | None = None
    pairs_dir: str | None = None  # default: MODEL_DIR.pairs
    scratch: str | None = None  # default: where temporary files go
    memory: int = 1 << 30  # bytes that sorting may use
    max_steps: int | None = None
    max_time: float | None = None  # seconds
    eval_every: int = 500
    patience: int | None = None
    seed: int = 1
    threads: int = 1
    device: str = "cpu"
    precision: str = "float32"
    init_from: str | None = None
    init: str = "all"
    freeze: tuple[str, ...] = ()
    final_pass: bool = False
    resume: bool = False
    save_dtype: str = "float32"
    shard_size: int | None = None
    overwrite: bool = False

    @property
    def store_dir(self) -> str:
        """Where the prepared pairs are kept."""
        return self.pairs_dir or f"{self.model_dir.rstrip('/')}.pairs"

    @property
    def state_dir(self) -> str:
        """Where the training stands while it is under way."""
        return f"{self.model_dir.rstrip('/')}.training"


@dataclass
class Observer:
    """Where progress goes; the command line shows it, a library caller may not care."""

    say: Callable[[str], None] = lambda message: None
    on_read: Callable[[int], object] | None = None
    on_pairs: Callable[[int], object] | None = None
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None
    on_record: Callable[[dict[str, Any]], None] = lambda record: None
