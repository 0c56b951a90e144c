"""What the log-probabilities of a model whose training went well never are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError

LEAST_LOG_P = -20.0  # of a word, on average: a perplexity of 5e8, which no training that went well leaves
SMALLER_RATE = "train it again with a smaller --learning-rate"


def check_finite(scores: NDArray[np.float64], name: str, lines: Sequence[int], model: str = "the model") -> None:
    """Raise InputError, with its line in the file ``name``, for the first of the scores (n,) that is not finite."""
    if not (finite := np.isfinite(scores)).all():
        found = f"the score by {model} is not a finite number: its training diverged"
        raise InputError(name, found, SMALLER_RATE, lines[int(finite.argmin())])


def diverged(log_p: float, words: int) -> list[str]:
    """Return a warning if so many words, together of log p, are less probable than any that a good training leaves."""
    if not words or log_p / words > LEAST_LOG_P:
        return []
    return [f"log p of a word is {log_p / words:.4g} on average, so the training of the model diverged; {SMALLER_RATE}"]
