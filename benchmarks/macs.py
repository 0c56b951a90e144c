"""How many multiply-accumulates a score costs: the model's equations counted, with and without sharing.

Tables of W e, W' e and O_y e count as free.
"""

from phrase_rescore.data.ragged import EncodedPairs, Ragged, distinct_phrases, prefix_levels
from phrase_rescore.rnn.config import ENCODERS
from phrase_rescore.rnn.network import CELLS, POOL, ModelConfig


def unshared(config: ModelConfig, pairs: EncodedPairs) -> int:
    """Every pair by itself, padding left out, the first encoder step's product with h_0 = 0 counted."""
    layer = _gates(config) * config.hidden**2  # U h; of an upper layer W h too
    a_step = layer * (2 * config.layers - 1)
    encoder = len(ENCODERS[config.encoder]) * a_step * (len(pairs.src.ids) + len(pairs))
    return encoder + _source(config) * len(pairs) + (a_step + _output(config)) * (len(pairs.tgt.ids) + len(pairs))


def shared(config: ModelConfig, pairs: EncodedPairs) -> int:
    """All that the prefix trees of the whole input allow to share: the minimum."""
    H2, gates = config.hidden**2, _gates(config)
    first, source_of = distinct_phrases(pairs.src)
    sources = pairs.src.take(first)
    encoder = sum(
        _tree(config, sources.reversed() if backwards else sources) for backwards in ENCODERS[config.encoder].values()
    )
    targets = prefix_levels(pairs.tgt, source_of)
    states = len(first) + sum(len(level.words) for level in targets)
    going_on = len(first) + len({(t, int(p)) for t, level in enumerate(targets) for p in level.parents})
    decoder = gates * H2 * (config.layers * going_on + (config.layers - 1) * states)
    return encoder + _source(config) * len(first) + decoder + _output(config) * states


def _tree(config: ModelConfig, sources: Ragged) -> int:
    """The encoder's steps in one direction: prefixes that go on are projected, and nodes are continued."""
    levels = prefix_levels(sources.with_eos())
    nodes = sum(len(level.words) for level in levels)
    prefixes = nodes - len(sources)  # EOS is a continuation
    gates, not_shared = _gates(config), config.cell == "gru"  # U (r ⊙ h), for every node but the first ones
    recurrent = (gates - not_shared) * prefixes + not_shared * (nodes - len(levels[0].words))
    return config.hidden**2 * (config.layers * recurrent + (config.layers - 1) * gates * nodes)


def _gates(config: ModelConfig) -> int:
    return len(CELLS[config.cell].decoder.GATES)


def _source(config: ModelConfig) -> int:
    """V h, V' c and C c of every layer, O_c c."""
    of_layers = config.layers * (1 + _gates(config)) + len(ENCODERS[config.encoder])
    return config.hidden * (of_layers * config.hidden + POOL * config.maxout)


def _output(config: ModelConfig) -> int:
    return POOL * config.maxout * config.hidden + config.maxout * config.rank + config.rank * config.tgt_vocabulary
