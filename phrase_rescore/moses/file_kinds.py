"""The one list of kinds of files: whoever reads a table or a text asks it, and refuses what is of another kind.

A new kind is an entry of ``KINDS``.
"""

import codecs
import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from phrase_rescore.errors import InputError
from phrase_rescore.moses.table import BLANKS_AND_CR, NUMBER, SEPARATOR, is_number, split_fields, words

JUDGED = 100  # rows
POINT = re.compile(rb"\d+-\d+")
_SECTION = re.compile(rb"\[(?:feature|weight|mapping|input-factors|ttable-file|lmodel-file|weight-[a-z]+)\]")
_SUMS = {3: (3,), 6: (3,), 8: (4,), 4: (4, 2)}  # scores of a reordering table: of how many orientations (lexical-reordering)


def _all(word: bytes) -> bytes:
    """Make the expression of words that are all like this."""
    return rb"(?:%b(?: %b)*+)" % (word, word)


def _any(word: bytes) -> bytes:
    """Make the expression of words, at least one of them like this."""
    return rb"(?:(?:.* )?%b(?: .*)?)" % word


# Expressions of rows as ``_fields`` writes them: a field a line, with single blanks between its words
_N, _MORE = NUMBER, rb"(?:\n.*)*"
_NUMBERS, _POINTS = _all(_N), _all(POINT.pattern)
_FEATURE = rb"(?:[^= \n]++=(?:%b)?|\w++:)" % _N  # ``LM0=``, ``lm=-3.2`` as of Joshua and cdec, ``lm:`` of old Moses
_NON_TERMINAL = _any(rb"\[[^ \n]*\]")
_ORIENTATION = rb"(?:mono|swap|other|nomono|d?left|d?right|noLeft|noRight)"  # extract-main.cpp
_NOT_TWO_NUMBERS = rb"(?!%b\t%b\Z)" % (_N, _N)  # which ``score`` writes


class Kind(NamedTuple):
    """A kind of file."""

    what: str
    advice: str = ""  # who takes it, or what does instead
    rows: tuple[bytes, ...] = ()  # expressions that fit its rows; none: the file as a whole shows it, or its name
    name: str | None = None  # the expression of what Moses calls such files


