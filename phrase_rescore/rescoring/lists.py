"""n-best lists of a tuning set as arrays: what each entry has of every feature, and what BLEU counts of it; totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.evaluation.corpora import Segments
from phrase_rescore.evaluation.metrics import Metric
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.messages import Progress, counted, printable
from phrase_rescore.moses.hypotheses import Entry, map_entries, read_entries, weighted_total
from phrase_rescore.moses.ini import read_weights
from phrase_rescore.moses.text import decoded

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

EXACT = 1e-3  # standard deviations of the totals: what is less is rounding
DIGITS = 6  # that decoders write
TINY = 1e-9  # of a value: what differs less is rounding
FAR = 1000.0  # times what is usual: such a value stands for "impossible", and says nothing of the scale


class Lists(NamedTuple):
    """Entries, n of them, those of a segment together, the S segments in order."""

    segment: Rows  # (n,) 0 to S - 1
    features: Floats  # (n, features)
    counts: Floats  # (n, 10) sacrebleu's: lengths of output and reference, matches, n-grams
    totals: Floats  # (n,)

    def half(self, first: int) -> Lists:
        """Return every second segment from the first (0) or second (1) on."""
        return self.only(self.segment % 2 == first)

    def only(self, kept: NDArray[np.bool_]) -> Lists:
        """Return the entries that are ``kept`` (n,), those of whole segments, with new numbers of segments."""
        segment = np.unique(self.segment[kept], return_inverse=True)[1]
        return Lists(segment, self.features[kept], self.counts[kept], self.totals[kept])

    def places(self) -> Rows:
        """Return which entries each segment has, (S, K), its first one again where it has fewer than K."""
        first, sizes = np.unique(self.segment, return_index=True, return_counts=True)[1:]
        number = np.arange(sizes.max())
        return np.asarray(first[:, None] + np.where(number < sizes[:, None], number, 0))


def chosen(features: Floats, weights: Floats, places: Rows) -> Rows:
    """Return which entry of every segment ``rescore --best`` takes by these weights, the first of equal ones: (S,)."""
    given = weights.tolist()
    return best_by(np.array([weighted_total(values, given) for values in features.tolist()]), places)


def best_by(totals: Floats, places: Rows) -> Rows:
    """Return which entry of every segment has the highest of the totals (n,), the first of equal ones: (S,)."""
    return np.asarray(places[np.arange(len(places)), totals[places].argmax(1)])


def _centred(column: Floats, segment: Rows) -> tuple[Floats, Floats, Rows]:
    """Return a feature less its middle in each segment, the same with 0 for what is far off, and in which segments it differs.

    The middle is the mean. Where values are more than FAR off it is the median, and FAR is what these are taken to be off.
    """
    sizes = np.bincount(segment)
    in_order = column[np.lexsort((column, segment))]
    off = column - in_order[np.cumsum(sizes) - (sizes + 2) // 2][segment]  # the lower median
    differs = np.abs(off) > TINY * np.abs(column)
    limit = FAR * np.median(np.abs(off[differs])) if differs.any() else math.inf
    far, differing = np.abs(off) > limit, np.unique(segment[differs])
    if far.any():
        return np.clip(off, -limit, limit), np.where(far, 0.0, off), differing
    centred = column - (np.bincount(segment, column) / sizes)[segment]
    return centred, centred, differing


def scaled(lists: Lists, least: float = 0.0) -> tuple[Floats, Floats]:
    """Return centred features in standard deviations, and these: 0 for what differs in at most ``least`` of the segments."""
    columns, near, differing = zip(*(_centred(column, lists.segment) for column in lists.features.T), strict=True)
    few = least * len(np.bincount(lists.segment))
    scale = np.where([len(segments) > few for segments in differing], np.stack(near, axis=1).std(0), 0.0)
    return np.stack(columns, axis=1) / np.where(scale > 0, scale, np.inf), scale


def weights_of_totals(lists: Lists) -> Floats | None:
    """Return the weights that made the totals, (features,), 0 for what they do not count; None if no weights did."""
    features, scale = scaled(lists)
    totals, scale_of_totals = scaled(lists._replace(features=lists.totals[:, None]))
    far = (np.abs(np.hstack([features, totals])) > FAR / 2).any(1)
    if far.any():  # six digits of such a total say little of the other features
        usual = ~np.isin(lists.segment, lists.segment[far])
        return weights_of_totals(lists.only(usual)) if usual.any() else None
    weights = np.linalg.lstsq(features, totals[:, 0], rcond=TINY)[0]
    # -100 for each unknown word, which no feature counts, leaves fewer digits after the point
    last_digit = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(lists.totals), 1))) + 1 - DIGITS)
    rounding = np.maximum(EXACT * scale_of_totals, last_digit)
    if not totals.any() or ((features @ weights - totals[:, 0]) * scale_of_totals / rounding).std() > 1:
        return None  # another decoder, or features that the list does not have
    return np.where(np.abs(weights) > EXACT, weights, 0) / np.where(scale > 0, scale, 1)


class Reader:
    """Reads lists of the same text into one, the same hypothesis with the same features once."""

    def __init__(self, references: Sequence[Segments], tokenize: str) -> None:
        self.segments, self._bleu = len(references[0]), Metric("bleu", references, tokenize=tokenize)
        # by segment, then by hypothesis and features: counts of BLEU, and the total
        self._entries: dict[int, dict[tuple[str, tuple[float, ...]], tuple[list[float], float]]] = {}
        self.shape: dict[bytes, int] = {}  # how many values each label has
        self._weights = list[Floats | None]()  # that made the totals of each list, None if no weights did

    def read(self, path: str, on_read: Progress | None) -> None:
        """Add a list. Raises InputError, with the line, for a bad one, and for other features than those of the first entry."""
        name = display_name(path)
        with open_input(path, on_read) as stream:
            added = map_entries(read_entries(read_rows(stream), name), name, self._add)
        segment, features, totals = map(np.array, zip(*added, strict=True))
        segment = np.unique(segment, return_inverse=True)[1]
        self._weights.append(weights_of_totals(Lists(segment, features, np.zeros((len(segment), 0)), totals)))

    def _add(self, entry: Entry) -> tuple[int, tuple[float, ...], float]:
        """Add an entry; return its segment, values and total."""
        if entry.segment >= self.segments:
            hint = "give the reference of the text that was decoded"
            raise RowError(f"segment {entry.segment}, but the reference has {counted(self.segments, 'line')}", hint)
        features = entry.features()
        self._check_shape({label: len(values) for label, values in features.items()})
        hypothesis = decoded(b" ".join(entry.hypothesis()))
        values = tuple(value for label in self.shape for value in features[label])
        total = entry.total()
        entries = self._entries.setdefault(entry.segment, {})
        if (hypothesis, values) not in entries:
            entries[hypothesis, values] = self._bleu.segment_counts(entry.segment, hypothesis), total
        return entry.segment, values, total

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

    def texts(self) -> list[str]:
        """Return the text with the highest total of every segment, empty without entries."""
        best = {i: max(entries.items(), key=lambda entry: entry[1][1]) for i, entries in self._entries.items()}
        return [best[i][0][0] if i in best else "" for i in range(self.segments)]

    def weights(self) -> list[Floats]:
        """Return the weights that made the totals of each list, (features,); nothing if those of a list are no weighted sum."""
        made = [weights for weights in self._weights if weights is not None]
        return made if len(made) == len(self._weights) else []

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


def given_weights(path: str, shape: Mapping[bytes, int]) -> tuple[Floats, set[bytes]]:
    """Return the weights of an ini, (features,), 0 where it lacks one, and the labels that it has. Raises InputError."""
    weights = read_weights(path)
    start = [weight for label, n in shape.items() for weight in weights.get(label, [0.0] * n)]
    if any(len(weights[label]) != shape[label] for label in shape.keys() & weights.keys()) or not any(start):
        raise InputError(display_name(path), "the weights are not those of the features of the lists", "give theirs")
    return np.array(start), shape.keys() & weights.keys()
