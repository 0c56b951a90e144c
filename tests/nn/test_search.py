"""Beam search over a model that is a table of numbers."""

from typing import Self

import numpy as np
import pytest
import torch

from phrase_rescore.data.ragged import Indices
from phrase_rescore.nn.search import Decoded, beam_search
from phrase_rescore.nn.softmax import NextWords


class OneWord:
    """Targets of one source and one word, id 1: log p of the end, and of the word, after each length."""

    source = np.zeros(1, np.int64)

    def __init__(self, steps: list[tuple[float, float]]) -> None:
        self.steps = steps

    def next_words(self, k: int, barred: torch.Tensor) -> NextWords:
        end, word = self.steps[0]
        return NextWords(np.array([end]), np.array([[word]]), np.array([[1]]))

    def continued(self, parents: Indices, words: Indices) -> Self:
        return type(self)(self.steps[1:])


@pytest.mark.parametrize(("word", "best"), [(-2.3, Decoded([1, 1], -2.3)), (-2.6, Decoded([1], -2.0))])
def test_a_prefix_goes_on_while_its_norm_is_better_than_the_best(word: float, best: Decoded) -> None:
    """-2 / 2^0.6 = -1.32, -2.3 / 3^0.6 = -1.19, -2.6 / 3^0.6 = -1.35."""
    model = OneWord([(-9.0, 0.0), (-2.0, word), (0.0, -9.0), (0.0, -9.0)])
    assert beam_search(model, [3], 1, 1, 2, torch.tensor([0]), norm=0.6) == [[best]]
