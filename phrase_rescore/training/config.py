"""Settings of a training on phrase pairs in small parts, one for each of its steps, and the presets, which are values of them.

No torch here: ``--help`` shows the presets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from phrase_rescore.errors import OptionError
from phrase_rescore.moses.factors import WHOLE, Factors
from phrase_rescore.ranges import (
    BYTES,
    FACTORS,
    LAYERS,
    LENGTHS,
    SECONDS,
    SEEDS,
    THREADS,
    Checked,
    Decimal,
    Range,
    Whole,
    check,
    ranged,
    ranges_of,
)
from phrase_rescore.runtime import local_processes, usable_cores

_SIZES = Whole(1, 100_000)  # of layers
RATES = {"gru": 8e-3, "lstm": 8e-3, "rnn": 3e-3}  # Adam's highest, by cell; docs/model.md has the search
_TIMES, _STEPS = Whole(1, 10**9), Whole(1, 10**12)


@dataclass(frozen=True)
class Data(Checked):
    """Which pairs are learnt, in which direction, and how their words become ids."""

    form: str | None = None  # table, extract or tsv; None: told by the content
    factors: Factors = WHOLE
    drop_bad_rows: bool = False
    inverse: bool = False  # learn p(source | target)
    source_vocab: str | None = None  # file of the shortlist
    target_vocab: str | None = None
    vocab_corpus: tuple[str, str] | None = None  # count words over these files, source and target
    allow_poor_coverage: bool = False  # of the pairs' words by a given vocabulary
    shortlist: int = ranged(15_000, Whole(1, 10**9))  # words a side
    held_out: int = ranged(10_000, Whole(0, 10**9))  # pairs at most
    min_count: int = ranged(1, _TIMES)
    max_length: int | None = ranged(None, LENGTHS)  # words of a phrase
    pairs_dir: str | None = None  # None: MODEL_DIR.pairs
    scratch: str | None = None  # None: where temporary files go
    memory: int = ranged(1 << 30, BYTES)  # bytes that sorting may use

    def __post_init__(self) -> None:
        super().__post_init__()
        for factor in self.factors:
            if factor is not None:
                check("factors", factor, FACTORS)


@dataclass(frozen=True)
class Network(Checked):
    """The structure of the network, and its sizes."""

    cell: str = "gru"  # of encoder and decoder; or lstm, rnn
    layers: int = ranged(1, LAYERS)  # of encoder and decoder
    encoder: str = "forward"  # or reversed, bidirectional
    hidden: int = ranged(500, _SIZES)
    embedding: int = ranged(100, _SIZES)
    maxout: int = ranged(250, _SIZES)  # units, each pooling 2
    rank: int = ranged(100, _SIZES)  # of the output matrix


@dataclass(frozen=True)
class Start:
    """The weights before the first step."""

    paper_initialisation: bool = False
    init_from: str | None = None  # a model directory
    init: str = "all"  # the part of its weights that is taken over
    freeze: tuple[str, ...] = ()  # parts that do not learn


@dataclass(frozen=True)
class Recipe(Checked):
    """How the weights are learnt, and when that ends.

    The rate rises linearly for the share ``warm_up`` of the run and, with ``decay``, falls linearly to 0 at its end.

    Raises OptionError for a number that is out of its range, and if groups do not fill a minibatch.
    """

    optimizer: str = "adam"  # or adadelta
    learning_rate: float = ranged(RATES["gru"], Decimal(0, 1000, above=True))  # at its highest
    objective: str = "mean"  # the gradient is that of the minibatch's sum or mean
    clip: float = ranged(1.0, Decimal(0, 1e9, above=True))  # largest norm of that gradient
    decay: bool = True
    warm_up: float = ranged(0.02, Decimal(0, 1))
    batch_size: int = ranged(256, Whole(1, 10_000_000))
    seed: int = ranged(1, SEEDS)  # of the initial weights and the order of the data
    epochs: float = ranged(5.0, Decimal(0, 1e6, above=True))  # passes over the data, unless steps or time are given
    max_steps: int | None = ranged(None, _STEPS)
    max_time: float | None = ranged(None, SECONDS)
    eval_every: int = ranged(500, _STEPS)
    patience: int | None = ranged(None, _TIMES)  # evaluations without a better one before training ends

    def rate(self, done: float) -> float:
        """Return the learning rate after the share ``done`` (0 to 1) of the run."""
        rising = min(1.0, done / self.warm_up + 0.01) if self.warm_up else 1.0
        return self.learning_rate * rising * (1.0 - done if self.decay else 1.0)

    def needs_held_out(self) -> str:
        """Return the option that needs held-out data, or nothing."""
        return "" if self.patience is None else f"--patience {self.patience}"

    def check_held_out(self, items: int) -> None:
        """Raise OptionError if the recipe needs a held-out loss and nothing is held out."""
        if not items and (needs := self.needs_held_out()):
            remedy = "hold out more (--held-out; of a text --held-out-share, too)"
            raise OptionError(f"{needs} needs held-out data, and there are none; {remedy}")

    def limited(self, items: int) -> Self:
        """Return the recipe with ``max_steps`` for ``epochs`` passes over the items, unless it has a limit already."""
        if self.max_steps is not None or self.max_time is not None:
            return self
        return replace(self, max_steps=max(1, math.ceil(self.epochs * items / min(self.batch_size, max(1, items)))))


@dataclass(frozen=True)
class PairRecipe(Recipe):
    """How the weights are learnt of phrase pairs. Raises OptionError if groups do not fill a minibatch."""

    softmax: str = "auto"  # or full: over all words; or sampled: over drawn ones for most of the run
    group: int = ranged(1, Whole(1, 10_000_000))  # neighbours in the sorted pairs that are drawn together
    final_pass: bool = False  # learn the held-out pairs at the end

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size % self.group:
            what = f"--group {self.group} does not divide --batch-size {self.batch_size}"
            raise OptionError(f"{what}; choose a group that does")

    def needs_held_out(self) -> str:
        """Return the option that needs held-out data, or nothing."""
        return super().needs_held_out() or ("--final-pass" if self.final_pass else "")


@dataclass(frozen=True)
class Machine(Checked):
    """What computes. ``threads`` are those of each process, by default its share of the cores."""

    device: str = "auto"
    precision: str = "float32"
    threads: int = field(default_factory=lambda: max(1, usable_cores() // local_processes()), metadata={"range": THREADS})


@dataclass(frozen=True)
class Output(Checked):
    """How the model is written, and what happens to what is there already."""

    overwrite: bool = False
    resume: bool = False  # go on with an interrupted training
    save_dtype: str = "float32"
    shard_size: int | None = ranged(None, BYTES)  # bytes of the largest file of weights


class Settings:
    """Settings in parts, each a dataclass, and ``preset``, the name that the model's config.json records.

    No two parts have a setting of the same name.
    """

    preset: str

    def parts(self) -> dict[str, Any]:
        """Return the parts by name."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "preset"}  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """Return the settings of all parts by name."""
        return {name: value for part in self.parts().values() for name, value in vars(part).items()}

    def ranges(self) -> dict[str, Range]:
        """Return the ranges of the settings that are numbers."""
        return {name: wanted for part in self.parts().values() for name, wanted in ranges_of(part).items()}

    def override(self, **settings: Any) -> Self:
        """Return the configuration with these settings in place of its own, each in the part that has it.

        Raises TypeError for a setting that no part has, OptionError as the parts do.

        >>> PRESETS["paper"].override(hidden=10, max_steps=5).network
        Network(cell='gru', layers=1, encoder='forward', hidden=10, embedding=100, maxout=500, rank=100)
        """
        if unknown := settings.keys() - self.settings().keys():
            raise TypeError(f"a training has no setting {min(unknown)!r}")
        changed = {
            name: replace(part, **{key: settings[key] for key in vars(part) if key in settings})
            for name, part in self.parts().items()
        }
        return replace(self, **changed)  # type: ignore[type-var]


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """All settings of a training on phrase pairs."""

    preset: str = "default"
    data: Data = field(default_factory=Data)
    network: Network = field(default_factory=Network)
    start: Start = field(default_factory=Start)
    recipe: PairRecipe = field(default_factory=PairRecipe)
    machine: Machine = field(default_factory=Machine)
    output: Output = field(default_factory=Output)

    def override(self, **settings: Any) -> Self:
        """Return the configuration with these settings. A cell brings its rate to the default preset, if no other is given.

        Raises as ``Settings.override`` does.

        >>> TrainingConfig().override(cell="rnn").recipe.learning_rate
        0.003
        """
        rate = RATES.get(settings.get("cell", "")) if self.preset == "default" else None
        return super().override(**({} if rate is None else {"learning_rate": rate}) | settings)


PRESETS = {
    "default": TrainingConfig(),
    # Cho et al. (2014), section 4.1; the clipped norm of the summed gradient is from the authors' released code
    "paper": TrainingConfig(
        "paper",
        network=Network(hidden=1000, maxout=500),
        start=Start(paper_initialisation=True),
        recipe=PairRecipe(
            optimizer="adadelta",
            learning_rate=1.0,
            objective="sum",
            decay=False,
            warm_up=0.0,
            batch_size=64,
            softmax="full",
        ),
    ),
}

RANGES = TrainingConfig().ranges()


@dataclass
class Observer:
    """Functions that are told how a training goes. The command line shows it; another caller need not care.

    ``on_step`` gets the step, the share of the run done before it, the loss per item and the number of items; ``on_record``
    gets a record of the log at every evaluation.
    """

    say: Callable[[str], None] = lambda message: None
    on_read: Callable[[int], object] | None = None  # bytes of the inputs
    on_pairs: Callable[[int], object] | None = None  # pairs prepared
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None
    on_record: Callable[[dict[str, Any]], None] = lambda record: None
