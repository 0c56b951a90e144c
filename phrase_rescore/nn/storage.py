"""The parts of every model directory: config.json, weights in safetensors, files of words. Nothing in it is executed."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import torch
from safetensors.torch import load, save_file

from phrase_rescore._version import __version__
from phrase_rescore.data.vocabulary import SIDES, Vocabulary, format_vocabulary, read_vocabulary
from phrase_rescore.errors import InputError, ModelError, OptionError, RescoreError, lacks_memory, writing
from phrase_rescore.files.outputs import replace_directory
from phrase_rescore.files.paths import older_directory, unfinished
from phrase_rescore.messages import printable

PAIRS, TEXT, BITEXT = "phrase pairs, made by train", "text, made by train-lm", "sentence pairs, made by train-nmt"
RNN_ENCODER_DECODER, FEEDFORWARD_LM, ATTENTION = "rnn-encoder-decoder", "feedforward-lm", "attention"
MODELS_OF = {RNN_ENCODER_DECODER: PAIRS, FEEDFORWARD_LM: TEXT, ATTENTION: BITEXT}  # the kinds by name, and of what each is
FORMAT_VERSION = 1
CONFIG, LOG = "config.json", "train.log.jsonl"
_WEIGHTS = "model-00001-of-00001.safetensors"

_DEPTH = 32  # of the JSON in a config; configs written here have 4

DAMAGED = "the model is damaged"
_TWO_MODELS = "files of two models?"
_DAMAGED_FILE = "the model is damaged, train or copy it again"
_OTHER_VERSION = "take the version that made the model, or train it again"
_READ_AGAIN = "run the command again when it stays as it is"

# A dataclass of whole numbers from 1, of flags, and of names of a structure
Sizes = TypeVar("Sizes", bound=Any)
# A module made from its sizes, ``config``; ``named_weights()``: by the names in the files, as views of the parameters
Network = TypeVar("Network", bound=Any)


def save_files(
    directory: str, kind: str, network: Any, entries: dict[str, Any], words: dict[str, Vocabulary], training: dict[str, Any]
) -> None:
    """Write the files of a model of a kind (of MODELS_OF), with its own entries of config.json, into an existing directory."""
    weights = ((name, weight.detach().to("cpu", torch.float32)) for name, weight in network.named_weights())
    tensors = {name: weight.clone(memory_format=torch.contiguous_format) for name, weight in weights}
    save_file(tensors, os.path.join(directory, _WEIGHTS))
    for name, vocabulary in words.items():
        Path(directory, name).write_bytes(format_vocabulary(vocabulary))
    config = {
        "format_version": FORMAT_VERSION,
        "made_by": f"phrase-rescore {__version__}",
        "kind": kind,
        **entries,
        "weights": {"dtype": "float32", "files": [_WEIGHTS], "parameters": numbers_of(network)},
        "training": training,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    Path(directory, CONFIG).write_bytes(text.encode("utf-8", "backslashreplace"))  # names of files may not be UTF-8


@torch.no_grad()
def copy_weights(network: Any, donor: Any, rows: Mapping[str, tuple[list[int], list[int]]]) -> None:
    """Copy the weights of another network of these sizes. ``rows``: of some only these rows, here and there."""
    given = dict(donor.named_weights())
    for name, weight in network.named_weights():
        if name in rows:
            here, there = rows[name]
            weight[here] = given[name][there].to(weight)
        else:
            weight.copy_(given[name])


def numbers_of(network: Any) -> int:
    """Return how many numbers a network has: weights and biases."""
    return sum(weight.numel() for weight in network.parameters())


def signature_of(kind: str, parts: Iterable[str], network: Any, vocabularies: Sequence[Vocabulary]) -> str:
    """Return one line that names a model: its kind, what ``parts`` say, a hash of all weights and words, our version."""
    digest = hashlib.blake2b(digest_size=8)
    for name, weight in sorted(network.named_weights(), key=lambda item: item[0]):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    for vocabulary in vocabularies:
        digest.update(b"\0" + b"\n".join(vocabulary.words))
    words = "/".join(str(len(vocabulary.words)) for vocabulary in vocabularies)
    return "|".join([kind, *parts, f"words:{words}", f"model:{digest.hexdigest()}", f"version:{__version__}"])


def check_target(directory: str, overwrite: bool) -> None:
    """Raise OptionError if a model must not be written under this name."""
    if os.path.exists(os.path.join(directory, CONFIG)):
        if not overwrite:
            raise OptionError(f"{directory} holds a model already; name another with -m, or replace it with --overwrite")
    elif os.path.lexists(directory) and not (os.path.isdir(directory) and not os.listdir(directory)):
        raise OptionError(f"{directory} exists and is not a model directory; name another with -m")


@contextlib.contextmanager
def atomic_directory(directory: str, overwrite: bool = False) -> Iterator[str]:
    """Yield a directory that takes its name if the block ends well and else disappears. Raises OptionError or RescoreError."""
    check_target(directory, overwrite)
    try:
        with writing(directory), replace_directory(directory) as temporary:
            yield temporary
    except safetensors.SafetensorError as error:
        raise RescoreError(f"cannot write {directory}: {error}; make room there, or write elsewhere") from None


@contextlib.contextmanager
def unchanged(directory: str) -> Iterator[None]:
    """Read a model directory within the ``with`` block. Raises ModelError if another model takes its place meanwhile."""
    before = _stamps(directory)
    try:
        yield
    except (RescoreError, OSError):
        require(_stamps(directory) == before, f"{directory} changed while it was read", _READ_AGAIN)
        raise
    require(_stamps(directory) == before, f"{directory} changed while it was read", _READ_AGAIN)


def _stamps(directory: str) -> dict[str, tuple[int, ...]]:
    """Return the inode, size and time of each file, which differ if a file is replaced."""
    stamps: dict[str, tuple[int, ...]] = {}
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if re.fullmatch(r"[\w.-]+\.(safetensors|vocab)|config\.json|train\.log\.jsonl", entry.name, re.ASCII):
                found = entry.stat()
                stamps[entry.name] = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return stamps


def files_of(directory: str) -> list[str]:
    """Return the names of the files that a model directory needs to be used: all but the log of its training."""
    return sorted(name for name in _stamps(directory) if name != LOG)


def require(condition: bool, found: str, remedy: str = DAMAGED) -> None:
    """Raise ModelError unless the condition holds."""
    if not condition:
        raise ModelError(f"{found}; {remedy}")


class Config:
    """config.json, whose entries are checked when they are asked for. All methods raise ModelError."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, CONFIG)
        if not os.path.isdir(directory):
            old, hint = older_directory(directory), unfinished(directory)
            killed = f"; a run that replaced it was killed; run it again, or give {old} its name back" if old else ""
            raise ModelError(f"{directory}: no such model directory{killed or (hint and f'; {hint}')}")
        _check_regular(self.path)
        try:
            config = json.loads(Path(self.path).read_bytes())
            if _is_deep(config):
                raise ValueError(f"nested more than {_DEPTH} deep")
        except OSError as error:
            raise ModelError(f"{self.path}: {error.strerror}; is {directory} a model directory?") from None
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{self.path}: not JSON ({error}); {_DAMAGED_FILE}") from None
        self.entries: dict[str, Any] = config if isinstance(config, dict) else {}
        hint = "name the directory of a model that train, train-lm or train-nmt made"
        require("format_version" in self.entries, f"{self.path}: has no format_version", hint)
        version = self.entries["format_version"]
        self.know(is_whole(version, 1) and version == FORMAT_VERSION, f"reads {FORMAT_VERSION}", "format_version")

    def know(self, condition: bool, known: str, *keys: str) -> None:
        """Refuse values of entries that this version does not know, or other than ``known``."""
        found = ", ".join(f"{key} {as_json(self.entries.get(key))}" for key in keys)
        require(condition, f"{self.path}: {found}, but this version of phrase-rescore {known}", _OTHER_VERSION)

    def model_of(self) -> str:
        """Return what the model was trained on: PAIRS, TEXT or BITEXT."""
        name: Any = self.entries.get("kind")
        self.know(name in list(MODELS_OF), f"knows {', '.join(map(json.dumps, MODELS_OF))}", "kind")
        return MODELS_OF[name]

    def check_kind(self, kind: str) -> None:
        """Refuse a model of another kind."""
        if (trained_on := self.model_of()) != MODELS_OF[kind]:
            raise ModelError(f"{os.path.dirname(self.path)}: a model of {trained_on}; this takes a model of {MODELS_OF[kind]}")

    def sizes(self, make: Callable[..., Sizes], structure: Mapping[str, Any]) -> Sizes:
        """Return the sizes of a network of this structure, which has entries of its own."""
        try:
            sizes = make(**self.entries["sizes"], **structure)
        except (KeyError, TypeError):
            raise ModelError(f"{self.path}: 'sizes' is incomplete or has unknown entries; {DAMAGED}") from None
        for item in fields(sizes):
            value, flag = getattr(sizes, item.name), item.type in (bool, "bool")  # text where annotations are postponed
            fits = item.name in structure or (isinstance(value, bool) if flag else is_whole(value, 1))
            wanted = "true or false" if flag else "a whole number from 1"
            require(fits, f"{self.path}: sizes.{item.name} is {as_json(value)}, not {wanted}")
        return sizes

    def training(self) -> dict[str, Any]:
        """Return the training summary. Nothing depends on it, so one that is not an object counts as empty."""
        training = self.entries.get("training")
        return training if isinstance(training, dict) else {}

    def check_weights(self) -> None:
        """Refuse weights other than float32 in the one file of this version."""
        weights: Any = self.entries.get("weights")
        known = isinstance(weights, dict) and (weights.get("dtype"), weights.get("files")) == ("float32", [_WEIGHTS])
        require(known, f"{self.path}: 'weights' are not of float32 in {_WEIGHTS}")

    def unk_shares(self) -> tuple[float, float]:
        """Return UNK's share of the training words, source and target."""
        by_side = self.entries.get("unk_share")
        shares: list[Any] = [by_side.get(side) for side in SIDES] if isinstance(by_side, dict) else [None]
        require(all(map(is_share, shares)), f"{self.path}: 'unk_share' is missing or not a pair of numbers from 0 to 1")
        return float(shares[0]), float(shares[1])


