"""The settings that every training has, in parts, and its observer. No torch here: ``--help`` shows the presets."""

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self, TypeVar

from phrase_rescore.errors import OptionError
from phrase_rescore.messages import Listener, Progress, shown, silent
from phrase_rescore.ranges import BYTES, LENGTHS, SECONDS, SEEDS, THREADS, Checked, Range, SettingError, Whole, Words, ranged
from phrase_rescore.runtime import OWN_PRECISIONS, share_of_cores

LAYER_SIZES, TIMES = Whole(1, 100_000), Whole(1, 10**9)
_STEPS = Whole(1, 10**12)
LIMITS = ("epochs", "max_steps", "max_time")
OPTIMIZERS = Words(("adam", "adadelta"))


@dataclass(frozen=True)
class Recipe(Checked):
    """How the weights are trained, and until when. The rate rises for the share ``warm_up`` of it; with ``decay`` it falls."""

    optimizer: str = ranged("adam", OPTIMIZERS)
    learning_rate: float = ranged(8e-3, Range(0, 1000, above=True))  # at its highest
    objective: str = "mean"  # the gradient is that of the minibatch's sum or mean
    clip: float = ranged(1.0, Range(0, 1e9, above=True))  # largest norm of that gradient
    decay: bool = True
    warm_up: float = ranged(0.02, Range(0, 1))
    batch_size: int = ranged(256, Whole(1, 10_000_000))
    seed: int = ranged(1, SEEDS)  # of the initial weights and the order of the data
    epochs: float | None = ranged(None, Range(0, 1e6, above=True))  # passes over the data
    max_steps: int | None = ranged(None, _STEPS)
    max_time: float | None = ranged(None, SECONDS)
    usual_epochs: float = ranged(5.0, Range(0, 1e6, above=True))  # if none of the three limits is given
    usual_steps: int = ranged(0, Whole(0, 10**12))  # at least so many, if that is more than those passes
    usual_time: float = ranged(3600.0, Range(0, 1e9))  # 0: no limit
    eval_every: int = ranged(500, _STEPS)
    patience: int | None = ranged(None, TIMES)  # evaluations without a better one before training ends
    keep_last: bool = False  # the last weights, whatever their held-out loss; with patience the best ones in any case

    def rate(self, done: float) -> float:
        """Return the learning rate after the share ``done`` (0 to 1) of the run."""
        rising = min(1.0, done / self.warm_up + 0.01) if self.warm_up else 1.0
        return self.learning_rate * rising * (1.0 - done if self.decay else 1.0)

    def passes(self, steps: int, items: int) -> float:
        """Return how many passes over the items this number of minibatches makes; one has at most all items."""
        return steps * min(self.batch_size, items) / items

    def check_held_out(self, items: int) -> None:
        """Raise OptionError if the recipe needs a held-out loss and nothing is held out."""
        if not items and self.patience is not None:
            remedy = "hold out more (--held-out; of a text --held-out-share, too)"
            raise OptionError(f"--patience {self.patience} needs held-out data, but there are none; {remedy}")

    def limits(self) -> dict[str, Any]:
        """Return the limits that are given; the first to be reached ends the training. If none are given: {}."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}

    def usual_limits(self, items: int) -> dict[str, Any]:
        """Return the limits of a training without limits."""
        epochs = max(self.usual_epochs, self.passes(self.usual_steps, max(1, items)))
        return {"epochs": epochs} | ({"max_time": self.usual_time} if self.usual_time else {})

    def limited(self, limits: dict[str, Any], items: int) -> Self:
        """Return the recipe with only these limits, and with ``max_steps`` for ``epochs`` passes."""
        if "epochs" in limits:
            steps = max(1, math.ceil(limits["epochs"] * items / min(self.batch_size, max(1, items))))
            limits = limits | {"max_steps": min(steps, limits.get("max_steps", steps))}
        ends: dict[str, Any] = {name: limits.get(name) for name in LIMITS}
        return replace(self, **ends)


@dataclass(frozen=True)
class Pairs(Checked):
    """Pairs to train on, of phrases or of sentences, and how their words become ids."""

    source_vocab: str | None = None  # file of the shortlist
    target_vocab: str | None = None
    shortlist: int = ranged(15_000, TIMES)  # words a side
    held_out: int = ranged(10_000, Whole(0, 10**9))  # pairs at most
    max_length: int | None = ranged(None, LENGTHS)  # words of a phrase or sentence
    pairs_dir: str | None = None  # None: MODEL_DIR.pairs
    scratch: str | None = None  # None: where temporary files go
    memory: int = ranged(1 << 30, BYTES)  # bytes that sorting may use


@dataclass(frozen=True)
class Machine(Checked):
    """Where the training computes."""

    device: str = "auto"
    precision: str = ranged("auto", OWN_PRECISIONS)
    threads: int = field(default_factory=share_of_cores, metadata={"range": THREADS})  # of each process


@dataclass(frozen=True)
class Output:
    """How to treat an existing model directory."""

    overwrite: bool = False
    resume: bool = False  # an interrupted training
    finish: bool = False  # it as it is


@dataclass(frozen=True)
class Settings:
    """The settings of a training in parts, which have no name in common, and the ``preset`` that config.json records."""

    preset: str = "default"
    recipe: Recipe = field(default_factory=Recipe)
    machine: Machine = field(default_factory=Machine)
    output: Output = field(default_factory=Output)

    def parts(self) -> dict[str, Any]:
        """Return the parts by name."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "preset"}

    def settings(self) -> dict[str, Any]:
        """Return the settings of all parts by name."""
        return {name: value for part in self.parts().values() for name, value in vars(part).items()}

    def lasting(self) -> dict[str, Any]:
        """Return the settings but those that a ``--resume`` may change."""
        return {name: value for name, value in self.settings().items() if name not in (*LIMITS, "resume", "finish")}

    def summary(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the entries of the training summary of config.json for the settings of these names, in their order."""
        settings = {**self.settings(), "preset": self.preset, "max_seconds": self.recipe.max_time}
        return {name: settings[name] for name in names}

    def identity(self, *parts: Any) -> dict[str, Any]:
        """Return the settings that may change the weights. A new one, if not left out here, ends the use of older states."""
        run = {name: value for part in (*parts, self.recipe, self.machine) for name, value in asdict(part).items()}
        for name in (*LIMITS, "usual_epochs", "usual_steps", "usual_time", "patience"):
            del run[name]
        return run

    def ranges(self) -> dict[str, Range | Words]:
        """Return the ranges of the settings that are numbers, and the words of those that are one of some words."""
        declared = (item for part in self.parts().values() for item in fields(part))
        return {item.name: item.metadata["range"] for item in declared if "range" in item.metadata}

    def override(self, **settings: Any) -> Self:
        """Return the configuration with these settings. Raises TypeError for one that no part has, OptionError as they do."""
        if unknown := settings.keys() - self.settings().keys():
            raise TypeError(f"a training has no setting {min(unknown)!r}")
        settings = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in settings.items()}
        parts = self.parts()
        for name, part in parts.items():
            for item in fields(part):
                value = settings.get(item.name, "")
                if item.type in (str, str | None) and not isinstance(value, str) and (value is not None or item.type is str):
                    raise SettingError(item.name, f"{shown(repr(value))} is not text")
            parts[name] = replace(part, **{key: settings[key] for key in vars(part) if key in settings})
        return replace(self, **parts)


AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass
class Observer(Listener):
    """Functions that are called with the progress of a training. The defaults show nothing."""

    on_read: Progress | None = None  # bytes of the inputs
    on_pairs: Callable[[int], object] = silent  # pairs or sentences prepared
    on_step: Callable[[int, float, float], None] = silent  # step, share of the run done before, loss per item
    on_record: Callable[[dict[str, Any]], None] = silent  # of the log, at every evaluation