KINDS = {  # a row is of the first that it fits
    "nbest": Kind("an n-best list", "rescore takes it", (
        _N + rb"\n.*\n(?:.*\n)?" + _any(_FEATURE) + _MORE, rb"\d+\n.*\n%b\n%b" % (_NUMBERS, _N),
        rb".*\n%b\n%b" % (_all(_FEATURE), _NUMBERS))),
    "rules": Kind("a rule table, Hiero or syntax (non-terminals such as [X])", "", (
        _NON_TERMINAL + rb"\n.*\n.*" + _MORE, rb".*\n" + _NON_TERMINAL + rb"\n.*" + _MORE)),
    "half": Kind("a half table (alignment before the scores)", "the consolidated phrase-table.gz is the right one", (
        rb".*\n.*\n\n" + _NUMBERS + rb"\n.*" + _MORE, rb".*\n.*\n%b\n[^ \n]+ %b(?: .*)?" % (_POINTS, _N) + _MORE),
        r"\bhalf\.(f2e|e2f)\b|\.half\b"),
    "extract": Kind("an extract file (alignment where a table has scores)", "train takes it", (
        rb".*\n.*\n" + _POINTS + _MORE,)),
    "orientations": Kind("a reordering extract file (mono, swap, other)", "train takes extract.sorted.gz", (
        rb".*\n.*\n" + _all(_ORIENTATION) + _MORE,), r"extract.*\.o(\.|$)"),
    "table": Kind("a phrase table", "train, annotate and info take it", (rb".*\n.*\n" + _NUMBERS + _MORE,)),
    "reordering": Kind("a lexical reordering table (scores that sum to 1)", "", (
        rb".*\n%b(?: %b){2,7}" % (_N, _N),)),  # that of both sides has the rows of a table
    "bitext": Kind("pairs 'source ||| target' without scores", r"train takes them as TSV: sed 's/ *||| */\t/'", (
        rb".+\n(?!%b\Z).+" % _NUMBERS,)),
    "binary": Kind("a binary file", "", (rb".*\0.*",)),
    "fairseq": Kind("output of fairseq (H-0, score, text)", "pass the sentences in it", (rb"[A-Z]-\d+\t.*",)),
    "vocabulary": Kind("a vocabulary file", "", (_NOT_TWO_NUMBERS + rb"[^\t\n]*\t *\d+ *",)),
    "tsv": Kind("two-column TSV", "train takes it", (_NOT_TWO_NUMBERS + rb"[^\t\n]*\t[^\t\n]*",)),
    "vectors": Kind("vectors of words or phrases", "", (
        rb"[^\t\n]*(?:\t%b){3,}" % _N, rb" *[^ \t\n]+(?: +%b){2,} *" % _N)),
    "alignments": Kind("a file of word alignments", "", (
        rb"(?:.* )?\(\{ .*", rb"# Sentence pair \(.*", _POINTS + rb" *")),  # the first two are of GIZA++
    "sgml": Kind("SGML or XML", "pass the sentences in it", (
        rb"(?i:[ \t]*<(?:[!?]|/?(?:srcset|refset|tstset|mteval|tmx|doc|hl|seg|tuv?)\b)[^<>]*>.*)",)),
    "json": Kind("JSON", "pass the sentences in it", (rb"[ \t]*\{[ \t]*\".*\}[ \t]*,?[ \t]*",)),
    "lexicon": Kind("a lexical translation table (two words and a number)", "", (
        rb"[^ \t\n]+ [^ \t\n]+ (?=[^ ]*\.)" + _N,)),
    "text": Kind("text without '|||', such as a corpus", "train-lm, train-nmt and score-lm take sentences", (rb".*",)),
    "ini": Kind("a moses.ini", "info and moses-ini take it, if it is a file"),
    "arpa": Kind("a language model, ARPA"),
    "utf-16": Kind("UTF-16", "iconv -f UTF-16 -t UTF-8 converts it"),
    "mac": Kind("text whose lines end in CR alone (old Mac)", r"tr '\r' '\n' converts it"),
    "inverse": Kind("an inverted file (target first)", "the file without '.inv' in its name is the right one", (), r"\.inv\b"),
}  # fmt: skip
_ROWS = {name: re.compile(b"|".join(kind.rows)) for name, kind in KINDS.items() if kind.rows}


class Wanted(NamedTuple):
    """What a reader takes."""

    what: str
    kinds: tuple[str, ...]


TABLE = Wanted("a phrase table", ("table",))
DESCRIBED = Wanted("a phrase table, a model or a moses.ini", ("table",))
PAIRS = Wanted("a phrase table, an extract file or TSV", ("table", "extract", "tsv"))
# Lists of other programs, or cut off, look like the last four; their reader says more of them
LIST = Wanted("an n-best list", ("nbest", "text", "tsv", "bitext", "fairseq"))
TEXT = Wanted("tokenized text in UTF-8, a sentence a line", ("text",))
# Short segments with numbers look like the last four
SEGMENTS = Wanted("text in UTF-8, a segment a line", ("text", "vectors", "lexicon", "alignments", "ini"))


def check_kind(name: str, rows: Sequence[bytes], wanted: Wanted) -> str | None:
    """Return the kind of the file ``name``, which begins with these rows; None if it is unknown.

    Raises InputError for a file that is empty or of another kind than those wanted.
    """
    if not rows:
        raise InputError(name, "is empty", f"pass {wanted.what}")
    kind = kind_of_file(rows, least_text=0.5 if wanted in (TEXT, SEGMENTS) else 0.9)
    if kind is not None and kind not in wanted.kinds:
        raise _refused(name, "looks like", KINDS[kind], wanted)
    return kind


