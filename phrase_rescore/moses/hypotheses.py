"""Outputs of the decoder: hypotheses with the phrases that they consist of, n-best lists, and what is added to these.

``moses -t`` writes ``target phrase |first-last| …``, in target order, with numbers of source words from 0
(``moses/Manager.cpp``); ``-tt`` adds scores within the bars and ``|lm=(…)|`` before the line, ``-print-alignment-info``
``||| 0-0 1-1`` after it. An n-best list has the same in its second field, or spans ``first-last=first-last`` (source = target)
in its fifth. Its entries are ``id ||| hypothesis ||| Name= v v Other= v ||| total [||| segmentation] [||| alignment]
[||| source]`` (``OutputNBest``), those of a segment together, ids from 0 upwards. mert-moses.pl takes labels of letters and
digits, and values without ``inf``, ``nan`` and ``e+``. Marian writes alignment and word scores before the features:
``id ||| hypothesis ||| 0-0 1-1 ||| WordScores= v v ||| F0= v ||| total``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import mul
from typing import NamedTuple, TypeVar

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.messages import counted, printable, shown
from phrase_rescore.moses.file_kinds import JUDGED, LIST, POINT, check_kind
from phrase_rescore.moses.table import BLANKS, SEPARATOR, is_number, split_fields, words

_LM = re.compile(rb"\|lm=\([^)]*\)\| ")
SPAN = re.compile(rb"(?:^|(?<=[ \t]))\|(\d{1,9})-(\d{1,9})(?:,wa=[^|]*+)?\|(?=[ \t]|$)")
_SPANS = re.compile(rb"(\d{1,9})(?:-(\d{1,9}))?=(\d{1,9})(?:-(\d{1,9}))?")
_ID = re.compile(rb"\d{1,9}")
_OTHER_SOURCE = "is this the output for this source?"
_FORM = "an entry is 'id ||| words ||| Label= value ||| total', as moses -n-best-list writes it"
_HINT = f"{_FORM}; is the file cut off?"
_BAR = f"{_FORM}; words have no bars: write ||| in them as &#124;&#124;&#124;"
_LABEL = f"{_FORM}: a label ends in = and has a blank behind it (Joshua, cdec and old versions of Moses write others)"
_VALUE = rb"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf))"
_VALUES = rb"[ \t]*+(?:%b(?:[ \t]++|$))*+" % _VALUE
_TOTAL = re.compile(rb"[ \t]*%b[ \t]*" % _VALUE)
_FEATURES = re.compile(_VALUES + rb"(?:[^ \t]+=(?:[ \t]++|$)(?:%b(?:[ \t]++|$))*+)*" % _VALUE)
_JOINED = re.compile(rb"[^=:]+=%b|[A-Za-z]\w*:" % _VALUE)
_BEFORE_FEATURES = re.compile(rb"[ \t]*WordScores=.*|[-\d., \te]*", re.DOTALL)  # of Marian: word scores, alignment
_OF_FAIRSEQ = re.compile(rb"[SHTDPA](?:-\d+)?\t")
_FAIRSEQ = "fairseq-generate writes such lines: write its lines H as 'id ||| words ||| F0= score ||| score'"
T = TypeVar("T")


class UsedPhrase(NamedTuple):
    """A phrase pair that the decoder used: source words ``first`` to ``last``, from 0, and the target phrase."""

    first: int
    last: int
    tgt: bytes  # words with single blanks between them


Derivation = tuple[UsedPhrase, ...]  # in target order


def parse_surface(text: bytes) -> Derivation:
    """Read what ``-t`` or ``-tt`` writes of a segment. Raises RowError for words without a span.

    >>> parse_surface(b"la maison |1-2| bleue |0-0| ")
    (UsedPhrase(first=1, last=2, tgt=b'la maison'), UsedPhrase(first=0, last=0, tgt=b'bleue'))
    """
    begins = _LM.match(text)
    place, phrases = begins.end() if begins else 0, list[UsedPhrase]()
    for span in SPAN.finditer(text, place):
        phrases.append(UsedPhrase(int(span[1]), int(span[2]), b" ".join(words(text[place : span.start()]))))
        place = span.end()
    if rest := words(text[place:]):
        found = f"no |first-last| after {shown(b' '.join(rest))}" if phrases else "no phrase segmentation"
        raise RowError(found, "run moses with -t")
    return tuple(phrases)


def parse_entry(fields: Sequence[bytes]) -> Derivation:
    """Read the entry of an n-best list that has these fields. Raises RowError if it has no segmentation."""
    if SPAN.search(fields[1]):
        return parse_surface(fields[1])
    target, phrases = words(fields[1]), list[UsedPhrase]()
    spans = [_SPANS.fullmatch(word) for word in words(fields[4])] if len(fields) > 4 else []
    if not all(spans) or (target and not spans):
        raise RowError("no phrase segmentation in an n-best list", "run moses with -t, or with -include-segmentation-in-n-best")
    place = 0
    for span in filter(None, spans):
        first, begin = int(span[1]), int(span[3])
        last, end = int(span[2] or first), int(span[4] or begin) + 1
        if begin != place:
            raise RowError(f"the phrase {shown(span[0])} does not follow the one before it", _OTHER_SOURCE)
        phrases.append(UsedPhrase(first, last, b" ".join(target[begin:end])))
        place = end
    if place != len(target):
        raise RowError(f"phrases of {counted(place, 'word')} in a target of {len(target)}", "is this an n-best list of moses?")
    return tuple(phrases)


def check_cover(phrases: Derivation, source: Sequence[bytes]) -> None:
    """Raise RowError unless every source word is in exactly one phrase."""
    taken = [0] * len(source)
    for first, last, _ in phrases:
        if not first <= last < len(source):
            raise RowError(f"phrase |{first}-{last}| of a source of {counted(len(source), 'word')}", _OTHER_SOURCE)
        for i in range(first, last + 1):
            taken[i] += 1
    for i, times in enumerate(taken):
        if times != 1:
            found = f"{times} phrases" if times else "no phrase"
            hint = _OTHER_SOURCE + ("" if times else " (-drop-unknown leaves words out: run moses without it)")
            raise RowError(f"source word {i} ({shown(source[i])}) is in {found}", hint)


def check_source(entry: Entry, source: Sequence[bytes]) -> None:
    """Raise RowError if phrases or alignment points of an entry do not fit its source. An entry may have neither."""
    in_surface, others = list(SPAN.finditer(entry.fields[1])), (*entry.fields[2 : entry.at], *entry.fields[entry.at + 2 :])
    spans = in_surface
    for field in map(words, others):
        matches = [_SPANS.fullmatch(word) for word in field]
        if matches and all(matches) and not in_surface:  # -t and -include-segmentation-in-n-best may both be given
            spans = [match for match in matches if match]
        if all(map(POINT.fullmatch, field)):
            last = max((int(point.partition(b"-")[0]) for point in field), default=0)
            if last > len(source):  # one more: Marian aligns the end, a chart decoder counts <s>
                raise RowError(f"an alignment of word {last} of a source of {counted(len(source), 'word')}", _OTHER_SOURCE)
    if spans:
        check_cover(tuple(UsedPhrase(int(span[1]), int(span[2] or span[1]), b"") for span in spans), source)


class Entry(NamedTuple):
    """An entry of a list: id, hypothesis, (in Marian's more fields), features, total, …, with the blanks around them."""

    segment: int
    number: int  # of its line, from 1
    fields: tuple[bytes, ...]
    end: bytes  # of the line
    exact_total: float | None = None  # the total before it was written with six digits
    at: int = 2  # the place of the features among the fields; the total is the next

    def line(self) -> bytes:
        """Return the line that it was read from."""
        return SEPARATOR.join(self.fields) + self.end

    def hypothesis(self) -> list[bytes]:
        """Return the words of the hypothesis. Raises RowError as ``parse_surface`` does."""
        if SPAN.search(self.fields[1]):
            return [word for phrase in parse_surface(self.fields[1].strip(BLANKS)) for word in words(phrase.tgt)]
        return words(self.fields[1])

    def derivation(self) -> Derivation:
        """Return the phrases of the hypothesis. Raises RowError if the entry has no segmentation."""
        return parse_entry([field.strip(BLANKS) for field in self.fields])

    def features(self) -> dict[bytes, list[float]]:
        """Return the values by label. Raises RowError for a value before any label, a label used twice, a bad value."""
        features, values = dict[bytes, list[float]](), None
        for word in words(self.fields[self.at]):
            if word.endswith(b"="):
                if word[:-1] in features:
                    raise _repeated_label(word)
                values = features[word[:-1]] = []
            elif values is None:
                raise _unlabelled(word)
            else:
                values.append(_number(word))
        return features

    def total(self) -> float:
        """Return the total. Raises RowError if it is not a number."""
        return _number(self.fields[self.at + 1].strip(BLANKS)) if self.exact_total is None else self.exact_total

    def with_feature(self, label: bytes, values: Sequence[float], replace: bool) -> Entry:
        """Return the entry with this feature, which may be there if it is to ``replace`` it. Raises RowError without labels."""
        if (first := words(self.fields[self.at])[:1]) and not first[0].endswith(b"="):
            raise _unlabelled(first[0])
        features, text = self.fields[self.at], b" ".join((label + b"=", *map(as_value, values)))
        form = rb"(?:(?<=[ \t])|^)" + re.escape(label) + rb"=(?:[ \t]+[^ \t]*[^ \t=](?=[ \t]|$))*"
        written, times = re.subn(form, lambda _: text, features)
        if times > 1:
            raise _repeated_label(label + b"=")
        if times and not replace:
            hint = "overwrite it with --replace, or choose another label with --label"
            raise RowError(f"the list has a feature {printable(label)} already", hint)
        if not times:
            bare = features.rstrip(BLANKS)
            written = bare + b" " + text + (features[len(bare) :] or b" ")
        return self._replace(fields=(*self.fields[: self.at], written, *self.fields[self.at + 1 :]))

    def with_total(self, total: float) -> Entry:
        """Return the entry with another total."""
        at, old = self.at + 1, self.fields[self.at + 1]
        written = old.replace(old.strip(BLANKS), as_value(total))
        return self._replace(fields=(*self.fields[:at], written, *self.fields[at + 1 :]), exact_total=total)


def as_value(value: float, digits: int = 6) -> bytes:
    """Write a number with six significant digits as Moses does, but never with ``e+``, which would stop mert-moses.pl."""
    text = b"%.*g" % (digits, value)
    return b"%.0f" % value if b"e+" in text else text


def weighted_total(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return Σ weight · value, rounded once, so that the order of the features does not matter; nan if that is no number."""
    try:
        return math.fsum(map(mul, weights, values))
    except (OverflowError, ValueError):
        return math.nan


def _unlabelled(value: bytes) -> RowError:
    return RowError(f"the value {shown(value)} has no label", "run moses without -labeled-n-best-list false")


def _repeated_label(label: bytes) -> RowError:
    return RowError(f"the label {shown(label)} is used twice", "make the list again")


def _number(word: bytes) -> float:
    if not is_number(word) or not math.isfinite(value := float(word)):
        raise RowError(f"{shown(word)} is not a number", _HINT)
    return value


def _place_of_features(fields: Sequence[bytes]) -> int:
    """Return the place of the features: 2, or the last but one in a list of Marian with word scores or alignment."""
    is_marian = (
        len(fields) in (5, 6) and not _TOTAL.fullmatch(fields[3]) and _TOTAL.fullmatch(fields[-1])
        and b"".join(words(fields[-2])[:1]).endswith(b"=") and all(map(_BEFORE_FEATURES.fullmatch, fields[2:-2]))
    )  # fmt: skip
    return len(fields) - 2 if is_marian else 2


def parse_line(row: bytes, line: int = 1) -> Entry:
    """Read a line of a list, the ``line``-th. Raises RowError for one that is not an entry."""
    bare = row.rstrip(b"\r\n")
    fields = tuple(split_fields(bare))
    number = fields[0].strip(BLANKS)
    if not _ID.fullmatch(number):
        raise RowError(f"{shown(number)} is not the number of a segment", _FAIRSEQ if _OF_FAIRSEQ.match(row) else _HINT)
    if len(fields) < 4:
        raise RowError(f"{counted(len(fields), 'field')}; an entry has at least four", _HINT)
    at = _place_of_features(fields)
    if not _FEATURES.fullmatch(fields[at]):
        bad = next(word for word in words(fields[at]) if not word[1:].endswith(b"=") and not _TOTAL.fullmatch(word))
        later = any(words(field) and b"=" in field and _FEATURES.fullmatch(field) for field in fields[at + 1 :])
        hint = _LABEL if _JOINED.fullmatch(bad) else _BAR if later else _HINT
        raise RowError(f"{shown(bad)} is not a number", hint)
    if not _TOTAL.fullmatch(total := fields[at + 1]):
        raise RowError(f"{shown(total.strip(BLANKS))} is not a number", _HINT)
    return Entry(int(number), line, fields, row[len(bare) :], at=at)


def read_entries(rows: Iterable[bytes], name: str) -> Iterator[Entry]:
    """Yield the entries of a list. Raises InputError for an empty one, what is no entry, and a segment after a later one."""
    return _parsed(enumerate(rows, 1), name)


def read_outline(rows: Iterable[bytes], name: str) -> Iterator[Entry]:
    """Yield the first entry of every segment and the last of the list, faster. Raises InputError as ``read_entries``."""
    return _parsed(_outline(rows), name)


def _outline(rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    begins, given, line, row = None, 0, 0, b""
    for line, row in enumerate(rows, 1):
        if (begin := row.partition(SEPARATOR)[0]) != begins:
            begins, given = begin, line
            yield line, row
    if line > given:
        yield line, row


def _parsed(rows: Iterator[tuple[int, bytes]], name: str) -> Iterator[Entry]:
    last = -1
    for line, row in rows:
        try:
            entry = parse_line(row, line)
            if entry.segment < last:
                raise RowError(f"segment {entry.segment} after segment {last}", "sort the list by segment: sort -s -n")
        except RowError as error:
            if line == 1:
                check_kind(name, [row, *(other for _, other in islice(rows, JUDGED))], LIST)
            raise error.at(name, line) from None
        last = entry.segment
        yield entry
    if last < 0:
        raise InputError(name, "is empty", "pass an n-best list")


def map_entries(entries: Iterable[Entry], name: str, function: Callable[[Entry], T]) -> list[T]:
    """Apply a function to every entry of the list ``name``. Raises InputError, with the line, for its RowError."""
    results = list[T]()
    for entry in entries:
        try:
            results.append(function(entry))
        except RowError as error:
            raise error.at(name, entry.number) from None
    return results


def check_label(label: bytes) -> None:
    """Raise OptionError for a label that Moses' tuners do not take."""
    if not re.fullmatch(rb"[A-Za-z][0-9A-Za-z]*", label):
        raise OptionError(f"--label {shown(label)}: letters and digits only, a letter first, as in CSLM0")
