"""The model directory: config.json, weights in safetensors shards, two vocabulary files. Nothing in it is executed.

phrase-rescore-model/
    config.json                          format version 1: what the tensors mean, sizes, UNK shares, training summary
    model-00001-of-00001.safetensors     the weights by the names of docs/model.md, float32 or bfloat16
    source.vocab, target.vocab           one word a line: bytes, tab, count; line i (from 1) has id i + 1
    train.log.jsonl                      what was measured on the way (not part of the model)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from phrase_rescore import __version__
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.vocabulary import Vocabulary, format_vocabulary, read_vocabulary
from phrase_rescore.errors import InputError, ModelError, OptionError, RescoreError, cannot_write, printable
from phrase_rescore.files.atomic import replace_directory
from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder
from phrase_rescore.moses.factors import WHOLE, Factors

FORMAT_VERSION = 1
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SAFETENSORS_DTYPES = {"float32": "F32", "bfloat16": "BF16"}
SIDES = ("source", "target")
CONFIG, SOURCE_VOCAB, TARGET_VOCAB, LOG = "config.json", "source.vocab", "target.vocab", "train.log.jsonl"

# What this version can build; any other value in a config is an error and not a guess.
STRUCTURE: dict[str, Any] = {
    "kind": "rnn-encoder-decoder",
    "encoder": {"cell": "cho-gru-reset-before", "layers": 1, "direction": "forward", "source_order": "forward"},
    "decoder": {"cell": "cho-gru-reset-after", "layers": 1},
}

_WEIGHT_FILE = re.compile(r"[\w.-]+\.safetensors", re.ASCII)  # in the directory, and nowhere else
_DEPTH = 32  # of the JSON in a config; ours has 4
_LAST_FACTOR = 999  # a pattern is made of the number; Moses has 4 factors
_MOST_PARAMETERS = 1 << 60  # the numbers of a tensor are counted in 64 bits


@dataclass(frozen=True)
class Checkpoint:
    """A model with all that is needed to use it.

    Source and target are those of the phrase table: an ``inverse`` model reads targets and gives p(source | target).
    ``factors``: which factor of a word (0, 1, …) the model knows, source and target; None: words are whole tokens.
    ``unk_shares``: UNK's share of the training words, source and target.
    """

    model: RNNEncoderDecoder
    src_vocab: Vocabulary
    tgt_vocab: Vocabulary
    unk_shares: tuple[float, float]
    training: dict[str, Any]  # the training summary
    signature: str = ""
    inverse: bool = False
    factors: Factors = WHOLE

    @property
    def sides(self) -> tuple[str, str]:
        """The side that the model reads and the one that it predicts."""
        return ("target", "source") if self.inverse else ("source", "target")

    @property
    def vocabs(self) -> tuple[Vocabulary, Vocabulary]:
        """Of the side that the model reads and of the one that it predicts."""
        return (self.tgt_vocab, self.src_vocab) if self.inverse else (self.src_vocab, self.tgt_vocab)

    def for_model(self, pairs: EncodedPairs) -> EncodedPairs:
        """Pairs as the network takes them, read side first."""
        return pairs.turned_round if self.inverse else pairs


def _signature(checkpoint: Checkpoint) -> str:
    """One line that names the model: what it scores, its sizes, a hash of weights and vocabularies, our version."""
    digest = hashlib.blake2b(digest_size=8)
    for name, weight in sorted(checkpoint.model.named_weights(), key=lambda item: item[0]):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    for vocabulary in (checkpoint.src_vocab, checkpoint.tgt_vocab):
        digest.update(b"\0" + b"\n".join(vocabulary.words))
    c = checkpoint.model.config
    given, predicted = checkpoint.sides
    factors = "".join(
        f"|{side}-factor:{factor}" for side, factor in zip(SIDES, checkpoint.factors, strict=True) if factor is not None
    )
    return (
        f"{STRUCTURE['kind']}|p({predicted}|{given}){factors}|hidden:{c.hidden}|embedding:{c.embedding}|maxout:{c.maxout}|rank:{c.rank}"
        f"|words:{len(checkpoint.src_vocab.words)}/{len(checkpoint.tgt_vocab.words)}|model:{digest.hexdigest()}"
        f"|version:{__version__}"
    )


def _shards(tensors: dict[str, Tensor], shard_size: int | None) -> list[dict[str, Tensor]]:
    """Cuts tensors, in order, into groups of at most ``shard_size`` bytes; a larger tensor has a shard of its own."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shard_size is not None and shards[-1] and size + tensor.nbytes > shard_size:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def save(checkpoint: Checkpoint, directory: str, dtype: str = "float32", shard_size: int | None = None) -> None:
    """Writes the model's files into an existing directory. The same model gives the same bytes."""
    tensors = {
        name: weight.detach().to("cpu", DTYPES[dtype]).clone(memory_format=torch.contiguous_format)
        for name, weight in checkpoint.model.named_weights()
    }
    shards = _shards(tensors, shard_size)
    files = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    for name, shard in zip(files, shards, strict=True):
        save_file(shard, os.path.join(directory, name))
    Path(directory, SOURCE_VOCAB).write_bytes(format_vocabulary(checkpoint.src_vocab))
    Path(directory, TARGET_VOCAB).write_bytes(format_vocabulary(checkpoint.tgt_vocab))
    source, target = checkpoint.unk_shares
    config = {
        "format_version": FORMAT_VERSION,
        "made_by": f"phrase-rescore {__version__}",
        **STRUCTURE,
        "inverse": checkpoint.inverse,
        "factors": dict(zip(SIDES, checkpoint.factors, strict=True)),
        "sizes": asdict(checkpoint.model.config),
        "unk_share": {"source": source, "target": target},
        "weights": {"dtype": dtype, "files": files, "parameters": checkpoint.model.config.parameters()},
        "training": checkpoint.training,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    Path(directory, CONFIG).write_text(text, encoding="utf-8", newline="\n")


def _told(value: Any) -> str:
    """A value of a config as JSON, for a message."""
    return printable(json.dumps(value), limit=200)


def _check_regular(path: str) -> None:
    """Raises ModelError for a named pipe or a device, from which one might read for ever."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ModelError(f"{path} is no regular file; the model is damaged, train or copy it again")


def _is_deep(value: Any) -> bool:
    """Whether a JSON value is nested so deeply that walking through it may exhaust Python's stack."""
    level = [value]
    for _ in range(_DEPTH):
        values = (inner.values() if isinstance(inner, dict) else inner for inner in level if isinstance(inner, dict | list))
        level = list(chain.from_iterable(values))
    return bool(level)


def _read_config(directory: str) -> dict[str, Any]:
    path = os.path.join(directory, CONFIG)
    if os.path.isfile(directory):
        raise ModelError(f"{directory}: a file, and no model directory; name the directory that 'phrase-rescore train' made")
    if not os.path.isdir(directory):
        raise ModelError(f"{directory}: no such model directory; make one with 'phrase-rescore train TABLE -m {directory}'")
    _check_regular(path)
    try:
        config = json.loads(Path(path).read_bytes())
        if _is_deep(config):
            raise ValueError(f"nested more than {_DEPTH} deep")
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; is {directory} a model directory?") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: no JSON ({error}); the model is damaged, train or copy it again") from None
    version = config.get("format_version") if isinstance(config, dict) else None
    if not _is_whole(version) or version != FORMAT_VERSION:
        what = f"format_version {_told(version)}, and this version of phrase-rescore reads {FORMAT_VERSION}"
        raise ModelError(f"{path}: {what}; take the version that made the model, or train it again")
    for key, known in STRUCTURE.items():
        if config.get(key) != known:
            found = _told(config.get(key))
            what = f"{key} {found}, and this version of phrase-rescore knows {json.dumps(known)}"
            raise ModelError(f"{path}: {what}; take the version that made the model, or train it again")
    return cast(dict[str, Any], config)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sizes(config: dict[str, Any], path: str) -> ModelConfig:
    try:
        sizes = ModelConfig(**config["sizes"])
    except (KeyError, TypeError):
        raise ModelError(f"{path}: 'sizes' is incomplete or has unknown entries; the model is damaged") from None
    for name, value in asdict(sizes).items():
        if not _is_whole(value) or value < 1:
            raise ModelError(f"{path}: sizes.{name} is {_told(value)}, not a whole number from 1; the model is damaged")
    if sizes.parameters() > _MOST_PARAMETERS:
        raise ModelError(f"{path}: 'sizes' are those of more numbers than any file can hold; the model is damaged")
    return sizes


