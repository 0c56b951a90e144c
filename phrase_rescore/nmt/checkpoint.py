"""The model directory of a translation model (docs/nmt-model.md). ``storage`` has what it shares with other models."""

from dataclasses import asdict, dataclass
from typing import Any

from phrase_rescore.data.vocabulary import SIDES, SOURCE_VOCAB, TARGET_VOCAB, Vocabulary
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes
from phrase_rescore.nn import storage
from phrase_rescore.nn.storage import Config


@dataclass(frozen=True)
class Translation:
    """A translation model ready to use."""

    model: TranslationModel
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    unk_shares: tuple[float, float]  # UNK's share of the training words, source and target
    training: dict[str, Any]  # the training summary
    signature: str = ""


def save(translation: Translation, directory: str) -> None:
    """Write the model's files into an existing directory. The same model gives the same bytes."""
    entries = {"sizes": asdict(translation.model.config), "unk_share": dict(zip(SIDES, translation.unk_shares, strict=True))}
    vocabularies = {SOURCE_VOCAB: translation.src_vocab, TARGET_VOCAB: translation.tgt_vocab}
    storage.save_files(directory, storage.ATTENTION, translation.model, entries, vocabularies, translation.training)


def load(directory: str) -> Translation:
    """Read a model directory. Raises ModelError as ``rnn.checkpoint.load`` does, also for a model of another kind."""
    with storage.unchanged(directory):
        config = Config(directory)
        config.check_kind(storage.ATTENTION)
        sizes, unk_shares = config.sizes(TranslationSizes, {}), config.unk_shares()
        src_vocab = storage.read_words(directory, SOURCE_VOCAB, sizes.src_vocabulary)
        tgt_vocab = storage.read_words(directory, TARGET_VOCAB, sizes.tgt_vocabulary)
        network = storage.load_network(directory, config, TranslationModel, sizes)
        parts = ["p(target|source)", f"hidden:{sizes.hidden}", f"embedding:{sizes.embedding}"]
        signature = storage.signature_of(storage.ATTENTION, parts, network, (src_vocab, tgt_vocab))
        return Translation(network, src_vocab, tgt_vocab, unk_shares, config.training(), signature)
