"""The model directory of a network that scores phrase pairs. ``storage`` has what it shares with other models:
config.json                          format version 1: what the tensors mean, sizes, UNK shares, training summary
model-00001-of-00001.safetensors     the weights by the names of docs/model.md, float32
source.vocab, target.vocab           one word a line: bytes, tab, count; line i (from 1) has id i + 1
train.log.jsonl                      measurements of the training (not part of the model)
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.vocabulary import SIDES, SOURCE_VOCAB, TARGET_VOCAB, Vocabulary, factor_counts, refuse_swapped
from phrase_rescore.moses.table import WHOLE, Factors, select_factor, words
from phrase_rescore.nn import storage
from phrase_rescore.nn.storage import Config, as_json, is_whole, require
from phrase_rescore.ranges import LAYERS
from phrase_rescore.rnn.config import ENCODERS
from phrase_rescore.rnn.network import CELLS, ModelConfig, RNNEncoderDecoder

_STRUCTURE = ("cell", "layers", "encoder")  # of ModelConfig: config.json has it under ``encoder`` and ``decoder``
_KNOWN = f"knows cell {' or '.join(CELLS)}, layers {LAYERS.least} to {LAYERS.most}, encoder {' or '.join(ENCODERS)}"
_LAST_FACTOR = 999  # a pattern is made of the number; Moses has 4 factors


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to use. Source and target are those of the phrase table."""

    model: RNNEncoderDecoder
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    unk_shares: tuple[float, float]  # UNK's share of the training words, source and target
    training: dict[str, Any]  # the training summary
    signature: str = ""
    inverse: bool = False  # it reads targets and gives p(source | target)
    factors: Factors = WHOLE  # which factor of a word (0, 1, …) it knows, source and target; None: words are whole tokens

    @property
    def sides(self) -> tuple[str, str]:
        """The side that the model reads and the one that it predicts."""
        return ("target", "source") if self.inverse else ("source", "target")

    @property
    def vocabs(self) -> tuple[Vocabulary, Vocabulary]:
        """The vocabularies of the side that the model reads and of the one that it predicts."""
        return (self.tgt_vocab, self.src_vocab) if self.inverse else (self.src_vocab, self.tgt_vocab)

    @property
    def read_factor(self) -> int | None:
        """The factor that the model knows of words that it reads."""
        return self.factors[SIDES.index(self.sides[0])]

    def as_read(self, phrases: Sequence[bytes]) -> Sequence[bytes]:
        """Return phrases with single blanks, of words the factor that the model reads. Raises RowError if a word lacks it."""
        return select_factor([b" ".join(words(phrase)) for phrase in phrases], self.read_factor, self.sides[0])

    def refuse_swapped(self, name: str, src: Iterable[bytes], tgt: Iterable[bytes], model: str = "the model") -> None:
        """Raise InputError if these phrases of an input (single blanks between words) are those of the other direction."""
        src_words, tgt_words = (Counter(b" ".join(phrases).split(b" ")) for phrases in (src, tgt))
        self.refuse_swapped_words(name, src_words, tgt_words, model)

    def refuse_swapped_words(self, name: str, src: Counter[bytes], tgt: Counter[bytes], model: str = "the model") -> None:
        """Raise InputError likewise, for counts of words."""
        seen = factor_counts(src, self.factors[0], SIDES[0]), factor_counts(tgt, self.factors[1], SIDES[1])
        refuse_swapped(name, seen, (self.src_vocab, self.tgt_vocab), model)

    def for_model(self, pairs: EncodedPairs) -> EncodedPairs:
        """Return pairs as the network takes them, the side that it reads first."""
        return pairs.swapped if self.inverse else pairs


def _entries(cell: str, layers: int, encoder: str) -> dict[str, Any]:
    cells = CELLS[cell]
    direction, order = ("bidirectional", "forward") if encoder == "bidirectional" else ("forward", encoder)
    return {
        "encoder": {"cell": cells.encoder.NAME, "layers": layers, "direction": direction, "source_order": order},
        "decoder": {"cell": cells.decoder.NAME, "layers": layers},
    }