def _direction_and_factors(config: dict[str, Any], path: str) -> tuple[bool, Factors]:
    inverse, factors = config.get("inverse"), config.get("factors")
    if not isinstance(inverse, bool):
        raise ModelError(f"{path}: inverse {_told(inverse)} is neither true nor false; the model is damaged")
    if not isinstance(factors, dict) or sorted(factors) != sorted(SIDES):
        raise ModelError(f"{path}: factors {_told(factors)} have no source and target; the model is damaged")
    for factor in factors.values():
        if factor is not None and (not _is_whole(factor) or not 0 <= factor <= _LAST_FACTOR):
            found = f"factor {_told(factor)} is no whole number from 0 to {_LAST_FACTOR}"
            raise ModelError(f"{path}: {found}; the model is damaged")
    return inverse, (factors["source"], factors["target"])


def _unk_shares(config: dict[str, Any], path: str) -> tuple[float, float]:
    shares = config.get("unk_share")
    found: list[Any] = [shares.get(side) for side in SIDES] if isinstance(shares, dict) else [None]
    if not all(isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1 for share in found):
        raise ModelError(f"{path}: 'unk_share' is missing or no pair of numbers from 0 to 1; the model is damaged")
    return float(found[0]), float(found[1])


def _read_vocabularies(directory: str) -> tuple[Vocabulary, Vocabulary]:
    paths = [os.path.join(directory, name) for name in (SOURCE_VOCAB, TARGET_VOCAB)]
    try:
        for path in paths:
            _check_regular(path)
        return read_vocabulary(paths[0]), read_vocabulary(paths[1])
    except InputError as error:
        where = error.path if error.line is None else f"{error.path}:{error.line}"
        raise ModelError(f"{where}: {error.found}; the model is damaged, train or copy it again") from None


