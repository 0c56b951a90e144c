"""log p(target | source) of the hypotheses of one source, each beginning that they share once."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from phrase_rescore.data.ragged import Ragged, prefix_levels
from phrase_rescore.nmt.checkpoint import Translation
from phrase_rescore.nmt.network import next_state
from phrase_rescore.nn.packed import PackedSequences
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.runtime import set_tf32


class SentenceScorer:
    """Scores sentence pairs on a device: cpu, cuda, cuda:1."""

    def __init__(self, translation: Translation, device: str = "cpu") -> None:
        set_tf32("float32", device)
        self.translation, self._device, self._model = translation, device, translation.model.to(device)
        with torch.inference_mode():
            self._log_normaliser = LogNormaliser(self._model.tgt_embedding, self._model.b_G)

    @torch.inference_mode()
    def log_probs(self, source: Ragged, targets: Ragged) -> NDArray[np.float64]:
        """Return natural log p of n targets of the one source, EOS included: (n,). Neither has EOS."""
        model, config = self._model, self._model.config
        annotations, there = model.annotations(PackedSequences.of(source.with_eos(), self._device))
        total = np.zeros(len(targets))
        words = np.full(1, -1)  # of each prefix the last
        h = s = annotations.new_zeros(1, config.hidden)
        for level in prefix_levels(targets.with_eos()):
            continued, parents = np.unique(level.parents, return_inverse=True)
            before, after, next_words = map(self._index, (continued, parents, level.words))
            h = next_state(model.first, h[before], model.first.word_rows(model.read(self._index(words[continued]))))
            z = model.attend(h[None], annotations, there)[0]
            s = next_state(model.second, s[before], model.second.word_rows(torch.cat((h, z), 1)))
            g = model.output(s, z, h)
            logits = (g[after] * model.tgt_embedding[next_words]).sum(1) + model.b_G[next_words]
            log_p = (logits - self._log_normaliser(g)[after]).double().cpu().numpy()
            total[level.rows] += log_p[level.nodes]
            words, h, s = level.words, h[after], s[after]
        return total

    def _index(self, rows: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(rows).to(self._device)

    def encode(self, sentences: Sequence[Sequence[bytes]], side: int) -> Ragged:
        """Look up the words of sentences of the source (0) or target (1)."""
        vocabulary = (self.translation.src_vocab, self.translation.tgt_vocab)[side]
        return Ragged.of([vocabulary.encode(words).tolist() for words in sentences])
