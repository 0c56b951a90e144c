"""The model directory of a language model (docs/lm-model.md). ``storage`` has what it shares with other models."""

from dataclasses import asdict, dataclass
from typing import Any

from phrase_rescore.data.vocabulary import Vocabulary, untrained_unk
from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes
from phrase_rescore.nn import storage
from phrase_rescore.nn.storage import Config, is_share, require

WORDS = "words.vocab"
_ACTIVATION = "rectifier"


@dataclass(frozen=True)
class LanguageModel:
    """A language model ready to use. ``unk_share``: UNK's share of the training words."""

    model: FeedforwardLM
    vocab: Vocabulary
    unk_share: float
    training: dict[str, Any]  # the training summary
    signature: str = ""


def warnings(lm: LanguageModel, lower_orders: bool = False) -> list[str]:
    """Return warnings of what was not trained: the unknown word, and shorter contexts if ``lower_orders`` are needed."""
    lines = untrained_unk({"": lm.unk_share}, "scores of unknown words mean nothing")
    if lower_orders and not lm.training.get("shorten"):
        lines.append("trained with --shorten 0: scores after fewer words than the model reads mean nothing")
    return lines


def save(lm: LanguageModel, directory: str) -> None:
    """Write the model's files into an existing directory. The same model gives the same bytes."""
    entries = {"activation": _ACTIVATION, "sizes": asdict(lm.model.config), "unk_share": lm.unk_share}
    storage.save_files(directory, storage.FEEDFORWARD_LM, lm.model, entries, {WORDS: lm.vocab}, lm.training)


def load(directory: str) -> LanguageModel:
    """Read a model directory. Raises ModelError as ``checkpoint.load`` does, also for a model of phrase pairs."""
    with storage.unchanged(directory):
        config = Config(directory)
        config.check_kind(storage.FEEDFORWARD_LM)
        config.know(config.entries.get("activation") == _ACTIVATION, f'knows "{_ACTIVATION}"', "activation")
        sizes = config.sizes(LanguageModelSizes, {})
        share: Any = config.entries.get("unk_share")
        require(is_share(share), f"{config.path}: 'unk_share' is missing or not a number from 0 to 1")
        require(sizes.order >= 2, f"{config.path}: sizes.order is {sizes.order}, but an n-gram has at least 2 words")
        fits = sizes.output == sizes.embedding or not sizes.tied
        require(fits, f"{config.path}: sizes.tied, but sizes.output is not sizes.embedding")
        vocab = storage.read_words(directory, WORDS, sizes.vocabulary)
        network = storage.load_network(directory, config, FeedforwardLM, sizes)
        parts = [f"{name}:{size}" for name, size in asdict(sizes).items() if name != "vocabulary"]
        signature = storage.signature_of(storage.FEEDFORWARD_LM, parts, network, (vocab,))
        return LanguageModel(network, vocab, float(share), config.training(), signature)