def _weight_files(config: dict[str, Any], directory: str) -> tuple[list[str], str]:
    """The paths of the safetensors files, and what they call the type of their numbers."""
    path, weights = os.path.join(directory, CONFIG), config.get("weights")
    if not isinstance(weights, dict):
        raise ModelError(f"{path}: 'weights' is missing or no object; the model is damaged")
    dtype, files = weights.get("dtype"), weights.get("files")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ModelError(f"{path}: weights.dtype {_told(dtype)} is none of {', '.join(DTYPES)}; the model is damaged")
    if not isinstance(files, list) or not all(isinstance(name, str) and _WEIGHT_FILE.fullmatch(name) for name in files):
        raise ModelError(f"{path}: weights.files {_told(files)} are no names of .safetensors files; the model is damaged")
    return [os.path.join(directory, name) for name in dict.fromkeys(files)], SAFETENSORS_DTYPES[dtype]


def _load_weights(config: dict[str, Any], directory: str, sizes: ModelConfig) -> RNNEncoderDecoder:
    """The model with the weights of its files. Their headers are compared with its sizes before anything is allocated."""
    paths, dtype = _weight_files(config, directory)
    with torch.device("meta"):
        expected = {name: list(weight.shape) for name, weight in RNNEncoderDecoder(sizes).named_weights()}
    with contextlib.ExitStack() as stack:
        shards: dict[str, Any] = {}  # tensor name: the open file that has it
        for path in paths:
            _check_regular(path)
            try:
                shard = stack.enter_context(safetensors.safe_open(path, framework="pt"))
            except (OSError, safetensors.SafetensorError) as error:
                reason = printable(str(error), limit=200)
                raise ModelError(f"{path}: {reason}; the model is damaged, train or copy it again") from None
            shards.update(dict.fromkeys(shard.keys(), shard))
        if differing := sorted(expected.keys() ^ shards.keys()):
            verb = "missing from" if differing[0] in expected else "unknown in"
            what = f"tensor {printable(differing[0], limit=200)} is {verb} the weights"
            raise ModelError(f"{directory}: {what}; the model is damaged or of another kind")
        for name, shape in expected.items():
            tensor = shards[name].get_slice(name)
            if (found := tensor.get_shape()) != shape:
                what = f"tensor {name} has shape {_told(found)} where {CONFIG} says {shape}"
                raise ModelError(f"{directory}: {what}; files of two models?")
            if (found := tensor.get_dtype()) != dtype:
                what = f"tensor {name} is of type {found} where {CONFIG} says {dtype}"
                raise ModelError(f"{directory}: {what}; files of two models?")
        model = RNNEncoderDecoder(sizes)
        with torch.no_grad():
            for name, weight in model.named_weights():
                weight.copy_(shards[name].get_tensor(name))
                if not weight.isfinite().all():
                    raise ModelError(f"{directory}: tensor {name} has NaN or infinite numbers; train the model again")
    return model.requires_grad_(False)


