"""Scores by a trained model: log p(target | source) of phrase pairs, the steps of the decoder that scoring, beam search and
sampling share, and vectors: the embeddings e of words and the summaries c of phrases.

Within a batch each distinct source prefix is read once, and so is each target prefix of a source. Scores are those of the pairs
one by one, up to rounding. Sizes: K ids of a side's vocabulary, E embedding, H hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.ragged import EncodedPairs, Indices, Ragged, distinct_phrases
from phrase_rescore.moses.table import select_factor
from phrase_rescore.nn.cells import Rows, State, rows_of
from phrase_rescore.nn.shared_scoring import Predicted, SharedScoring
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.network import for_scoring
from phrase_rescore.runtime import check_precision, set_tf32

BATCH = 2048  # pairs or phrases that share: more share more, but their states leave the cache
GPU_BATCH = 16384  # a GPU needs many rows to be busy
EOS_NAME, UNK_NAME = b"<end of phrase>", b"<unknown word>"  # no word is called so, for no word has a blank

Side = Literal["source", "target"]
Vectors = NDArray[np.float32]


class ReadyModel:
    """A model that scores word by word; threads may share it. Raises OptionError for a ``precision`` that the device lacks."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", precision: str = "float32") -> None:
        check_precision(precision, device)
        self.device = device
        set_tf32(precision, device)
        model = for_scoring(checkpoint.model, device, precision)
        self.encoder, self.decoder = model.encoder, model.decoder
        with torch.inference_mode():
            words = self.decoder.embedding
            embedding = torch.cat((words, words.new_zeros(1, words.shape[1])))
            self.start = len(embedding) - 1  # the row of e(y_0) = 0
            self._src_rows = self.encoder.word_rows()  # W e + b
            self.tgt_rows = self.decoder.stack.word_rows(embedding)  # W' e + b'
            self.out_rows = embedding @ self.decoder.O_y.T  # O_y e
            self.log_normaliser = LogNormaliser(self.decoder.G_l, self.decoder.b_G)

    def index(self, rows: Indices) -> Tensor:
        """Return row numbers on the device."""
        return torch.from_numpy(rows).to(self.device)

    def summaries(self, phrases: Ragged) -> Tensor:
        """Return c of distinct phrases of the side that the model reads: (n, H)."""
        return self.encoder.summaries(phrases, self._src_rows)

    def empty_prefixes(self, c: Tensor) -> Prefixes:
        """Return the prefix of no word under each summary c (n, H)."""
        decoder, stack, n = self.decoder, self.decoder.stack, len(c)
        shared = Shared(stack.context(c), decoder.output_context(c))
        state, words = stack.initial(c), torch.full((n,), self.start, device=self.device)
        return self.step(shared, np.arange(n), stack.project(state, shared.contexts), state, words)

    def step(self, shared: Shared, source: Indices, projected: Rows, state: State, words: Tensor) -> Prefixes:
        """Read the next words (n,) after states whose part of the step is ``projected``; return the prefixes (n,)."""
        state = self.decoder.stack.step(projected, state, self.tgt_rows.index_select(0, words))
        by_source = shared.by_source.index_select(0, self.index(source))
        g = self.decoder.low_rank(state[0], self.out_rows.index_select(0, words), by_source)
        return Prefixes(self.log_normaliser, g, self, shared, source, state)

    def logits(self, g: Tensor) -> Tensor:
        """Return G_l g + b_G, of every word that may come next: (n, R) -> (n, K)."""
        return torch.addmm(self.decoder.b_G, g, self.decoder.G_l.T)


class Shared(NamedTuple):
    """What m summaries c contribute to every step under them."""

    contexts: Rows  # C c of every layer, (m, G H)
    by_source: Tensor  # O_c c + b_O, (m, 2 M)


