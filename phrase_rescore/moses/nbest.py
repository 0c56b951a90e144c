"""N-best lists of Moses: entries, their features by label, and what is added to them; every other byte stays.

``id ||| hypothesis ||| Name= v v Other= v ||| total [||| segmentation] [||| alignment] [||| source]`` (moses/Manager.cpp,
``OutputNBest``). Entries of a segment stand together, ids from 0 upwards. A label is followed by one value for each weight. A
label with an underscore is that of a sparse feature, whose weight is 0 where none is given. mert-moses.pl takes labels of
letters and digits, and values without ``inf``, ``nan`` and ``e+``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from phrase_rescore.errors import OptionError, RowError, counted, printable, shown
from phrase_rescore.moses.segmentation import Derivation, has_spans, parse_entry, parse_surface
from phrase_rescore.moses.table import BLANKS, SEPARATOR, is_number, split_fields, words

T = TypeVar("T")
_ID = re.compile(rb"\d{1,9}")
_HINT = "pass a list that moses wrote with -n-best-list; is the file cut off?"


class Entry(NamedTuple):
    """An entry of a list, its fields with the blanks around them: id, hypothesis, features, total, and what else there is."""

    segment: int
    number: int  # of its line, from 1
    fields: tuple[bytes, ...]
    end: bytes  # of the line
    exact_total: float | None = None  # the total before it was written with six digits

    def line(self) -> bytes:
        """Return the line that it was read from."""
        return SEPARATOR.join(self.fields) + self.end

    def hypothesis(self) -> list[bytes]:
        """Return the words of the hypothesis. Raises RowError as ``segmentation.parse_surface`` does."""
        if has_spans(self.fields[1]):
            return [word for phrase in parse_surface(self.fields[1].strip(BLANKS)) for word in words(phrase.tgt)]
        return words(self.fields[1])

    def derivation(self) -> Derivation:
        """Return the phrases of the hypothesis. Raises RowError if the entry has no segmentation."""
        return parse_entry([field.strip(BLANKS) for field in self.fields])

    def features(self) -> dict[bytes, list[float]]:
        """Return the values by label. Raises RowError for a value before any label, a label that stands twice, a bad value."""
        found, values = dict[bytes, list[float]](), None
        for word in words(self.fields[2]):
            if word.endswith(b"="):
                if word[:-1] in found:
                    raise _repeated_label(word)
                values = found[word[:-1]] = []
            elif values is None:
                raise _unlabelled(word)
            else:
                values.append(_number(word))
        return found

    def total(self) -> float:
        """Return the total. Raises RowError if it is no number."""
        return _number(self.fields[3].strip(BLANKS)) if self.exact_total is None else self.exact_total

    def with_feature(self, label: bytes, values: Sequence[float], replace: bool) -> Entry:
        """Return the entry with a feature more, or, with ``replace``, with new values of one that it has already.

        Raises RowError if the label is there already and ``replace`` is not given, and if the list has no labels.
        """
        if (first := words(self.fields[2])[:1]) and not first[0].endswith(b"="):
            raise _unlabelled(first[0])
        features, text = self.fields[2], b" ".join((label + b"=", *map(as_value, values)))
        form = rb"(?:(?<=[ \t])|^)" + re.escape(label) + rb"=(?:[ \t]+[^ \t]*[^ \t=](?=[ \t]|$))*"
        there, *more = [*re.finditer(form, features), None]
        if there and more[0]:
            raise _repeated_label(label + b"=")
        if there:
            if not replace:
                hint = "renew it with --replace, or choose another with --label"
                raise RowError(f"the list has a feature {printable(label)} already", hint)
            features = features[: there.start()] + text + features[there.end() :]
        else:
            bare = features.rstrip(BLANKS)
            features = bare + b" " + text + (features[len(bare) :] or b" ")
        return self._replace(fields=(*self.fields[:2], features, *self.fields[3:]))

    def with_total(self, total: float) -> Entry:
        """Return the entry with another total."""
        old = self.fields[3]
        before, _, after = old.partition(bare) if (bare := old.strip(BLANKS)) else (old, b"", b"")
        return self._replace(fields=(*self.fields[:3], before + as_value(total) + after, *self.fields[4:]), exact_total=total)


def as_value(value: float) -> bytes:
    """Write a number with six significant digits as Moses does, and never with ``e+``, of which mert-moses.pl would die."""
    text = b"%.6g" % value
    return b"%.0f" % value if b"e+" in text else text


def _unlabelled(value: bytes) -> RowError:
    return RowError(f"the value {shown(value)} has no label", "run moses without -labeled-n-best-list false")


def _repeated_label(label: bytes) -> RowError:
    return RowError(f"the label {shown(label)} stands twice", "make the list anew")


def _number(word: bytes) -> float:
    if not is_number(word) or not math.isfinite(value := float(word)):
        raise RowError(f"{shown(word)} is not a number", _HINT)
    return value


def parse_line(row: bytes, line: int = 1) -> Entry:
    """Read a line of a list, the ``line``-th. Raises RowError for one that is not an entry."""
    bare = row.rstrip(b"\r\n")
    fields = tuple(split_fields(bare))
    number = fields[0].strip(BLANKS)
    if not _ID.fullmatch(number):
        raise RowError(f"{shown(number)} is not the number of a segment", _HINT)
    if len(fields) < 4:
        raise RowError(f"{counted(len(fields), 'field')}, and an entry has four at least", _HINT)
    return Entry(int(number), line, fields, row[len(bare) :])


def read_entries(rows: Iterable[bytes], name: str) -> Iterator[Entry]:
    """Yield the entries of a list that messages call ``name``.

    Raises InputError, with the line, for a line that is no entry, and for a segment that comes after a later one.
    """
    last = -1
    for line, row in enumerate(rows, 1):
        try:
            entry = parse_line(row, line)
            if entry.segment < last:
                raise RowError(f"segment {entry.segment} after segment {last}", "sort the list by segment: sort -s -n")
        except RowError as error:
            raise error.at(name, line) from None
        last = entry.segment
        yield entry


def of_each(entries: Iterable[Entry], name: str, read: Callable[[Entry], T]) -> list[T]:
    """Return what ``read`` makes of every entry of the list ``name``. Raises InputError, with the line, for its RowError."""
    found = list[T]()
    for entry in entries:
        try:
            found.append(read(entry))
        except RowError as error:
            raise error.at(name, entry.number) from None
    return found


def weighted_total(features: Mapping[bytes, Sequence[float]], weights: Mapping[bytes, Sequence[float]]) -> float:
    """Return Σ weight · value. Raises RowError for a feature without its weights, or with another number of them."""
    total = 0.0
    for label, values in features.items():
        if (given := weights.get(label)) is None:
            if b"_" in label:
                continue
            raise RowError(f"no weight of the feature {printable(label)}", "name it in the file of --weights")
        if len(given) != len(values):
            found = f"{counted(len(values), 'value')} of {printable(label)} and {counted(len(given), 'weight')}"
            raise RowError(found, "is this the file of weights of this list?")
        total += sum(weight * value for weight, value in zip(given, values, strict=True))
    if not math.isfinite(total):
        raise RowError("weights and values whose total is beyond all numbers", "is this the file of weights of this list?")
    return total


def check_label(label: bytes) -> None:
    """Raise OptionError for a label that Moses' tuners do not take."""
    if not re.fullmatch(rb"[A-Za-z][0-9A-Za-z]*", label):
        raise OptionError(f"--label {shown(label)}: letters and digits only, a letter first, as in CSLM0")
