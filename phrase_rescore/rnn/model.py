"""A model of phrase pairs in memory, which scores and proposes without a command and without files."""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.moses.text import PhraseReader
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.checkpoint import load as load_checkpoint
from phrase_rescore.rnn.scorer import PhraseEncoder, Scorer
from phrase_rescore.rnn.translator import MAX_LENGTH, Hypothesis, Translator
from phrase_rescore.runtime import resolve_device

Phrase = str | bytes  # tokenized and escaped as in the table, blanks between words; str is encoded as UTF-8


class Model:
    """A trained model, ready to score phrase pairs and to propose, embed and count the words of phrases.

    Source and target are those of the phrase table: an inverse model reads targets and gives p(source | target). Methods
    raise RowError for an empty phrase, a non-terminal, or a word without the factor that the model reads.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", precision: str = "float32") -> None:
        self.checkpoint, self._device = checkpoint, resolve_device(device)
        self._scorer = Scorer(checkpoint, self._device, precision)

    @property
    def signature(self) -> str:
        """The line that names the model: what it scores, its sizes, a hash of its weights and vocabularies, the version."""
        return self.checkpoint.signature

    def score(self, sources: Sequence[Phrase], targets: Sequence[Phrase]) -> NDArray[np.float32]:
        """Return natural log p(target | source), EOS included, of n pairs: (n,). Raises ValueError for unequal numbers."""
        return self._scorer.log_probs(self._encoded(sources, targets)).astype(np.float32)

    def unknown_words(self, sources: Sequence[Phrase], targets: Sequence[Phrase]) -> NDArray[np.int64]:
        """Return how many words of the predicted side of each of n pairs the model does not know: (n,). Raises as ``score``."""
        return self.checkpoint.for_model(self._encoded(sources, targets)).tgt.counts_of(UNK)

    def generate(
        self, sources: Sequence[Phrase], n: int = 10, *, beam: int | None = None, unk: bool = False,
        max_length: int = MAX_LENGTH,
    ) -> list[list[Hypothesis]]:  # fmt: skip
        """Return, for each source, the ``n`` most probable targets that a beam search finds, the best first.

        ``beam`` prefixes are kept (default: ``n``, at least 10). ``unk`` allows unknown words. ``max_length`` counts words.
        """
        translator = Translator(self.checkpoint, self._device)
        return translator.n_best(self._phrases(sources, self.checkpoint.sides[0]), n, beam, unk, max_length)

    def embed(self, phrases: Sequence[Phrase]) -> NDArray[np.float32]:
        """Return the summaries c of n phrases of the side that the model reads: (n, H), numbers from -1 to 1."""
        read = self.checkpoint.as_read(self._phrases(phrases, self.checkpoint.sides[0]))
        return PhraseEncoder(self.checkpoint, self._device).vectors(read)

    def _encoded(self, sources: Sequence[Phrase], targets: Sequence[Phrase]) -> EncodedPairs:
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets; a pair has one of each")
        return self._scorer.encode_phrases(self._phrases(sources, "source"), self._phrases(targets, "target"))

    def _phrases(self, phrases: Sequence[Phrase], side: str) -> list[bytes]:
        read = PhraseReader(side, self.checkpoint.factors[0 if side == "source" else 1])
        return [read(phrase.encode() if isinstance(phrase, str) else phrase) for phrase in phrases]


def load(model_dir: str | os.PathLike[str], *, device: str = "cpu", precision: str = "float32") -> Model:
    """Load a model directory that ``train`` made, without running code of it. Raises ModelError or OptionError.

    ``device`` is auto, cpu, cuda or cuda:N; ``precision`` is that of the large products: float32, bf16, or on GPUs tf32.
    """
    return Model(load_checkpoint(os.fspath(model_dir)), device, precision)
