"""The kinds of network that a model directory may hold.

A new kind is one more entry of ``KINDS``: what config.json says of it, and how it is built from that. The directory itself
(files, shards, hashes and all checks) is ``storage``'s and knows no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Protocol

from torch import Tensor

from phrase_rescore.lm.network import FeedforwardLM, LanguageModelSizes
from phrase_rescore.ranges import LAYERS
from phrase_rescore.rnn.cells.registry import CELLS
from phrase_rescore.rnn.network import ENCODERS, ModelConfig, RNNEncoderDecoder

PAIRS, TEXT = "phrase pairs, made by train", "text, made by train-lm"


class Sizes(Protocol):
    """The sizes of a network: a dataclass of whole numbers from 1, of flags, and of the choice of a structure."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def parameters(self) -> int:
        """Return how many numbers the network has."""


class Network(Protocol):
    """A module made from its sizes."""

    @property
    def config(self) -> Sizes:
        """The sizes."""

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight under its name in the files, as a view of the parameter."""

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Let the weights learn, or not."""


@dataclass(frozen=True)
class Structures:
    """The structures that networks of one kind may have: ``choices`` are attributes of their sizes, of these values.

    ``entries``: what config.json says of a choice.
    """

    choices: Mapping[str, Sequence[Any]]
    entries: Callable[..., dict[str, Any]]

    def __str__(self) -> str:
        if not self.choices:
            return ", ".join(map(json.dumps, self.entries().values()))
        ranges = {name: f"{values[0]} to {values[-1]}" for name, values in self.choices.items() if isinstance(values, range)}
        lists = {name: " or ".join(map(str, values)) for name, values in self.choices.items()}
        return ", ".join(f"{name} {values}" for name, values in (lists | ranges).items())

    def keys(self) -> list[str]:
        """Return the names of the entries."""
        return list(self.entries(**{name: values[0] for name, values in self.choices.items()}))

    def found(self, entries: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the choice that entries of config.json tell of; None if there is no such one."""
        for values in product(*self.choices.values()):
            choice = dict(zip(self.choices, values, strict=True))
            wanted = self.entries(**choice)
            if as_text(wanted) == as_text({key: entries.get(key) for key in wanted}):
                return choice
        return None


@dataclass(frozen=True)
class Kind:
    """A kind of network, as config.json describes it."""

    name: str
    of: str  # what it is a model of: PAIRS or TEXT
    structures: Structures
    sizes: Callable[..., Sizes]  # takes the entry ``sizes`` of config.json, and the choice of a structure
    network: Callable[[Any], Network]  # takes the sizes

    def entries(self, sizes: Sizes) -> dict[str, Any]:
        """Return what config.json says of a network of these sizes, all but the numbers."""
        return {
            "kind": self.name,
            **self.structures.entries(**{name: getattr(sizes, name) for name in self.structures.choices}),
        }

    def numbers(self, sizes: Sizes) -> dict[str, Any]:
        """Return the entry ``sizes`` of config.json."""
        return {name: value for name, value in vars(sizes).items() if name not in self.structures.choices}


def as_text(value: Any) -> str:
    """Return a value of config.json as JSON, in which true is not 1."""
    return json.dumps(value, sort_keys=True)


def fixed(**entries: Any) -> Structures:
    """Return the only structure of networks of which config.json has these entries."""
    return Structures({}, lambda: entries)


def _encoder_decoder(cell: str, layers: int, encoder: str) -> dict[str, Any]:
    cells = CELLS[cell]
    direction, order = ("forward", encoder) if encoder != "bidirectional" else (encoder, "forward")
    return {
        "encoder": {"cell": cells.encoder_name, "layers": layers, "direction": direction, "source_order": order},
        "decoder": {"cell": cells.decoder_name, "layers": layers},
    }


KINDS: dict[str, Kind] = {
    "rnn-encoder-decoder": Kind(
        "rnn-encoder-decoder",
        PAIRS,
        Structures({"cell": [*CELLS], "layers": LAYERS.all(), "encoder": [*ENCODERS]}, _encoder_decoder),
        ModelConfig,
        RNNEncoderDecoder,
    ),
    "feedforward-lm": Kind("feedforward-lm", TEXT, fixed(activation="rectifier"), LanguageModelSizes, FeedforwardLM),
}


def kind_of(network: Network) -> Kind:
    """Return the kind that a network is of."""
    return next(kind for kind in KINDS.values() if kind.network is type(network))
