"""Read the phrases that outputs of the decoder consist of.

``moses -t`` writes ``target phrase |first-last| …``, in target order; the numbers are those of source words, from 0
(``moses/Manager.cpp``). ``-tt`` adds scores within the bars and ``|lm=(…)|`` before the line, ``-print-alignment-info`` adds
``||| 0-0 1-1`` after it. An n-best list has the same in its second field, or spans ``first-last=first-last`` (source = target)
in its fifth.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from phrase_rescore.errors import InputError, RowError, counted, shown
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.moses.table import split_fields, words

_LM = re.compile(rb"\|lm=\([^)]*\)\| ")
_SPAN = re.compile(rb"(?:^|(?<=[ \t]))\|(\d{1,9})-(\d{1,9})(?:,wa=[^|]*+)?\|(?=[ \t]|$)")
_SPANS = re.compile(rb"(\d{1,9})(?:-(\d{1,9}))?=(\d{1,9})(?:-(\d{1,9}))?")
_ID = re.compile(rb"\d{1,9}")
_OTHER_SOURCE = "is this the output for this source?"


class UsedPhrase(NamedTuple):
    """A phrase pair that the decoder used: source words ``first`` to ``last``, from 0, and the target phrase."""

    first: int
    last: int
    tgt: bytes  # words with single blanks between them


Derivation = tuple[UsedPhrase, ...]  # in target order


def has_spans(text: bytes) -> bool:
    """Tell whether a text has the spans of ``moses -t``."""
    return _SPAN.search(text) is not None


def parse_surface(text: bytes) -> Derivation:
    """Read what ``-t`` or ``-tt`` writes of a segment. Raises RowError for words without a span.

    >>> parse_surface(b"la maison |1-2| bleue |0-0| ")
    (UsedPhrase(first=1, last=2, tgt=b'la maison'), UsedPhrase(first=0, last=0, tgt=b'bleue'))
    """
    begins = _LM.match(text)
    place, phrases = begins.end() if begins else 0, list[UsedPhrase]()
    for span in _SPAN.finditer(text, place):
        phrases.append(UsedPhrase(int(span[1]), int(span[2]), b" ".join(words(text[place : span.start()]))))
        place = span.end()
    if rest := words(text[place:]):
        found = f"no |first-last| after {shown(b' '.join(rest))}" if phrases else "no phrase segmentation"
        raise RowError(found, "run moses with -t")
    return tuple(phrases)


def parse_entry(fields: Sequence[bytes]) -> Derivation:
    """Read the entry of an n-best list that has these fields. Raises RowError if it has no segmentation."""
    if has_spans(fields[1]):
        return parse_surface(fields[1])
    target, phrases = words(fields[1]), list[UsedPhrase]()
    spans = [_SPANS.fullmatch(word) for word in words(fields[4])] if len(fields) > 4 else []
    if not all(spans) or (target and not spans):
        hint = "run moses with -t, or with -include-segmentation-in-n-best"
        raise RowError("no phrase segmentation in an n-best list", hint)
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
        if times > 1:
            raise RowError(f"source word {i} ({shown(source[i])}) is in {times} phrases", _OTHER_SOURCE)
        if not times:
            hint = f"{_OTHER_SOURCE} (-drop-unknown leaves words out: run moses without it)"
            raise RowError(f"source word {i} ({shown(source[i])}) is in no phrase", hint)


def not_utf8(text: bytes) -> RowError | None:
    """Return what is wrong with text that is not UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        around = shown(text[max(0, error.start - 20) : error.start + 20])
        return RowError(f"{around} is not UTF-8", "convert the file with iconv -t UTF-8")
    return None


def read_derivations(path: str, sources: Sequence[Sequence[bytes]], of: str) -> list[Derivation]:
    """Read a system's output for these sources (their words), which are those of the file ``of``.

    The output is that of ``-t``, or an n-best list, of which the first entry of every segment is taken. Raises InputError, with
    the line, for another number of segments, an output without segmentation, and phrases that do not cover their source once.
    """
    name, firsts = display_name(path), dict[int, tuple[int, list[bytes]]]()
    nbest, lines = False, 0
    with open_input(path) as stream:
        for line, row in enumerate(read_rows(stream), 1):
            row = row.rstrip(b"\r\n")
            fields = split_fields(row)
            lines, nbest = line, nbest or (line == 1 and _is_nbest(fields))
            if nbest and not _is_nbest(fields):
                raise InputError(name, f"{shown(row)} is not an entry of an n-best list", "is the file cut off?", line)
            firsts.setdefault(int(fields[0]) if nbest else line - 1, (line, fields))
    segments = max(firsts, default=-1) + 1
    if not lines or segments > len(sources) or (not nbest and segments < len(sources)):
        found = f"{counted(segments, 'segment')} where {display_name(of)} has {len(sources):,}"
        raise InputError(name, found, "every system needs a line for every line of the source")
    derivations = list[Derivation]()
    for i, source in enumerate(sources):
        if i in firsts:
            derivations.append(_derivation(name, *firsts[i], source, nbest))
        elif source:
            raise InputError(name, f"no entry for segment {i} of the n-best list", "every line of the source needs one")
        else:  # an n-best list has no entry for an empty line
            derivations.append(())
    return derivations


def _is_nbest(fields: Sequence[bytes]) -> bool:
    return len(fields) >= 4 and _ID.fullmatch(fields[0].strip()) is not None


def _derivation(name: str, line: int, fields: Sequence[bytes], source: Sequence[bytes], nbest: bool) -> Derivation:
    try:
        phrases = parse_entry(fields) if nbest else parse_surface(fields[0])
        check_cover(phrases, source)
        if error := not_utf8(b" ".join(phrase.tgt for phrase in phrases)):
            raise error
    except RowError as error:
        raise error.at(name, line) from None
    return phrases
