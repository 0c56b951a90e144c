"""How many multiply-accumulates a score costs: the model's equations counted, with and without sharing.

Tables of W e, W' e and O_y e count as free.
"""

from __future__ import annotations

from phrase_rescore.data.prefix_trees import distinct_phrases, prefix_levels
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.models.encoder_decoder import POOL, ModelConfig


def unshared(config: ModelConfig, pairs: EncodedPairs) -> int:
    """Every pair by itself, padding left out, the first encoder step's product with h_0 = 0 counted."""
    H, output = config.hidden, _output(config)
    encoder = 3 * H * H * (len(pairs.src.ids) + len(pairs))
    return (
        encoder
        + 4 * H * H * len(pairs)
        + _context(config) * len(pairs)
        + (3 * H * H + output) * (len(pairs.tgt.ids) + len(pairs))
    )


def shared(config: ModelConfig, pairs: EncodedPairs) -> int:
    """All that the prefix trees of the whole input allow to share: the minimum."""
    H = config.hidden
    first, source_of = distinct_phrases(pairs.src)
    levels = prefix_levels(pairs.src.take(first).with_eos())
    prefixes = sum(len(level.words) for level in levels) - len(first)  # those that go on; EOS is a continuation
    encoder = 2 * H * H * prefixes + H * H * (sum(len(level.words) for level in levels) - len(levels[0].words))
    targets = prefix_levels(pairs.tgt, source_of)
    states = len(first) + sum(len(level.words) for level in targets)
    going_on = len({(t, int(p)) for t, level in enumerate(targets) for p in level.parents})
    decoder = 3 * H * H * (len(first) + going_on)
    return encoder + (2 * H * H + _context(config)) * len(first) + decoder + _output(config) * states


def _context(config: ModelConfig) -> int:
    """C c (three gates) and O_c c."""
    return config.hidden * (3 * config.hidden + POOL * config.maxout)


def _output(config: ModelConfig) -> int:
    return POOL * config.maxout * config.hidden + config.maxout * config.rank + config.rank * config.tgt_vocabulary
