"""The kinds of network that a model directory may hold.

A new kind is one more entry of ``KINDS``: what config.json says of it, and how it is built from that. The directory itself
(files, shards, signature, vocabularies and all checks) is ``checkpoint``'s and knows no network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phrase_rescore.models.encoder_decoder import ModelConfig, RNNEncoderDecoder

Sizes = ModelConfig  # of any kind: another one joins with |
Network = RNNEncoderDecoder


@dataclass(frozen=True)
class Kind:
    """A kind of network, as config.json describes it."""

    name: str
    structure: Mapping[str, Any]  # further entries of config.json, with the only values that this version can build
    sizes: type[Sizes]  # a dataclass of whole numbers from 1: src_vocabulary, tgt_vocabulary and others; has parameters()
    network: type[Network]  # a module made from sizes, which are its ``config``; has named_weights()

    @property
    def entries(self) -> dict[str, Any]:
        """What config.json must say for a network to be of this kind."""
        return {"kind": self.name, **self.structure}


KINDS: dict[str, Kind] = {
    "rnn-encoder-decoder": Kind(
        "rnn-encoder-decoder",
        {
            "encoder": {"cell": "cho-gru-reset-before", "layers": 1, "direction": "forward", "source_order": "forward"},
            "decoder": {"cell": "cho-gru-reset-after", "layers": 1},
        },
        ModelConfig,
        RNNEncoderDecoder,
    ),
}


def kind_of(network: Network) -> Kind:
    """Return the kind that a network is of."""
    return next(kind for kind in KINDS.values() if isinstance(network, kind.network))