def load(directory: str) -> Checkpoint:
    """Reads a model directory; weights become float32 whatever they were saved as.

    Raises ModelError for anything missing, unknown or contradictory, and for weights that are not finite. Nothing in the
    directory is executed, and no more memory is taken than its files' sizes, checked against each other, call for.
    """
    config = _read_config(directory)
    path = os.path.join(directory, CONFIG)
    sizes = _sizes(config, path)
    inverse, factors = _direction_and_factors(config, path)
    shares = _unk_shares(config, path)
    src_vocab, tgt_vocab = _read_vocabularies(directory)
    read, predicted = (tgt_vocab, src_vocab) if inverse else (src_vocab, tgt_vocab)
    for vocabulary, size in ((read, sizes.src_vocabulary), (predicted, sizes.tgt_vocabulary)):
        side = "source" if vocabulary is src_vocab else "target"
        if len(vocabulary) != size:
            ids = f"{len(vocabulary)} ids where {CONFIG} says {_told(size)}"
            raise ModelError(f"{directory}/{side}.vocab: {ids}; files of two models?")
    model = _load_weights(config, directory, sizes)
    loaded = Checkpoint(model, src_vocab, tgt_vocab, shares, config.get("training", {}), "", inverse, factors)
    return replace(loaded, signature=_signature(loaded))


def check_target(directory: str, overwrite: bool) -> None:
    """Raises OptionError if a model must not be written under this name."""
    if os.path.exists(os.path.join(directory, CONFIG)):
        if not overwrite:
            raise OptionError(f"{directory} holds a model already; name another with -m, or replace it with --overwrite")
    elif os.path.lexists(directory) and not (os.path.isdir(directory) and not os.listdir(directory)):
        raise OptionError(f"{directory} exists and is no model directory; name another with -m")


@contextlib.contextmanager
def atomic_directory(directory: str, overwrite: bool = False) -> Iterator[str]:
    """A directory to fill that takes its name only when the ``with`` block ends well; otherwise nothing is left of it.

    Raises OptionError if there is no writing there, RescoreError when writing fails before the end, as on a full disk.
    """
    check_target(directory, overwrite)
    try:
        with replace_directory(directory) as temporary:
            yield temporary
    except OSError as error:
        raise RescoreError(cannot_write(directory, error)) from None
    except safetensors.SafetensorError as error:
        raise RescoreError(f"cannot write {directory}: {error}; make room there, or write elsewhere") from None