@dataclass(frozen=True)
class Prefixes(Predicted):
    """Beginnings of targets, (n,), of one length."""

    model: ReadyModel
    shared: Shared
    source: Indices  # (n,) the row of c that each is under
    state: State

    def continued(self, parents: Indices, words: Indices) -> Prefixes:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""
        continued, place = np.unique(parents, return_inverse=True)  # only these prefixes are projected
        model, source = self.model, self.source
        state = rows_of(self.state, model.index(continued))
        contexts = rows_of(self.shared.contexts, model.index(source[continued]))
        projected = model.decoder.stack.project(state, contexts)
        after = model.index(place)
        return model.step(self.shared, source[parents], rows_of(projected, after), rows_of(state, after), model.index(words))


class Scorer:
    """Scores phrase pairs. Safe to use from several threads; the same pairs give the same bits.

    ``device``: cpu, cuda, cuda:1. ``precision``, and what is raised: as for ``ReadyModel``.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", precision: str = "float32") -> None:
        model = ReadyModel(checkpoint, device, precision)
        self.checkpoint, self.device = checkpoint, device
        self.batch = BATCH if device == "cpu" else GPU_BATCH  # pairs that share
        self.sharing = SharedScoring(lambda src: model.empty_prefixes(model.summaries(src)), device, self.batch)

    def word_log_probs(self, pairs: EncodedPairs) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return natural log p of every predicted word and EOS, ``flat``: of pair i ``flat[offsets[i]:offsets[i + 1]]``."""
        pairs = self.checkpoint.for_model(pairs)
        return self.sharing.word_log_probs(pairs), pairs.tgt.with_eos().offsets

    def log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return natural log p(target | source) of every pair, EOS included: (n,). Of an inverse model: p(source | target)."""
        return self.sharing.log_probs(self.checkpoint.for_model(pairs))

    def encode_phrases(self, src: Sequence[bytes], tgt: Sequence[bytes]) -> EncodedPairs:
        """Look up the words of phrases with single blanks. Raises RowError for one without the factor that the model reads."""
        known = self.checkpoint
        src, tgt = select_factor(src, known.factors[0], "source"), select_factor(tgt, known.factors[1], "target")
        return EncodedPairs(Ragged.of_phrases(src, known.src_vocab), Ragged.of_phrases(tgt, known.tgt_vocab))


def embedded_words(checkpoint: Checkpoint, side: Side) -> tuple[bytes, ...]:
    """Name the rows of ``word_embeddings``: EOS (EOS_NAME), UNK (UNK_NAME), then the words, the most frequent first."""
    return (EOS_NAME, UNK_NAME, *checkpoint.vocabs[checkpoint.sides.index(side)].words)


def word_embeddings(checkpoint: Checkpoint, side: Side) -> Vectors:
    """Return the embeddings e of a side (of the phrase table), (K, E): row i is that of id i."""
    embeddings = checkpoint.model.encoder.embedding, checkpoint.model.decoder.embedding
    return np.array(embeddings[checkpoint.sides.index(side)].detach().cpu().numpy(), np.float32)


class PhraseEncoder:
    """Gives the summaries c of phrases of the side that the model reads; in other batches they may differ by some 1e-6."""

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu") -> None:
        set_tf32("float32", device)
        self.checkpoint = checkpoint
        self.width = checkpoint.model.config.hidden  # H
        self._encoder = for_scoring(checkpoint.model, device).encoder
        with torch.inference_mode():
            self._word_rows = self._encoder.word_rows()

    @torch.inference_mode()
    def vectors(self, phrases: Sequence[bytes]) -> Vectors:
        """Return c of phrases as ``Checkpoint.as_read`` gives them: (n, H)."""
        vectors = [np.empty((0, self.width), np.float32)]
        for start in range(0, len(phrases), BATCH):
            ids = Ragged.of_phrases(phrases[start : start + BATCH], self.checkpoint.vocabs[0])
            first, which = distinct_phrases(ids)
            vectors.append(self._encoder.summaries(ids.take(first), self._word_rows).cpu().numpy()[which])
        return np.concatenate(vectors)
