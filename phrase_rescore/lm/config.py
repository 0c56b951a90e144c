"""Settings of the training of a language model, and their presets. No torch here: ``--help`` shows the presets."""

from dataclasses import dataclass, field

from phrase_rescore.ranges import Checked, Range, Whole, ranged
from phrase_rescore.training.config import LAYER_SIZES, TIMES, Recipe, Settings


@dataclass(frozen=True)
class Text(Checked):
    """The text to train on, and how its words become ids."""

    vocab: str | None = None  # file of the words that the network knows
    shortlist: int = ranged(15_000, TIMES)  # words
    min_count: int = ranged(1, TIMES)  # of a word
    held_out: int = ranged(2_000, Whole(0, 10**9))  # sentences at most
    held_out_share: float = ranged(0.01, Range(0, 0.5))  # of the sentences at most
    text_dir: str | None = None  # None: LM.text


@dataclass(frozen=True)
class LanguageModelNetwork(Checked):
    """The sizes of the network, and its weights before the first step."""

    order: int = ranged(7, Whole(2, 100))  # words of an n-gram
    embedding: int = ranged(256, LAYER_SIZES)
    hidden: int = ranged(512, LAYER_SIZES)  # first layer
    output: int | None = ranged(None, LAYER_SIZES)  # second layer, and output embeddings of their own; None: the input's serve
    paper_initialisation: bool = False
    init_from: str | None = None  # a model directory


@dataclass(frozen=True)
class Regularization(Checked):
    """Regularization against memorizing the text, and for scores without a division."""

    dropout: float = ranged(0.2, Range(0, 0.95))  # of embeddings and hidden units
    shorten: float = ranged(0.1, Range(0, 1))  # share of the contexts that lose their oldest words
    self_normalize: float = ranged(0.1, Range(0, 1000))  # α of α log² Z (Devlin et al. 2014, section 2.2)


@dataclass(frozen=True)
class LanguageModelConfig(Settings):
    """All settings of the training of a language model."""

    text: Text = field(default_factory=Text)
    network: LanguageModelNetwork = field(default_factory=LanguageModelNetwork)
    regularization: Regularization = field(default_factory=Regularization)
    recipe: Recipe = field(default_factory=lambda: Recipe(learning_rate=2e-3, batch_size=1024, usual_epochs=15.0))


PRESETS = {
    "default": LanguageModelConfig(),
    # Cho et al. (2014), section 4.1.1. It does not name its optimizer; this is that of its phrase model
    "paper": LanguageModelConfig(
        "paper", text=Text(held_out_share=0.001), regularization=Regularization(dropout=0.0, shorten=0.0),
        network=LanguageModelNetwork(embedding=512, hidden=1536, output=1024, paper_initialisation=True),
        recipe=Recipe(
            optimizer="adadelta", learning_rate=1.0, decay=False, warm_up=0.0, batch_size=128, patience=10,
            usual_epochs=100.0, usual_time=0.0,
        ),
    ),
}  # fmt: skip
