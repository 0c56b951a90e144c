"""Phrases that a model proposes: it reads sources and gives the most probable targets, or targets drawn at random."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from phrase_rescore.data.prefix_trees import distinct_phrases
from phrase_rescore.data.ragged import Ragged
from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import RowError
from phrase_rescore.moses.table import SEPARATOR, phrase_words, words
from phrase_rescore.rnn.beam_search import Decoded, beam_search
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.decoder import ReadyModel
from phrase_rescore.rnn.sampling import sample, streams

MAX_LENGTH = 20  # words; phrases of a table seldom have more than 7
BEAM = 10
_OfRows = Callable[[slice], list[list[Decoded]]]
PREFIXES = 2048  # the most that are worked on at once, unless those of one source are more


@dataclass(frozen=True)
class Hypothesis:
    """A phrase of the side that the model predicts: a target, or a source of an inverse model."""

    target: bytes  # words between single blanks; an unknown one is UNK
    log_p: float  # natural log p(target | source), EOS included
    unknown: int  # how many of its words are UNK


def can_stand_in_a_table(word: bytes) -> bool:
    """Tell whether a word of a vocabulary can be part of a phrase pair: ``[X]`` and a word with a separator in it cannot."""
    try:
        phrase_words(word, "target")
    except RowError:
        return False
    return SEPARATOR not in word


class Translator:
    """Proposes phrases of the side that the model predicts for phrases of the one that it reads.

    Sources are tokenized phrases as bytes (an inverse model's are of the target side). Hypotheses have 1 to ``max_length``
    words of the vocabulary (or UNK, with ``unk``) and none that cannot stand in a table. A model of one factor proposes
    phrases of that factor alone.

    Raises RowError for a source word without the factor that the model reads.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        self.checkpoint, self._model = checkpoint, ReadyModel(checkpoint, device)
        predicted = checkpoint.vocabs[1].words
        self._words = (b"</s>", b"UNK", *predicted)
        self._unfit = [id for id, word in enumerate(predicted, UNK + 1) if not can_stand_in_a_table(word)]

    @torch.inference_mode()
    def n_best(
        self, sources: Sequence[bytes], n: int = 10, beam: int | None = None, unk: bool = False,
        max_length: int = MAX_LENGTH,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """Return the n most probable phrases that a beam of ``beam`` prefixes finds (default: n, and 10 at least), best first.

        Raises what the class says.
        """
        width = beam or max(n, BEAM)
        c, which = self._summaries(sources)
        barred = self._barred(unk)

        def search(rows: slice) -> list[list[Decoded]]:
            return beam_search(self._model, c[rows], n, width, max_length, barred)

        found = self._in_batches(search, len(c), width)
        return [found[i] for i in which]

    @torch.inference_mode()
    def samples(
        self, sources: Sequence[bytes], number: int, seed: int, temperature: float = 1.0,
        top_k: int | None = None, unk: bool = False, max_length: int = MAX_LENGTH,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """Draw ``number`` phrases at random for every source, in this order; equal ones may be among them.

        The same seed and source give the same phrases, whatever the other sources are. The first of more samples are those of
        fewer. See ``sampling.sample``. Raises what the class says.
        """
        c, which = self._summaries(sources)
        barred = self._barred(unk)
        names = [b" ".join(words(source)) for source in sources]

        def draw(rows: slice) -> list[list[Decoded]]:
            random = [streams(seed, name, number) for name in names[rows]]
            return sample(self._model, c[which[rows]], random, temperature, top_k, max_length, barred)

        return self._in_batches(draw, len(sources), number)

    def _summaries(self, sources: Sequence[bytes]) -> tuple[Tensor, list[int]]:
        """Return c of the distinct sources, and which of them each source has."""
        if not sources:
            return torch.empty(0, self.checkpoint.model.config.hidden), []
        encoded = Ragged.of_phrases(self.checkpoint.as_read(sources), self.checkpoint.vocabs[0])
        first, which = distinct_phrases(encoded)
        return self._model.summaries(encoded.take(first)), which.tolist()

    def _barred(self, unk: bool) -> Tensor:
        return torch.tensor([EOS, *([] if unk else [UNK]), *self._unfit], device=self._model.device)

    def _in_batches(
        self, function: Callable[[slice], list[list[Decoded]]], sources: int, prefixes: int
    ) -> list[list[Hypothesis]]:
        """Call ``function`` with so many sources at a time that their ``prefixes`` each come to PREFIXES."""
        at_once = max(1, PREFIXES // prefixes)
        found = chain.from_iterable(function(slice(start, start + at_once)) for start in range(0, sources, at_once))
        return [[self._hypothesis(decoded) for decoded in of_source] for of_source in found]

    def _hypothesis(self, decoded: Decoded) -> Hypothesis:
        target = b" ".join([self._words[id] for id in decoded.words])
        return Hypothesis(target, decoded.log_p, decoded.words.count(UNK))