def as_json(value: Any) -> str:
    """Return a value of a config as JSON, for a message."""
    return printable(json.dumps(value), limit=200)


def is_whole(value: Any, least: int, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_share(value: Any) -> bool:
    """Return whether a value of a config is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value is nested so deeply that walking through it may exhaust Python's stack."""
    level = [value]
    for _ in range(_DEPTH):
        values = (inner.values() if isinstance(inner, dict) else inner for inner in level if isinstance(inner, dict | list))
        level = list(chain.from_iterable(values))
    return bool(level)


def _check_regular(path: str) -> None:
    """Raise ModelError for a named pipe or a device, which might never end."""
    require(os.path.isfile(path) or not os.path.exists(path), f"{path} is not a regular file", _DAMAGED_FILE)


def read_words(directory: str, name: str, ids: int) -> Vocabulary:
    """Read a file of words. Raises ModelError if it is damaged or has another number of ids than config.json says."""
    path = os.path.join(directory, name)
    _check_regular(path)
    try:
        vocabulary = read_vocabulary(path)
    except InputError as error:
        where = error.path if error.line is None else f"{error.path}:{error.line}"
        raise ModelError(f"{where}: {error.found}; {_DAMAGED_FILE}") from None
    found = f"{directory}/{name}: {len(vocabulary)} ids where {CONFIG} says {as_json(ids)}"
    require(len(vocabulary) == ids, found, _TWO_MODELS)
    return vocabulary


def load_network(directory: str, config: Config, make: Callable[[Sizes], Network], sizes: Sizes) -> Network:
    """Build the network and fill it from its file, with which its sizes are compared before anything is allocated."""
    config.check_weights()
    path = os.path.join(directory, _WEIGHTS)
    _check_regular(path)
    try:
        with torch.device("meta"):
            expected = {name: (list(weight.shape), torch.float32) for name, weight in make(sizes).named_weights()}
    except (RuntimeError, TypeError):  # torch counts in 64 bits
        raise ModelError(f"{config.path}: 'sizes' need more numbers than any file can hold; {DAMAGED}") from None
    try:
        tensors = load(Path(path).read_bytes())
    except (OSError, safetensors.SafetensorError, LookupError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        if lacks_memory(error):
            raise
        raise ModelError(f"{path}: {printable(str(error), limit=200)}; {_DAMAGED_FILE}") from None
    found = {name: (list(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        fits = found.get(name) == expected.get(name)
        wanted, there = (printable(str(of.get(name, "no such tensor")), 200) for of in (expected, found))
        require(fits, f"{directory}: tensor {printable(name, 200)}: {CONFIG} says {wanted}, the weights {there}", _TWO_MODELS)
    network = make(sizes)
    with torch.no_grad():
        for name, weight in network.named_weights():
            weight.copy_(tensors[name])
            finite = bool(weight.isfinite().all())
            require(finite, f"{directory}: tensor {name} has NaN or infinite numbers", "train the model again")
    network.requires_grad_(False)
    return network
