"""What the model directory must know of a network. Nothing here knows a network: ``rnn`` and ``lm`` each bring their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor

PAIRS, TEXT = "phrase pairs, made by train", "text, made by train-lm"
RNN_ENCODER_DECODER, FEEDFORWARD_LM = "rnn-encoder-decoder", "feedforward-lm"
MODELS_OF = {RNN_ENCODER_DECODER: PAIRS, FEEDFORWARD_LM: TEXT}  # the kinds by name, and what each is a model of


class NetworkSizes(Protocol):
    """The sizes of a network: a dataclass of whole numbers from 1, of flags, and of the attributes of its structure."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def parameters(self) -> int:
        """Return how many numbers the network has."""


class StoredNetwork(Protocol):
    """A module made from its sizes."""

    @property
    def config(self) -> NetworkSizes:
        """The sizes."""

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight under its name in the files, as a view of the parameter."""

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Let the weights learn, or not."""


S = TypeVar("S", bound=NetworkSizes)
N = TypeVar("N", bound=StoredNetwork)


@dataclass(frozen=True)
class NetworkKind(Generic[S, N]):
    """A kind of network, as config.json describes it. ``structure`` is part of the sizes, and has entries of its own."""

    name: str  # one of MODELS_OF
    sizes: Callable[..., S]  # takes the entry ``sizes`` of config.json, and the structure
    network: Callable[[S], N]  # takes the sizes
    structure: tuple[str, ...]  # attributes of the sizes
    entries: Callable[..., dict[str, Any]]  # takes the structure, returns the entries of config.json
    structure_of: Callable[[Mapping[str, Any]], dict[str, Any] | None]  # of such entries; None: unknown
    entry_names: tuple[str, ...]
    known: str  # the structures that there are, for a message

    def structure_entries(self, sizes: NetworkSizes) -> dict[str, Any]:
        """Return what config.json says of the structure of a network."""
        return self.entries(**{name: getattr(sizes, name) for name in self.structure})

    def numbers(self, sizes: NetworkSizes) -> dict[str, Any]:
        """Return the entry ``sizes`` of config.json."""
        return {name: value for name, value in vars(sizes).items() if name not in self.structure}
