"""The model directory of a translation model. ``storage`` has what it shares with other models.

NMT/
    config.json                          format version 1: sizes, UNK shares, training summary
    model-00001-of-00001.safetensors     the weights by the names of docs/nmt-model.md, float32
    source.vocab, target.vocab           one word a line: bytes, tab, count; line i (from 1) has id i + 1
    train.log.jsonl                      measurements of the training (not part of the model)
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from phrase_rescore.data.vocabulary import Vocabulary, refuse_swapped
from phrase_rescore.nmt.network import TranslationModel, TranslationSizes
from phrase_rescore.nn import storage
from phrase_rescore.nn.storage import Config, is_share, require
from phrase_rescore.rnn.checkpoint import SIDES, SOURCE_VOCAB, TARGET_VOCAB


@dataclass(frozen=True)
class Translation:
    """A translation model ready to use."""

    model: TranslationModel
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    unk_shares: tuple[float, float]  # UNK's share of the training words, source and target
    training: dict[str, Any]  # the training summary
    signature: str = ""

    def refuse_swapped(self, name: str, src: Iterable[bytes], tgt: Iterable[bytes]) -> None:
        """Raise InputError if these words of an input are those of the other direction."""
        refuse_swapped(name, (Counter(src), Counter(tgt)), (self.src_vocab, self.tgt_vocab))


def save(translation: Translation, directory: str) -> None:
    """Write the model's files into an existing directory. The same model gives the same bytes."""
    entries = {
        "sizes": asdict(translation.model.config),
        "unk_share": dict(zip(SIDES, translation.unk_shares, strict=True)),
    }
    vocabularies = {SOURCE_VOCAB: translation.src_vocab, TARGET_VOCAB: translation.tgt_vocab}
    storage.save_files(directory, storage.ATTENTION, translation.model, entries, vocabularies, translation.training)


def load(directory: str) -> Translation:
    """Read a model directory. Raises ModelError as ``rnn.checkpoint.load`` does, also for a model of another kind."""
    with storage.unchanged(directory):
        config = Config(directory)
        config.check_kind(storage.ATTENTION)
        sizes, by_side = config.sizes(TranslationSizes, {}), config.entries.get("unk_share")
        shares: list[Any] = [by_side.get(side) for side in SIDES] if isinstance(by_side, dict) else [None]
        require(all(map(is_share, shares)), f"{config.path}: 'unk_share' is missing or not a pair of numbers from 0 to 1")
        src_vocab = storage.read_words(directory, SOURCE_VOCAB, sizes.src_vocabulary)
        tgt_vocab = storage.read_words(directory, TARGET_VOCAB, sizes.tgt_vocabulary)
        network = storage.load_network(directory, config, TranslationModel, sizes)
        loaded = Translation(network, src_vocab, tgt_vocab, (float(shares[0]), float(shares[1])), config.training())
        parts = ["p(target|source)", f"hidden:{sizes.hidden}", f"embedding:{sizes.embedding}"]
        return replace(loaded, signature=storage.signature_of(storage.ATTENTION, parts, network, (src_vocab, tgt_vocab)))
