"""n-best lists of a tuning set as arrays: what each entry has of every feature, and what BLEU counts of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.evaluation.metrics import Metric
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.messages import Progress, counted, printable
from phrase_rescore.moses.hypotheses import Entry, map_entries, read_entries
from phrase_rescore.moses.ini import read_weights
from phrase_rescore.moses.text import decoded

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Lists(NamedTuple):
    """Entries, n of them, those of a segment together, the S segments in order."""

    segment: Rows  # (n,) 0 to S - 1
    features: Floats  # (n, features)
    counts: Floats  # (n, 10) sacrebleu's: lengths of output and reference, matches, n-grams
    totals: Floats  # (n,)

    def half(self, first: int) -> Lists:
        """Return every second segment from the first (0) or second (1) on."""
        kept = self.segment % 2 == first
        return Lists(self.segment[kept] // 2, self.features[kept], self.counts[kept], self.totals[kept])

    def places(self) -> Rows:
        """Return which entries each segment has, (S, K), its first one again where it has fewer than K."""
        first, sizes = np.unique(self.segment, return_index=True, return_counts=True)[1:]
        number = np.arange(sizes.max())
        return np.asarray(first[:, None] + np.where(number < sizes[:, None], number, 0))


class Reader:
    """Reads lists of the same text into one, the same hypothesis with the same features once."""

    def __init__(self, references: Sequence[Segments], tokenize: str) -> None:
        self._segments, self._bleu = len(references[0]), Metric("bleu", references, tokenize=tokenize)
        # by segment, then by hypothesis and features: counts of BLEU, and the total
        self._entries: dict[int, dict[tuple[str, tuple[float, ...]], tuple[list[float], float]]] = {}
        self.shape: dict[bytes, int] = {}  # how many values each label has

    def read(self, path: str, on_read: Progress | None) -> None:
        """Add a list. Raises InputError, with the line, for a bad one, and for other features than those of the first entry."""
        name = display_name(path)
        with open_input(path, on_read) as stream:
            map_entries(read_entries(read_rows(stream), name), name, self._add)
        if not self._entries:
            raise InputError(name, "is empty", "pass an n-best list")

    def _add(self, entry: Entry) -> None:
        if entry.segment >= self._segments:
            hint = "give the reference of the text that was decoded"
            raise RowError(f"segment {entry.segment}, but the reference has {counted(self._segments, 'line')}", hint)
        features = entry.features()
        self._check_shape({label: len(values) for label, values in features.items()})
        hypothesis = decoded(b" ".join(entry.hypothesis()))
        values = tuple(value for label in self.shape for value in features[label])
        entries = self._entries.setdefault(entry.segment, {})
        if (hypothesis, values) not in entries:
            entries[hypothesis, values] = self._bleu.segment_counts(entry.segment, hypothesis), entry.total()

    def _check_shape(self, shape: dict[bytes, int]) -> None:
        """Raise RowError if an entry has no features, or others than the first one."""
        if not any(shape.values()):
            raise RowError("no features", "pass a list with labelled features, as in F0= -3.2")
        self.shape = self.shape or shape
        if shape != self.shape:
            label = min(label for label, _ in shape.items() ^ self.shape.items())
            here = f"{counted(shape.get(label, 0), 'value')} of {printable(label)}"
            hint = "tune needs the same features in every entry; make the lists without sparse features"
            raise RowError(f"{here} where the first entry has {self.shape.get(label, 0)}", hint)

    def lists(self) -> Lists:
        """Return what was read."""
        segment, features, counts, totals = list[int](), list[tuple[float, ...]](), list[list[float]](), list[float]()
        for number, (_, entries) in enumerate(sorted(self._entries.items())):
            for (_, values), (of_bleu, total) in entries.items():
                segment.append(number)
                features.append(values)
                counts.append(of_bleu)
                totals.append(total)
        return Lists(np.array(segment), np.array(features), np.array(counts, float), np.array(totals))


def given_weights(path: str, shape: Mapping[bytes, int]) -> Floats:
    """Return the weights of an ini, (features,), 0 for a feature that it lacks. Raises InputError if they do not fit."""
    weights = read_weights(path)
    start = [weight for label, n in shape.items() for weight in weights.get(label, [0.0] * n)]
    if any(len(weights[label]) != shape[label] for label in shape.keys() & weights.keys()) or not any(start):
        raise InputError(display_name(path), "the weights are not those of the features of the lists", "give theirs")
    return np.array(start)
