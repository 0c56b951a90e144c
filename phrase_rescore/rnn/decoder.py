"""The decoder's states word by word: the one step that scoring, beam search and sampling share.

``ReadyModel`` is a model on its device, with what every word contributes computed once. ``Prefixes`` are beginnings of targets,
all of one length; ``continued`` gives those that are a word longer. What continuations of one prefix share is computed once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.data.prefix_trees import Indices
from phrase_rescore.data.ragged import Ragged
from phrase_rescore.data.vocabulary import EOS
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.rnn.cells import Rows, State, rows_of
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.network import for_scoring
from phrase_rescore.runtime import check_precision, set_tf32


class ReadyModel:
    """A model that is ready to go through phrases word by word. Nothing of it changes, so threads may share one.

    Raises OptionError for a ``precision`` (one of runtime.PRECISIONS) that the device does not have.
    """

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
        decoder, stack = self.decoder, self.decoder.stack
        contexts, state, n = stack.context(c), stack.initial(c), len(c)
        words = torch.full((n,), self.start, device=self.device)
        return Prefixes(self, contexts, decoder.output_context(c), np.arange(n), stack.project(state, contexts), state, words)

    def logits(self, g: Tensor) -> Tensor:
        """Return G_l g + b_G, of every word that may come next: (n, R) -> (n, K)."""
        return torch.addmm(self.decoder.b_G, g, self.decoder.G_l.T)


class Prefixes:
    """Prefixes of one length, (n,), and what comes next: word k after prefix i with log p = (G_l g_i + b_G)_k - log_z_i.

    What summaries contribute to every step: ``contexts`` C c of every layer, (m, G H), and ``by_source`` O_c c + b_O, (m, 2 M).
    """

    def __init__(
        self, model: ReadyModel, contexts: Rows, by_source: Tensor, source: Indices, projected: Rows, state: State,
        words: Tensor,
    ) -> None:  # fmt: skip
        self._model, self._contexts, self._by_source = model, contexts, by_source
        self.source = source  # (n,) the row of c that each is under
        self._state = model.decoder.stack.step(projected, state, model.tgt_rows.index_select(0, words))
        self.g = model.decoder.low_rank(
            self._state[0], model.out_rows.index_select(0, words), by_source.index_select(0, model.index(source))
        )
        self.log_z = model.log_normaliser(self.g)

    def __len__(self) -> int:
        return len(self.source)

    def eos_log_p(self) -> NDArray[np.float64]:
        """Return natural log p of the target's end after each prefix: (n,)."""
        decoder = self._model.decoder
        return ((self.g @ decoder.G_l[EOS] + decoder.b_G[EOS]) - self.log_z).double().cpu().numpy()

    def word_log_p(self, parents: Indices, words: Indices) -> NDArray[np.float64]:
        """Return natural log p of the words (m,), each after the prefix that ``parents`` (m,) names: (m,)."""
        decoder, after, next_words = self._model.decoder, self._model.index(parents), self._model.index(words)
        logits = (self.g[after] * decoder.G_l[next_words]).sum(1) + decoder.b_G[next_words]
        return (logits - self.log_z[after]).double().cpu().numpy()

    def continued(self, parents: Indices, words: Indices) -> Prefixes:
        """Return the prefixes of ``parents`` (m,) with the words (m,) after them."""
        going_on, place = np.unique(parents, return_inverse=True)  # only prefixes that go on are projected
        model, source = self._model, self.source
        state = rows_of(self._state, model.index(going_on))
        projected = model.decoder.stack.project(state, rows_of(self._contexts, model.index(source[going_on])))
        after = model.index(place)
        state, projected = rows_of(state, after), rows_of(projected, after)
        return Prefixes(model, self._contexts, self._by_source, source[parents], projected, state, model.index(words))
