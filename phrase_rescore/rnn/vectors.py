"""What a model has learnt, as vectors: the embeddings e of its words, and the summaries c = tanh(V h + b_V) of phrases.

Sizes: K ids of a side's vocabulary, E embedding, H hidden units.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from phrase_rescore.data.prefix_trees import distinct_phrases
from phrase_rescore.data.ragged import Ragged
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.network import for_scoring
from phrase_rescore.runtime import set_tf32

BATCH = 2048  # phrases that share their prefixes
END, UNKNOWN = b"<end of phrase>", b"<unknown word>"  # names of EOS and UNK; no word is called so, for no word has a blank

Side = Literal["source", "target"]
Vectors = NDArray[np.float32]


def embedded_words(checkpoint: Checkpoint, side: Side) -> tuple[bytes, ...]:
    """Name the rows of ``word_embeddings``: EOS (END), UNK (UNKNOWN), then the words, the most frequent first."""
    vocabulary = checkpoint.src_vocab if side == "source" else checkpoint.tgt_vocab
    return (END, UNKNOWN, *vocabulary.words)


def word_embeddings(checkpoint: Checkpoint, side: Side) -> Vectors:
    """Return the embeddings e of a side's words, (K, E): row i is that of id i.

    Source and target are those of the phrase table: an inverse model's encoder has the targets.
    """
    embeddings = checkpoint.model.encoder.embedding, checkpoint.model.decoder.embedding
    return np.array(embeddings[checkpoint.sides.index(side)].detach().cpu().numpy(), np.float32)


class PhraseEncoder:
    """Gives the summaries c of phrases of the side that the model reads, which is the target of an inverse model.

    ``BATCH`` phrases at a time share their work. The same phrases in the same order give the same bits. Among other phrases
    a phrase's c may differ by rounding, about 1e-6 (its numbers are from -1 to 1).
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        set_tf32("float32", device)
        self.checkpoint = checkpoint
        self.width = checkpoint.model.config.hidden  # H
        self._encoder = for_scoring(checkpoint.model, device).encoder
        with torch.inference_mode():
            self._word_rows = self._encoder.word_rows()

    def vectors(self, phrases: Sequence[bytes]) -> Vectors:
        """Return c of phrases given as tokenized bytes, words between blanks: (n, H).

        Raises RowError as ``Checkpoint.as_read`` does.
        """
        return self.vectors_as_read(self.checkpoint.as_read(phrases))

    def vectors_as_read(self, phrases: Sequence[bytes]) -> Vectors:
        """Return c of phrases as ``Checkpoint.as_read`` gives them: (n, H)."""
        batches = (phrases[start : start + BATCH] for start in range(0, len(phrases), BATCH))
        return np.concatenate((np.empty((0, self.width), np.float32), *map(self._of_batch, batches)))

    @torch.inference_mode()
    def _of_batch(self, phrases: Sequence[bytes]) -> Vectors:
        ids = Ragged.of_phrases(phrases, self.checkpoint.vocabs[0])
        first, which = distinct_phrases(ids)
        c: Vectors = self._encoder.summaries(ids.take(first), self._word_rows).cpu().numpy()
        return c[which]
