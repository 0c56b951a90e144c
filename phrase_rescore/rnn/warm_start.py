"""Start from the weights of another model, and keep parts of a model as they are while the rest learns.

Vocabularies may differ: the rows of a word go to the word of the same spelling. Source and target are here what the network
reads and predicts; ``table_side`` exchanges them for an inverse model.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from phrase_rescore.data.vocabulary import EOS, FIRST_WORD, UNK, Vocabulary
from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.network import RNNEncoderDecoder

# Of each part, the structure and sizes in which the models must agree, and the sides whose words it has
PARTS = {
    "encoder": (("cell", "layers", "encoder", "hidden", "embedding"), ("source",)),
    "decoder": (("cell", "layers", "hidden", "embedding", "maxout", "rank"), ("target",)),
    "all": (("cell", "layers", "encoder", "hidden", "embedding", "maxout", "rank"), ("source", "target")),
}
WORD_ROWS = {  # weights with a row for every word, and the side of these words
    "encoder.embedding": "source",
    "decoder.embedding": "target",
    "output.G_l": "target",
    "output.b_G": "target",
}
FREEZABLE: dict[str, Callable[[RNNEncoderDecoder], Iterable[torch.nn.Parameter]]] = {
    "encoder": lambda model: model.encoder.parameters(),
    "decoder": lambda model: model.decoder.parameters(),
    "source-embedding": lambda model: (model.encoder.embedding,),
    "target-embedding": lambda model: (model.decoder.embedding,),
    "output": lambda model: (getattr(model.decoder, name) for name in model.decoder.OUTPUT),
}
_OF_SOURCE_WORDS = ("encoder", "source-embedding")  # which of these have rows of source words; the others, of target words


def table_side(name: str, inverse: bool) -> str:
    """Name a side, or a part that is named by one, as the phrase table does: in an inverse model they are exchanged.

    >>> table_side("source-embedding", True), table_side("output", True), table_side("source", False)
    ('target-embedding', 'output', 'source')
    """
    side, dash, rest = name.partition("-")
    return {"source": "target", "target": "source"}.get(side, side) + dash + rest if inverse else name


@dataclass(frozen=True)
class WarmStart:
    """For each side that was taken over, how many of its words the donor knows, and how many it has."""

    words: dict[str, tuple[int, int]]
    inverse: bool = False

    def lines(self, frozen: Sequence[str] = ()) -> list[str]:
        """Return lines for people. Those that begin with ``warning`` name words without a start, or random and frozen."""
        lines = []
        for part, (known, total) in self.words.items():
            side = table_side(part, self.inverse)
            text = f"{side}: {known:,} of {total:,} words start from the other model"
            lines.append(text if known == total else f"{text}, {total - known:,} afresh")
            if total and not known:
                lines.append(f"warning: the other model knows no {side} word of this one; was it for another language?")
        for group in frozen:
            part, name = "source" if group in _OF_SOURCE_WORDS else "target", table_side(group, self.inverse)
            known, total = self.words.get(part, (0, 0))
            if part not in self.words:
                lines.append(f"warning: --freeze {name} keeps random weights: --init does not take them from the other model")
            elif known < total:
                side = table_side(part, self.inverse)
                lines.append(f"warning: --freeze {name} keeps random weights of {total - known:,} new {side} words")
        return lines


def check_part(ours: object, theirs: object, part: str) -> None:
    """Raise OptionError if there is no such part, or if two models differ in it: in attributes of these names."""
    if part not in PARTS:
        raise OptionError(f"--init {part}: no such part of the model; known are {', '.join(PARTS)}")
    names = [name for name in PARTS[part][0] if getattr(ours, name) != getattr(theirs, name)]
    if names:
        found = ", ".join(f"{name} {getattr(theirs, name)} and not {getattr(ours, name)}" for name in names)
        remedy = " ".join(f"--{name} {getattr(theirs, name)}" for name in names)
        raise OptionError(f"the model to start from has {found}; train with {remedy}")


def _shared_rows(ours: Vocabulary, theirs: Vocabulary) -> tuple[list[int], list[int]]:
    """Return the ids in both vocabularies of what both know: EOS and UNK, by position, then the words of equal spelling."""
    pairs = [(id, theirs.ids.get(word)) for word, id in ours.ids.items()]
    known = [(EOS, EOS), (UNK, UNK), *((here, there) for here, there in pairs if there is not None)]
    here, there = zip(*known, strict=True)
    return list(here), list(there)


@torch.no_grad()
def initialise_from(
    model: RNNEncoderDecoder, src_vocab: Vocabulary, tgt_vocab: Vocabulary, donor: Checkpoint, part: str = "all"
) -> WarmStart:
    """Copy a part of the donor's weights (a key of PARTS) into a model that is initialised already.

    Rows of words that the donor does not know keep their values. Raises as ``check_part`` does, before it changes anything.
    """
    check_part(model.config, donor.model.config, part)
    vocabs, sides = {"source": src_vocab, "target": tgt_vocab}, PARTS[part][1]
    rows = {side: _shared_rows(ours, known) for (side, ours), known in zip(vocabs.items(), donor.vocabs, strict=True)}
    theirs = dict(donor.model.named_weights())
    for name, weight in model.named_weights():
        side = "source" if name.startswith("encoder.") else "target"
        if side not in sides:
            continue
        if name in WORD_ROWS:
            here, there = rows[side]
            weight[here] = theirs[name][there].to(weight)
        else:
            weight.copy_(theirs[name])
    return WarmStart({side: (len(rows[side][0]) - FIRST_WORD, len(vocabs[side].words)) for side in sides}, donor.inverse)


def freeze(model: RNNEncoderDecoder, groups: Sequence[str]) -> None:
    """Exclude groups of weights (keys of FREEZABLE) from training. Raises OptionError if one is unknown or nothing is left."""
    for group in groups:
        if group not in FREEZABLE:
            raise OptionError(f"--freeze {group}: no such part of the model; known are {', '.join(FREEZABLE)}")
    frozen = {id(parameter): parameter for group in groups for parameter in FREEZABLE[group](model)}
    if all(id(parameter) in frozen or not parameter.requires_grad for parameter in model.parameters()):
        raise OptionError(f"--freeze {', '.join(groups)} leaves nothing to learn; freeze less")
    for parameter in frozen.values():
        parameter.requires_grad_(False)
