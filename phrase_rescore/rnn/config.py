"""Settings of a training on phrase pairs, and their presets. No torch here: ``--help`` shows the presets."""

from dataclasses import dataclass, field
from typing import Any, Self

from phrase_rescore.moses.table import WHOLE, Factors
from phrase_rescore.ranges import FACTORS, LAYERS, Checked, Words, check, ranged
from phrase_rescore.training.config import LAYER_SIZES, TIMES, Pairs, Recipe, Settings

RATES = {"gru": 8e-3, "lstm": 8e-3, "rnn": 3e-3}  # Adam's highest, by cell; docs/experiments/structures.md has the search
# The encoders: of each stack, as its tensors are called, whether it reads the words from the last one
ENCODERS = {"forward": {"forward": False}, "reversed": {"forward": True}, "bidirectional": {"forward": False, "backward": True}}


@dataclass(frozen=True)
class Phrases(Checked):
    """Which phrase pairs of the inputs are read, what of their words, and in which direction."""

    form: str | None = ranged(None, Words(("table", "extract", "tsv")))  # None: by the content
    factors: Factors = WHOLE
    drop_bad_rows: bool = False
    min_count: int = ranged(1, TIMES)
    inverse: bool = False  # learn p(source | target)

    def __post_init__(self) -> None:
        super().__post_init__()
        for factor in self.factors:
            if factor is not None:
                check("factors", factor, FACTORS)


@dataclass(frozen=True)
class Network(Checked):
    """The structure of the network, and its sizes."""

    cell: str = ranged("gru", Words(RATES))  # of encoder and decoder
    layers: int = ranged(1, LAYERS)  # of encoder and decoder
    encoder: str = ranged("forward", Words(ENCODERS))
    hidden: int = ranged(300, LAYER_SIZES)
    embedding: int = ranged(100, LAYER_SIZES)
    maxout: int = ranged(150, LAYER_SIZES)  # units, each pooling 2
    rank: int = ranged(100, LAYER_SIZES)  # of the output matrix


@dataclass(frozen=True)
class Start(Checked):
    """The weights before the first step, and what steps minimize."""

    paper_initialisation: bool = False
    init_from: str | None = None  # a model directory
    # full: over all words; sampled: over drawn ones for most of the run
    softmax: str = ranged("auto", Words(("auto", "full", "sampled")))


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """All settings of a training on phrase pairs."""

    pairs: Pairs = field(default_factory=Pairs)
    phrases: Phrases = field(default_factory=Phrases)
    network: Network = field(default_factory=Network)
    start: Start = field(default_factory=Start)

    def override(self, **settings: Any) -> Self:
        """Return the configuration with these settings, and with those that follow from them unless given.

        Maxout units are half as many as hidden ones, as in the paper; with the default preset a cell has its own rate.

        >>> TrainingConfig().override(cell="rnn").recipe.learning_rate, TrainingConfig().override(hidden=500).network.maxout
        (0.003, 250)
        """
        implied: dict[str, Any] = {}
        if "hidden" in settings:
            implied["maxout"] = max(1, settings["hidden"] // 2)
        if self.preset == "default" and settings.get("cell") in RATES:
            implied["learning_rate"] = RATES[settings["cell"]]
        return super().override(**implied | settings)


PRESETS = {
    "default": TrainingConfig(),
    # Cho et al. (2014), section 4.1; the clipped norm of the summed gradient is from the authors' released code
    "paper": TrainingConfig(
        "paper", network=Network(hidden=1000, maxout=500), start=Start(paper_initialisation=True, softmax="full"),
        recipe=Recipe(
            optimizer="adadelta", learning_rate=1.0, objective="sum", decay=False, warm_up=0.0, batch_size=64, usual_time=0.0
        ),
    ),
}  # fmt: skip
