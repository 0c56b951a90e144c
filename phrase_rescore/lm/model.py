"""A language model in memory, which scores without a command and without files."""

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.lm.checkpoint import LanguageModel
from phrase_rescore.lm.checkpoint import load as load_language_model
from phrase_rescore.lm.scorer import NgramScorer, SentenceScores
from phrase_rescore.moses.text import Sentences
from phrase_rescore.runtime import resolve_device

_SENTENCES = 4096  # at a time


class TextModel:
    """A trained language model, ready to score sentences: tokenized as its corpus, blanks between words.

    Every sentence ends with ``</s>``, whose log p counts. An empty sentence has no words.
    ``<s>`` and ``</s>`` around a sentence are left out.
    """

    def __init__(self, lm: LanguageModel, device: str = "cpu") -> None:
        self.lm = lm
        self._scorer = NgramScorer(lm, resolve_device(device))

    @property
    def signature(self) -> str:
        """The line that names the model: its kind, its sizes, a hash of its weights and words, the version."""
        return self.lm.signature

    def score(self, sentences: Sequence[str | bytes]) -> NDArray[np.float64]:
        """Return natural log p of n sentences: (n,)."""
        return np.concatenate([found.sums() for found in self._scored(sentences)] or [np.empty(0)])

    def score_words(self, sentences: Sequence[str | bytes]) -> list[NDArray[np.float64]]:
        """Return natural log p of every word of each sentence, and of its ``</s>``: an array (words + 1,) each."""
        return [by_word for found in self._scored(sentences) for by_word in np.split(found.log_probs, found.starts[1:])]

    def perplexity(self, sentences: Sequence[str | bytes]) -> float:
        """Return the perplexity of all words and ``</s>`` together, unknown ones counted; NaN without sentences."""
        by_word = [np.empty(0), *self.score_words(sentences)]
        return float(np.exp(-np.concatenate(by_word).mean())) if len(by_word) > 1 else float("nan")

    def _scored(self, sentences: Sequence[str | bytes]) -> Iterator[SentenceScores]:
        """Score some sentences at a time: a word takes some hundred bytes meanwhile."""
        read = Sentences()
        for start in range(0, len(sentences), _SENTENCES):
            some = sentences[start : start + _SENTENCES]
            split = [read(sentence.encode() if isinstance(sentence, str) else sentence) for sentence in some]
            yield self._scorer.sentences(split)


def load_lm(lm: str | os.PathLike[str], *, device: str = "cpu") -> TextModel:
    """Load a language model that ``train_lm`` made, without running code of it. Raises ModelError or OptionError."""
    return TextModel(load_language_model(os.fspath(lm)), device)
