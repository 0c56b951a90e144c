"""The features that rescore adds to the entries of an n-best list, and numbers of a file as one of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import ScoreFiles, natural_log
from phrase_rescore.moses.hypotheses import Entry

ITEMS = "entries"  # of a list
Values = NDArray[np.float64]  # (entries, values of the feature)


class Feature(Protocol):
    """Gives numbers to the entries of a list, block after block."""

    LABEL: str

    def values(self, entries: Sequence[Entry], name: str) -> Values:
        """Return the values of the next entries of the list ``name``: (entries, values)."""

    def check_source(self, seen: Counter[bytes], name: str) -> list[str]:
        """Return warnings about the words of the source ``name``, each with how often it is there. May raise InputError."""

    def warnings(self) -> list[str]:
        """Return warnings about what was read."""


class FileFeature:
    """Numbers of a file that has one for every entry: natural logarithms with ``log``, else probabilities."""

    LABEL = "SCORE"

    def __init__(self, path: str, nbest: str, log: bool) -> None:
        self._path, self._log = path, log
        self.file = ScoreFiles([path], nbest, ITEMS)

    def values(self, entries: Sequence[Entry], name: str) -> Values:
        """Return the natural logarithms of the next entries: (entries, 1)."""
        first = self.file.taken + 1
        (lines,) = self.file.take(len(entries))
        return np.array([natural_log(self._path, number, line, self._log) for number, line in enumerate(lines, first)])[:, None]

    def check_source(self, seen: Counter[bytes], name: str) -> list[str]:
        """Return nothing: what the numbers are is not known."""
        return []

    def warnings(self) -> list[str]:
        """Return nothing, too."""
        return []


def labelled(features: Iterable[Feature], given: Sequence[str]) -> dict[str, Feature]:
    """Return the features by label: those given, then CSLM0, CSLM1, RNN0, …. Raises OptionError if two have the same."""
    by_label, numbers, labels = dict[str, Feature](), Counter[str](), iter(given)
    for feature in features:
        label = next(labels, f"{feature.LABEL}{numbers[feature.LABEL]}")
        if label in by_label:
            raise OptionError(f"two features have the label {label}; name others with --label")
        by_label[label] = feature
        numbers[feature.LABEL] += 1
    return by_label