def _structure_of(entries: Mapping[str, Any]) -> dict[str, Any] | None:
    found = json.dumps({side: entries.get(side) for side in ("encoder", "decoder")}, sort_keys=True)  # text: true is not 1
    for structure in product(CELLS, range(1, int(LAYERS.most) + 1), ENCODERS):
        if json.dumps(_entries(*structure), sort_keys=True) == found:
            return dict(zip(_STRUCTURE, structure, strict=True))
    return None


def _signature(checkpoint: Checkpoint) -> str:
    """Return a line that names the model: what it scores, sizes, a structure other than the default, a hash, our version."""
    given, predicted = checkpoint.sides
    known = zip(SIDES, checkpoint.factors, strict=True)
    config = checkpoint.model.config
    chosen = [(item.name, getattr(config, item.name)) for item in fields(config) if getattr(config, item.name) != item.default]
    parts = [f"p({predicted}|{given})", *(f"{side}-factor:{factor}" for side, factor in known if factor is not None)]
    parts += [f"{name}:{value}" for name, value in chosen if not name.endswith("_vocabulary")]
    vocabularies = checkpoint.src_vocab, checkpoint.tgt_vocab
    return storage.signature_of(storage.RNN_ENCODER_DECODER, parts, checkpoint.model, vocabularies)


def save(checkpoint: Checkpoint, directory: str) -> None:
    """Write the model's files into an existing directory. The same model gives the same bytes."""
    sizes = asdict(checkpoint.model.config)
    entries = {
        **_entries(**{name: sizes.pop(name) for name in _STRUCTURE}),
        "inverse": checkpoint.inverse,
        "factors": dict(zip(SIDES, checkpoint.factors, strict=True)),
        "sizes": sizes,
        "unk_share": dict(zip(SIDES, checkpoint.unk_shares, strict=True)),
    }
    vocabularies = {SOURCE_VOCAB: checkpoint.src_vocab, TARGET_VOCAB: checkpoint.tgt_vocab}
    storage.save_files(directory, storage.RNN_ENCODER_DECODER, checkpoint.model, entries, vocabularies, checkpoint.training)


def _factors(config: Config) -> Factors:
    factors: Any = config.entries.get("factors")
    usable = isinstance(factors, dict) and sorted(factors) == sorted(SIDES)
    usable = usable and all(factor is None or is_whole(factor, 0, _LAST_FACTOR) for factor in factors.values())
    require(usable, f"{config.path}: factors {as_json(factors)} are not one of source and target, 0 to {_LAST_FACTOR} or null")
    return factors["source"], factors["target"]


def load(directory: str) -> Checkpoint:
    """Read a model directory. Raises ModelError for what is missing, unknown, contradictory, not finite, or has changed."""
    with storage.unchanged(directory):
        config = Config(directory)
        config.check_kind(storage.RNN_ENCODER_DECODER)
        structure = _structure_of(config.entries)
        config.know(structure is not None, _KNOWN, "encoder", "decoder")
        sizes = config.sizes(ModelConfig, structure or {})
        inverse: Any = config.entries.get("inverse")
        require(isinstance(inverse, bool), f"{config.path}: inverse {as_json(inverse)} is not true or false")
        factors, unk_shares = _factors(config), config.unk_shares()
        src_ids, tgt_ids = sizes.src_vocabulary, sizes.tgt_vocabulary
        src_vocab = storage.read_words(directory, SOURCE_VOCAB, tgt_ids if inverse else src_ids)
        tgt_vocab = storage.read_words(directory, TARGET_VOCAB, src_ids if inverse else tgt_ids)
        network = storage.load_network(directory, config, RNNEncoderDecoder, sizes)
        loaded = Checkpoint(network, src_vocab, tgt_vocab, unk_shares, config.training(), "", inverse, factors)
        return replace(loaded, signature=_signature(loaded))
