"""Settings of the training of a translation model on sentence pairs. No torch here: ``--help`` shows the presets."""

from dataclasses import dataclass, field

from phrase_rescore.ranges import Checked, Range, ranged
from phrase_rescore.training.config import LAYER_SIZES, Pairs, Recipe, Settings


@dataclass(frozen=True)
class TranslationNetwork(Checked):
    """The sizes of the network, and its regularization."""

    hidden: int = ranged(320, LAYER_SIZES)  # units of every layer
    embedding: int = ranged(256, LAYER_SIZES)
    dropout: float = ranged(0.3, Range(0, 0.95))  # of embeddings and layers


@dataclass(frozen=True)
class TranslationConfig(Settings):
    """All settings of the training of a translation model."""

    pairs: Pairs = field(default_factory=lambda: Pairs(max_length=100))
    network: TranslationNetwork = field(default_factory=TranslationNetwork)
    recipe: Recipe = field(
        # BLEU gains long after the held-out loss has begun to rise: the last weights
        default_factory=lambda: Recipe(learning_rate=2e-3, batch_size=96, usual_epochs=15.0, usual_steps=1200, keep_last=True)
    )


PRESETS = {"default": TranslationConfig()}
