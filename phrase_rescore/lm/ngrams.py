"""N-grams as arrays of word ids, cut from an encoded text and never written out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import EOS


@dataclass(frozen=True)
class Ngrams:
    """N-grams of word ids, and the number that dropout of them is drawn from."""

    contexts: NDArray[np.int64]  # (m, order - 1), the oldest word first
    words: NDArray[np.int64]  # (m,)
    draw: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: slice, draw: int) -> Ngrams:
        return Ngrams(self.contexts[rows], self.words[rows], (*self.draw, draw))


def ngrams_at(ids: NDArray[np.int32], places: NDArray[np.int64], order: int) -> Ngrams:
    """Cut the n-grams that end at these places of a text, whose sentences each end in EOS.

    From the end of the sentence before backwards a context is all EOS, as before the first sentence.
    """
    around = places[:, None] + np.arange(1 - order, 0)
    contexts = np.where(around >= 0, ids[np.maximum(around, 0)], EOS)
    outside = np.logical_or.accumulate((contexts == EOS)[:, ::-1], axis=1)[:, ::-1]
    contexts[outside] = EOS
    return Ngrams(contexts.astype(np.int64), ids[places].astype(np.int64))
