"""The kinds of network that a model directory may hold.

A new kind is one more entry of ``KINDS``: what config.json says of it, and how it is built from that. The directory itself
(files, shards, hashes and all checks) is ``storage``'s and knows no network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder
from phrase_rescore.models.feedforward_lm import FeedforwardLM, LanguageModelSizes

PAIRS, TEXT = "phrase pairs, made by train", "text, made by train-lm"


class Sizes(Protocol):
    """The sizes of a network: a dataclass of whole numbers from 1, and of flags."""

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
class Kind:
    """A kind of network, as config.json describes it."""

    name: str
    of: str  # what it is a model of: PAIRS or TEXT
    structure: Mapping[str, Any]  # further entries of config.json, with the only values that this version can build
    sizes: Callable[..., Sizes]
    network: Callable[[Any], Network]  # takes the sizes

    @property
    def entries(self) -> dict[str, Any]:
        """What config.json must say for a network to be of this kind."""
        return {"kind": self.name, **self.structure}


KINDS: dict[str, Kind] = {
    "rnn-encoder-decoder": Kind(
        "rnn-encoder-decoder",
        PAIRS,
        {
            "encoder": {"cell": "cho-gru-reset-before", "layers": 1, "direction": "forward", "source_order": "forward"},
            "decoder": {"cell": "cho-gru-reset-after", "layers": 1},
        },
        ModelConfig,
        RNNEncoderDecoder,
    ),
    "feedforward-lm": Kind("feedforward-lm", TEXT, {"activation": "rectifier"}, LanguageModelSizes, FeedforwardLM),
}


def kind_of(network: Network) -> Kind:
    """Return the kind that a network is of."""
    return next(kind for kind in KINDS.values() if kind.network is type(network))