def check_name(path: str, wanted: Wanted) -> None:
    """Raise InputError for the names that Moses gives to files of other kinds, whose rows may look right."""
    for kind in KINDS.values():
        if kind.name and re.search(kind.name, os.path.basename(path)):
            raise _refused(path, "has the name of", kind, wanted)


def _refused(name: str, verb: str, kind: Kind, wanted: Wanted) -> InputError:
    advice = f" ({kind.advice})" if kind.advice else ""
    return InputError(name, f"{verb} {kind.what}", f"pass {wanted.what}{advice}")


def kind_of_file(rows: Sequence[bytes], least_text: float = 0.9) -> str | None:
    """Recognize a file by its first rows, without their newlines: a key of KINDS; None if unknown.

    Most rows decide, so a phrase table with some words in brackets is not taken for a rule table. But rows without fields
    may be damage: it is text if ``least_text`` of its rows look so.
    """
    judged = [_fields_of(row) for row in rows[:JUDGED] if row.strip()]
    if special := _kind_of_whole(judged):
        return special
    votes = Counter(kind for fields in judged if (kind := _kind_of_row(fields)))
    if votes["text"] < least_text * votes.total():
        del votes["text"]
    best = max(votes, key=lambda kind: (votes[kind], kind == "table"), default=None)  # of equals the first
    if best in (None, "text") and _has_own_ends(judged):
        return "mac"
    return _kind_of_table([fields for fields in judged if len(fields) > 2]) if best == "table" else best


def _fields_of(row: bytes) -> list[bytes]:
    """Cut a row into fields with single blanks between their words; a row without separators stays as it is."""
    text = row.rstrip(b"\r\n")
    if SEPARATOR not in text:
        return [text]
    return [b" ".join(words(field)) for field in split_fields(text)]


def _kind_of_row(fields: Sequence[bytes]) -> str | None:
    row = b"\n".join(fields)
    return next((name for name, rows in _ROWS.items() if rows.fullmatch(row)), None)


def _kind_of_whole(rows: Sequence[Sequence[bytes]]) -> str | None:
    """Recognize a file by what is not a field."""
    if rows and rows[0][0].startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if any(len(fields) > 1 for fields in rows):
        return None
    lines = [line.partition(b"#")[0].strip(BLANKS_AND_CR) for (line,) in rows]
    if b"".join(lines)[:1] == b"[" and any(map(_SECTION.fullmatch, lines)):
        return "ini"
    return "arpa" if b"\\data\\" in lines else None


def _has_own_ends(rows: Sequence[Sequence[bytes]]) -> bool:
    """Tell whether CRs within rows, where what ends these is cut off, must be ends of lines."""
    within = b"".join(chain.from_iterable(rows))
    return within.count(b"\r") >= max(1, len(rows)) and b"\0" not in within


def _kind_of_table(rows: Sequence[Sequence[bytes]]) -> str:
    """Tell a phrase table from other files that have numbers in their third field."""
    if any(len(fields) > 3 for fields in rows):
        return "table"
    scores = [fields[2].split() for fields in rows]
    alike = len(scores[0]) == 4 and len(set(map(tuple, scores))) < 5  # which, as a 1 in every row, could be anything's
    if not alike and all(map(_sum_to_1, scores)) and any(max(map(float, of_row)) < 0.99 for of_row in scores):
        return "reordering"
    numbered = all(fields[0].isdigit() for fields in rows)
    if numbered and sum(len(fields[1].split()) for fields in rows) > 3 * len(rows):
        return "nbest"  # numbers of segments, sentences and totals
    return "table"


def _sum_to_1(scores: Sequence[bytes]) -> bool:
    """Tell whether these are numbers that sum to 1 by the orientations of a reordering table."""
    if not all(map(is_number, scores)):
        return False
    values = list(map(float, scores))
    for n in _SUMS.get(len(values), ()):
        sums = [sum(values[i : i + n]) for i in range(0, len(values), n)]
        if all(abs(total - 1) < 1e-3 for total in sums):
            return True
    return False


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
