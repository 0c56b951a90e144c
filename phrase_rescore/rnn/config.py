"""Settings of a training on phrase pairs, and their presets. No torch here: ``--help`` shows the presets."""

from dataclasses import dataclass, field
from typing import Any, Self

from phrase_rescore.moses.table import WHOLE, Factors
from phrase_rescore.ranges import BYTES, FACTORS, LAYERS, LENGTHS, Checked, Whole, check, ranged
from phrase_rescore.training.config import LAYER_SIZES, TIMES, Recipe, Settings

RATES = {"gru": 8e-3, "lstm": 8e-3, "rnn": 3e-3}  # Adam's highest, by cell; docs/experiments/structures.md has the search


@dataclass(frozen=True)
class Data(Checked):
    """The pairs to train on, the direction, and how their words become ids."""

    form: str | None = None  # table, extract or tsv; None: by the content
    factors: Factors = WHOLE
    drop_bad_rows: bool = False
    inverse: bool = False  # learn p(source | target)
    source_vocab: str | None = None  # file of the shortlist
    target_vocab: str | None = None
    vocab_corpus: tuple[str, str] | None = None  # count words over these files, source and target
    allow_poor_coverage: bool = False  # of the pairs' words by a given vocabulary
    shortlist: int = ranged(15_000, TIMES)  # words a side
    held_out: int = ranged(10_000, Whole(0, 10**9))  # pairs at most
    min_count: int = ranged(1, TIMES)
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
    hidden: int = ranged(300, LAYER_SIZES)
    embedding: int = ranged(100, LAYER_SIZES)
    maxout: int = ranged(150, LAYER_SIZES)  # units, each pooling 2
    rank: int = ranged(100, LAYER_SIZES)  # of the output matrix


@dataclass(frozen=True)
class Start:
    """The weights before the first step."""

    paper_initialisation: bool = False
    init_from: str | None = None  # a model directory


@dataclass(frozen=True)
class PairRecipe(Recipe):
    """How the weights are trained on phrase pairs."""

    softmax: str = "auto"  # or full: over all words; or sampled: over drawn ones for most of the run


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """All settings of a training on phrase pairs."""

    data: Data = field(default_factory=Data)
    network: Network = field(default_factory=Network)
    start: Start = field(default_factory=Start)
    recipe: PairRecipe = field(default_factory=PairRecipe)

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
        "paper", network=Network(hidden=1000, maxout=500), start=Start(paper_initialisation=True),
        recipe=PairRecipe(
            optimizer="adadelta", learning_rate=1.0, objective="sum", decay=False, warm_up=0.0, batch_size=64, softmax="full",
            usual_time=0.0,
        ),
    ),
}  # fmt: skip
