"""The kind of a file, recognized by its first rows: commands that read tables refuse others by name."""

import os
import re
from collections import Counter
from collections.abc import Sequence

from phrase_rescore.moses.table import NUMBER, SEPARATOR, is_non_terminal, is_number, split_fields, words

KINDS = {
    "table": "a phrase table",
    "extract": "an extract file (alignment where a table has scores)",
    "tsv": "two-column TSV",
    "bitext": "pairs 'source ||| target' without scores",
    "half": "a half table (alignment before the scores)",
    "rules": "a rule table, Hiero or syntax (non-terminals such as [X])",
    "nbest": "an n-best list",
    "reordering": "a lexical reordering table (scores that sum to 1)",
    "orientations": "a reordering extract file (mono, swap, other)",
    "alignments": "a file of word alignments",
    "lexicon": "a lexical translation table (two words and a number)",
    "vocabulary": "a vocabulary file",
    "vectors": "vectors of words or phrases",
    "ini": "a moses.ini",
    "arpa": "a language model, ARPA",
    "binary": "a binary file",
    "text": "text without '|||', such as a corpus",
}
JUDGED = 100  # rows
POINT = re.compile(rb"\d+-\d+")
_FEATURE = re.compile(rb"[^=]+=(?:%b)?|\w+:" % NUMBER)  # ``LM0=``, ``lm=-3.2`` as of Joshua and cdec, ``lm:`` of old Moses
_ORIENTATIONS = frozenset(b"mono swap other nomono left right dleft dright noLeft noRight".split())  # extract-main.cpp
_SECTION = re.compile(rb"\[(?:feature|weight|mapping|input-factors|ttable-file|lmodel-file|weight-[a-z]+)\]\s*")
_SUMS = {3: (3,), 6: (3,), 8: (4,), 4: (4, 2)}  # scores of a reordering table: of how many orientations (lexical-reordering)


def kind_of_file(rows: Sequence[bytes]) -> str | None:
    """Recognize a file by its first rows, without their newlines: a key of KINDS; None if unknown.

    Most rows decide, so a phrase table with some words in brackets is not taken for a rule table.
    """
    found = [kind for row in rows[:JUDGED] if row.strip() and (kind := kind_of_row(row)) is not None]
    if not any(SEPARATOR in row for row in rows[:JUDGED]):
        if any(map(_SECTION.fullmatch, rows[:JUDGED])):
            return "ini"
        if b"\\data\\" in (row.strip() for row in rows[:JUDGED]):
            return "arpa"
    votes = Counter(found)
    if votes["text"] < 0.9 * len(found):
        del votes["text"]
    best = max(votes, key=lambda kind: (votes[kind], kind == "table"), default=None)  # of equals the first
    if best == "table":
        scored = [fields for row in rows[:JUDGED] if len(fields := split_fields(row.rstrip(b"\r\n"))) >= 3]
        if any(len(fields) > 3 for fields in scored):
            return best
        scores = [words(fields[2]) for fields in scored]
        alike = len(scores[0]) == 4 and len(set(map(tuple, scores))) < 5  # which, as a 1 in every row, could be anything's
        if not alike and all(map(_sums, scores)) and any(max(map(float, of_row)) < 0.99 for of_row in scores):
            return "reordering"
        lengths = [len(words(fields[1])) for fields in scored]
        if all(fields[0].strip().isdigit() for fields in scored) and sum(lengths) > 3 * len(scored):
            return "nbest"  # numbers of segments, sentences and totals
    return best


def is_rule(row: bytes) -> bool:
    """Return whether a row is of a rule table of Moses: both sides end in a label such as [X]."""
    fields = split_fields(row)
    sides = [words(field)[-1:] for field in fields[:2]]
    return len(fields) > 2 and all(side and is_non_terminal(side[0]) for side in sides)


def kind_of_row(row: bytes) -> str | None:
    """Return what a row looks like: a key of KINDS, or None."""
    fields = split_fields(row.rstrip(b"\r\n"))
    if len(fields) < 3:
        return _without_fields(row, fields)
    first, second, third = map(words, fields[:3])
    fourth = words(fields[3]) if len(fields) > 3 else []
    numbers = bool(third) and all(map(is_number, third))
    with_features = any(map(_FEATURE.fullmatch, third + fourth))
    totalled = numbers and len(fields) == 4 and len(fourth) == 1 and is_number(fourth[0])
    if len(first) == 1 and is_number(first[0]) and (with_features or (totalled and first[0].isdigit())):
        return "nbest"
    if second and numbers and len(fields) == 3 and all(map(_FEATURE.fullmatch, second)):  # Joshua without numbers
        return "nbest"
    if any(map(is_non_terminal, first + second)):
        return "rules"
    if not third and len(fields) > 4 and fourth and all(map(is_number, fourth)):
        return "half"
    if third and all(map(POINT.fullmatch, third)):
        return "half" if len(fourth) > 1 and is_number(fourth[1]) else "extract"
    if third and _ORIENTATIONS.issuperset(third):
        return "orientations"
    return "table" if numbers else None


def _without_fields(row: bytes, fields: Sequence[bytes]) -> str | None:
    """Return what a row of less than three fields looks like."""
    if len(fields) == 2:
        scores = words(fields[1])
        if all(map(is_number, scores)):
            return "reordering" if _sums(scores) else None  # of one side
        return "bitext" if words(fields[0]) else None
    if b"\0" in row:
        return "binary"
    found, (name, *columns) = words(row), row.split(b"\t")
    if len(columns) == 1 and not (is_number(name) and is_number(columns[0])):  # which score writes
        return "vocabulary" if columns[0].strip().isdigit() else "tsv"
    if len(columns or found) > 2 and all(map(is_number, columns or found[1:])):
        return "vectors"
    if b"({" in found or all(map(POINT.fullmatch, found)):  # GIZA++ writes the first
        return "alignments"
    return "lexicon" if len(found) == 3 and is_number(found[2]) and b"." in found[2] else "text"


def _sums(scores: Sequence[bytes]) -> bool:
    """Tell whether numbers sum to 1 by the orientations of a reordering table."""
    if not all(map(is_number, scores)):
        return False
    values, length = list(map(float, scores)), len(scores)
    return any(all(abs(sum(values[i : i + n]) - 1) < 1e-3 for i in range(0, length, n)) for n in _SUMS.get(length, ()))


_FOLDERS = {  # by a file that it has: what it is, and what to do
    "probing_hash.dat": ("a table of ProbingPT", "pass the text that it was made of"),
    "Misc.dat": ("a table of PhraseDictionaryOnDisk", "pass the text that it was made of"),
    "state.json": ("an interrupted training", "the same train command with --resume continues it"),
    "phrase-table.gz": ("a folder of Moses", "name a file in it: phrase-table.gz"),
    "moses.ini": ("a folder of Moses", "name a file in it: moses.ini"),
}


def kind_of_folder(path: str) -> tuple[str, str] | None:
    """Return what a directory is and what to do, if the name of a file in it shows it."""
    return next((what for name, what in _FOLDERS.items() if os.path.exists(os.path.join(path, name))), None)
