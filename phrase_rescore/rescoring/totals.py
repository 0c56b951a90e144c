"""New totals of the entries of an n-best list, by the weights of an ini."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from phrase_rescore.errors import RowError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import counted, printable
from phrase_rescore.moses.hypotheses import Entry, map_entries
from phrase_rescore.moses.ini import read_weights

Values = Mapping[bytes, Sequence[float]]  # of labels


def weighted_total(features: Values, weights: Values, missing: Counter[bytes] | None = None) -> float:
    """Return Σ weight · value. Raises RowError for a feature without its weights, but counts sparse ones in ``missing``."""
    total, hint = 0.0, "is this the file of weights of this list?"
    for label, values in features.items():
        if (given := weights.get(label)) is None:
            if missing is None or b"_" not in label or len(values) != 1:
                raise _no_weight(label)
            missing[label] += 1
            continue
        if len(given) != len(values):
            raise RowError(f"{counted(len(values), 'value')} of {printable(label)} and {counted(len(given), 'weight')}", hint)
        total += sum(weight * value for weight, value in zip(given, values, strict=True))
    if not math.isfinite(total):
        raise RowError("the total of its weights and values is not a finite number", hint)
    return total


def _no_weight(label: bytes) -> RowError:
    name = printable(label)
    return RowError(f"no weight of the feature {name}", f"name it in the file of --weights; '{name}= 0' leaves it out")


class Totals:
    """New totals by the weights of an ini, and which labels of the list and of the ini do not meet."""

    def __init__(self, path: str) -> None:
        self._weights, self._name = read_weights(path), display_name(path)
        self._has_sparse = any(b"_" in label for label in self._weights)
        self._missing, self._met = Counter[bytes](), set[bytes]()
        self._entries = 0

    def renewed(self, entries: list[Entry], name: str) -> list[Entry]:
        """Return the entries with new totals. Raises InputError for a feature without a weight that is not sparse.

        Dense is what has no underscore, several values, or stands in every entry of the first block.
        """

        def renew(entry: Entry) -> Entry:
            features = entry.features()
            self._met.update(features)
            return entry.with_total(weighted_total(features, self._weights, self._missing if self._has_sparse else None))

        renewed = map_entries(entries, name, renew)
        if not self._entries and entries[0].segment < entries[-1].segment:
            for label, n in self._missing.items():
                if n == len(entries):
                    raise _no_weight(label).at(name, entries[0].number)
        self._entries += len(entries)
        return renewed

    def warnings(self) -> Iterator[str]:
        """Yield a warning for labels that only the list or only the ini has. A list may lack some of the sparse ones."""
        if self._missing:
            yield f"no weight for {_labels(self._missing)}, counted as 0 as sparse features are in Moses"
        some_sparse = any(b"_" in label for label in self._met)
        unmet = [label for label, weights in self._weights.items() if label not in self._met and any(weights)]
        expected = [
            label for label in unmet if not ((b"_" in label and some_sparse) or label.startswith(b"UnknownWordPenalty"))
        ]
        if expected:
            yield f"the list lacks {_labels(expected)}, which {self._name} has weights for; the totals leave them out"


def _labels(labels: Collection[bytes]) -> str:
    return f"{counted(len(labels), 'feature')} ({', '.join(map(printable, islice(labels, 5)))}{', …' * (len(labels) > 5)})"
