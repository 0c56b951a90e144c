"""log p(target | source) of phrase pairs, with everything that pairs share computed once.

Within a batch each distinct source prefix is read once. Of each distinct (source, target prefix) the state, the shared part of
its continuations' steps and its softmax normaliser are computed once. Scores are exact: they are those of the pairs scored
one by one, up to rounding.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from phrase_rescore.data.prefix_trees import distinct_phrases, prefix_levels
from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.errors import RescoreError
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.moses.table import words
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.decoder import ReadyModel

BATCH = 2048  # pairs that share: more share more, but their states leave the cache
GPU_BATCH = 16384  # a GPU needs many rows to be busy


class Scorer:
    """Scores phrase pairs with a trained model. Safe to use from several threads; the same pairs give the same bits.

    ``device``: cpu, cuda, cuda:1; ``precision``: one of runtime.PRECISIONS. Pairs share their work within ``batch`` pairs
    at a time, which is halved when the device runs out of memory.

    Raises OptionError for a precision that the device does not have.
    """

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", precision: str = "float32") -> None:
        self._model = ReadyModel(checkpoint, device, precision)
        self.checkpoint, self.device, self.precision = checkpoint, device, precision
        self.batch, self.halved = BATCH if device == "cpu" else GPU_BATCH, False

    @torch.inference_mode()
    def _word_log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return log p of every target word and of EOS, pair after pair: (Σ (length + 1),)."""
        first, node_of = distinct_phrases(pairs.src)  # of each row its node
        offsets, lengths = pairs.tgt.with_eos().offsets, pairs.tgt.lengths
        result = np.empty(int(offsets[-1]))
        rows = np.arange(len(pairs))
        levels = prefix_levels(pairs.tgt, node_of)
        prefixes = self._model.empty_prefixes(self._model.summaries(pairs.src.take(first)))
        for t in range(len(levels) + 1):
            ends = lengths[rows] == t
            result[offsets[rows[ends]] + t] = prefixes.eos_log_p()[node_of[ends]]
            if t < len(levels):
                level = levels[t]
                rows, node_of = level.rows, level.nodes
                result[offsets[rows] + t] = prefixes.word_log_p(level.parents, level.words)[node_of]
                prefixes = prefixes.continued(level.parents, level.words)
        return result

    def _in_memory(self, pairs: EncodedPairs) -> Iterator[NDArray[np.float64]]:
        """Yield ``_word_log_probs`` of ``batch`` pairs at a time, and of half as many whenever memory runs out."""
        start = 0
        while start < len(pairs):
            batch = self.batch
            try:
                part = self._word_log_probs(pairs.take(np.arange(start, min(start + batch, len(pairs)))))
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise RescoreError(
                        f"{self.device}: out of memory for a single phrase pair; name another --device"
                    ) from None
                self.batch, self.halved = min(self.batch, batch // 2), True  # another thread may have halved it already
                torch.cuda.empty_cache()
                continue
            yield part
            start += batch

    def word_log_probs(self, pairs: EncodedPairs) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return natural log p of every word that the model predicts and of EOS after them, as ``flat`` and ``offsets``.

        Those of pair i are ``flat[offsets[i]:offsets[i + 1]]``. An inverse model predicts the words of the source.
        """
        pairs = self.checkpoint.for_model(pairs)
        return np.concatenate((np.empty(0), *self._in_memory(pairs))), pairs.tgt.with_eos().offsets

    def log_probs(self, pairs: EncodedPairs) -> NDArray[np.float64]:
        """Return natural log p(target | source) of every pair, EOS included: (n,). Of an inverse model: p(source | target)."""
        flat, offsets = self.word_log_probs(pairs)
        return np.add.reduceat(flat, offsets[:-1]) if len(pairs) else flat

    def encode(self, pairs: Iterable[tuple[bytes, bytes]]) -> EncodedPairs:
        """Look up the words of phrases given as bytes, words between ASCII blanks."""
        listed = [(b" ".join(words(src)), b" ".join(words(tgt))) for src, tgt in pairs]
        return self.encode_phrases([src for src, _ in listed], [tgt for _, tgt in listed])

    def encode_phrases(self, src: Sequence[bytes], tgt: Sequence[bytes]) -> EncodedPairs:
        """Look up the words of phrases that have single blanks between their words.

        Raises RowError for a word without the factor that the model reads.
        """
        known = self.checkpoint
        src, tgt = select_factor(src, known.factors[0], "source"), select_factor(tgt, known.factors[1], "target")
        return EncodedPairs(Ragged.of_phrases(src, known.src_vocab), Ragged.of_phrases(tgt, known.tgt_vocab))

    def score(self, pairs: Iterable[tuple[bytes, bytes]]) -> NDArray[np.float64]:
        """Return natural log p(target | source), EOS included, of (source, target) phrases as tokenized bytes: (n,).

        ``Scorer(load("phrase-rescore-model")).score([(b"good morning", b"bonjour")])``; per word:
        ``scorer.word_log_probs(scorer.encode(pairs))``.
        """
        return self.log_probs(self.encode(pairs))
