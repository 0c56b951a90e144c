"""The one list of kinds of files: whoever reads a table or a text asks it, and refuses what is of another kind.

To add a kind, write a function that recognizes its rows and an entry of ``KINDS``.
"""

import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from phrase_rescore.errors import InputError
from phrase_rescore.moses.table import BLANKS_AND_CR, NUMBER, is_non_terminal, is_number, split_fields, words

JUDGED = 100  # rows
POINT = re.compile(rb"\d+-\d+")
_FEATURE = re.compile(rb"[^=]+=(?:%b)?|\w+:" % NUMBER)  # ``LM0=``, ``lm=-3.2`` as of Joshua and cdec, ``lm:`` of old Moses
_ORIENTATIONS = frozenset(b"mono swap other nomono left right dleft dright noLeft noRight".split())  # extract-main.cpp
_SECTION = re.compile(rb"\[(?:feature|weight|mapping|input-factors|ttable-file|lmodel-file|weight-[a-z]+)\]")
_SUMS = {3: (3,), 6: (3,), 8: (4,), 4: (4, 2)}  # scores of a reordering table: of how many orientations (lexical-reordering)


class Row:
    """A row, without its newline, cut for those who recognize it."""

    def __init__(self, row: bytes) -> None:
        self.text = row.rstrip(b"\r\n")
        self.fields = [words(field) for field in split_fields(self.text)]  # the words of each
        self.first, self.second, self.third, self.fourth = [*self.fields, [], [], []][:4]
        self.columns = self.text.split(b"\t")

    @property
    def has_fields(self) -> bool:
        return len(self.fields) > 1


def _numbers(found: Sequence[bytes]) -> bool:
    return bool(found) and all(map(is_number, found))


def _points(found: Sequence[bytes]) -> bool:
    return all(map(POINT.fullmatch, found))


def _sum_to_1(scores: Sequence[bytes]) -> bool:
    """Tell whether numbers sum to 1 by the orientations of a reordering table."""
    values = list(map(float, scores))
    for n in _SUMS.get(len(values), ()):
        sums = [sum(values[i : i + n]) for i in range(0, len(values), n)]
        if all(abs(total - 1) < 1e-3 for total in sums):
            return True
    return False


def _nbest(row: Row) -> bool:
    if len(row.fields) < 3:
        return False
    if len(row.first) == 1 and is_number(row.first[0]):
        if any(map(_FEATURE.fullmatch, row.third + row.fourth)):
            return True
        if row.first[0].isdigit() and len(row.fields) == 4 and _numbers(row.third) and len(row.fourth) == 1:
            return is_number(row.fourth[0]) is not None  # scores without labels, and a total
    features = bool(row.second) and all(map(_FEATURE.fullmatch, row.second))
    return features and len(row.fields) == 3 and _numbers(row.third)  # of Joshua, without the number


def _grammar(row: Row) -> bool:
    return len(row.fields) > 2 and any(map(is_non_terminal, row.first + row.second))


def _rules(row: Row) -> bool:
    return _grammar(row) and _numbers(row.third)


def _half(row: Row) -> bool:
    if not row.third:
        return len(row.fields) > 4 and _numbers(row.fourth)
    return _points(row.third) and len(row.fourth) > 1 and is_number(row.fourth[1]) is not None


def _extract(row: Row) -> bool:
    return bool(row.third) and _points(row.third)


def _orientations(row: Row) -> bool:
    return bool(row.third) and _ORIENTATIONS.issuperset(row.third)


def _table(row: Row) -> bool:
    return _numbers(row.third)


def _reordering(row: Row) -> bool:  # of one side; that of both has the rows of a table
    return len(row.fields) == 2 and _numbers(row.second) and _sum_to_1(row.second)


def _bitext(row: Row) -> bool:
    return len(row.fields) == 2 and bool(row.first) and not all(map(is_number, row.second))


def _binary(row: Row) -> bool:
    return not row.has_fields and b"\0" in row.text


def _tsv(row: Row) -> bool:
    return len(row.columns) == 2 and not row.has_fields and not all(map(is_number, row.columns))  # ``score`` writes two numbers


def _vocabulary(row: Row) -> bool:
    return _tsv(row) and row.columns[1].strip().isdigit()


def _vectors(row: Row) -> bool:
    numbers = row.columns[1:] or row.first[1:]
    return not row.has_fields and len(row.columns[1:] or row.first) > 2 and all(map(is_number, numbers))


def _alignments(row: Row) -> bool:
    of_giza = b"({" in row.first or row.text.startswith(b"# Sentence pair (")
    return not row.has_fields and (of_giza or _points(row.first))


def _lexicon(row: Row) -> bool:
    if row.has_fields or len(row.first) != 3:
        return False
    return is_number(row.first[2]) is not None and b"." in row.first[2]


def _text(row: Row) -> bool:
    return not row.has_fields


class Kind(NamedTuple):
    """A kind of file."""

    what: str
    advice: str = ""  # who takes it, or what does instead
    is_row: Callable[[Row], bool] | None = None  # None: the file as a whole shows it, or its name
    name: re.Pattern[str] | None = None  # what Moses calls such files


KINDS = {  # a row is of the first that recognizes it
    "nbest": Kind("an n-best list", "rescore takes it", _nbest),
    "rules": Kind("a rule table of Moses, Hiero or syntax (non-terminals such as [X])", "info takes it", _rules),
    "grammar": Kind("a grammar of Joshua or cdec (non-terminals such as [X])", "", _grammar),
    "half": Kind("a half table (alignment before the scores)", "the consolidated phrase-table.gz is the right one", _half,
                 re.compile(r"\bhalf\.(f2e|e2f)\b|\.half\b")),
    "extract": Kind("an extract file (alignment where a table has scores)", "train takes it", _extract),
    "orientations": Kind("a reordering extract file (mono, swap, other)", "train takes extract.sorted.gz", _orientations,
                         re.compile(r"extract.*\.o(\.|$)")),
    "table": Kind("a phrase table", "train, annotate and info take it", _table),
    "reordering": Kind("a lexical reordering table (scores that sum to 1)", "", _reordering),
    "bitext": Kind("pairs 'source ||| target' without scores", r"train takes them as TSV: sed 's/ *||| */\t/'", _bitext),
    "binary": Kind("a binary file", "", _binary),
    "vocabulary": Kind("a vocabulary file", "", _vocabulary),
    "tsv": Kind("two-column TSV", "train takes it", _tsv),
    "vectors": Kind("vectors of words or phrases", "", _vectors),
    "alignments": Kind("a file of word alignments", "", _alignments),
    "lexicon": Kind("a lexical translation table (two words and a number)", "", _lexicon),
    "text": Kind("text without '|||', such as a corpus", "train-lm, train-nmt and score-lm take sentences", _text),
    "ini": Kind("a moses.ini", "info and moses-ini take it"),
    "arpa": Kind("a language model, ARPA"),
    "utf-16": Kind("UTF-16", "iconv -f UTF-16 -t UTF-8 converts it"),
    "inverse": Kind("an inverted file (target first)", "the file without '.inv' in its name is the right one", None,
                    re.compile(r"\.inv\b")),
}  # fmt: skip


class Wanted(NamedTuple):
    """What a reader takes."""

    what: str
    kinds: tuple[str, ...]


TABLE = Wanted("a phrase table", ("table",))
DESCRIBED = Wanted("a phrase table, a model or a moses.ini", ("table", "rules"))
PAIRS = Wanted("a phrase table, an extract file or TSV", ("table", "extract", "tsv"))
TEXT = Wanted("tokenized text in UTF-8, a sentence a line", ("text",))


def check_kind(name: str, rows: Sequence[bytes], wanted: Wanted) -> str | None:
    """Return the kind of the file ``name``, which begins with these rows; None if it is unknown.

    Raises InputError for a file that is empty or of another kind than those wanted.
    """
    if not rows:
        raise InputError(name, "is empty", f"pass {wanted.what}")
    kind = kind_of_file(rows, least_text=0.5 if wanted is TEXT else 0.9)
    if kind is not None and kind not in wanted.kinds:
        raise _refused(name, "looks like", KINDS[kind], wanted)
    return kind


def check_name(path: str, wanted: Wanted) -> None:
    """Raise InputError for the names that Moses gives to files of other kinds, whose rows may look right."""
    for kind in KINDS.values():
        if kind.name and kind.name.search(os.path.basename(path)):
            raise _refused(path, "has the name of", kind, wanted)


def _refused(name: str, verb: str, kind: Kind, wanted: Wanted) -> InputError:
    advice = f" ({kind.advice})" if kind.advice else ""
    return InputError(name, f"{verb} {kind.what}", f"pass {wanted.what}{advice}")


def kind_of_file(rows: Sequence[bytes], least_text: float = 0.9) -> str | None:
    """Recognize a file by its first rows, without their newlines: a key of KINDS; None if unknown.

    Most rows decide, so a phrase table with some words in brackets is not taken for a rule table. But rows without fields
    may be damage: it is text if ``least_text`` of its rows look so.
    """
    judged = [Row(row) for row in rows[:JUDGED] if row.strip()]
    if special := _kind_of_whole(judged):
        return special
    votes = Counter(kind for row in judged if (kind := kind_of_row(row)))
    if votes["text"] < least_text * votes.total():
        del votes["text"]
    best = max(votes, key=lambda kind: (votes[kind], kind == "table"), default=None)  # of equals the first
    return _kind_of_table([row for row in judged if len(row.fields) > 2]) if best == "table" else best


def kind_of_row(row: Row) -> str | None:
    """Return the kind of file that has such rows: a key of KINDS; None if unknown."""
    return next((name for name, kind in KINDS.items() if kind.is_row and kind.is_row(row)), None)


def _kind_of_whole(rows: Sequence[Row]) -> str | None:
    """Recognize a file by a single row of it."""
    if rows and rows[0].text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    lines = [row.text.partition(b"#")[0].strip(BLANKS_AND_CR) for row in rows]
    if any(row.has_fields for row in rows):
        return None
    if b"".join(lines)[:1] == b"[" and any(map(_SECTION.fullmatch, lines)):
        return "ini"
    return "arpa" if b"\\data\\" in lines else None


def _kind_of_table(rows: Sequence[Row]) -> str:
    """Tell a phrase table from other files that have numbers in their third field."""
    if any(len(row.fields) > 3 for row in rows):
        return "table"
    scores = [row.third for row in rows]
    alike = len(scores[0]) == 4 and len(set(map(tuple, scores))) < 5  # which, as a 1 in every row, could be anything's
    are_shares = not alike and all(_numbers(of_row) and _sum_to_1(of_row) for of_row in scores)
    if are_shares and any(max(map(float, of_row)) < 0.99 for of_row in scores):
        return "reordering"
    numbered = all(len(row.first) == 1 and row.first[0].isdigit() for row in rows)
    if numbered and sum(len(row.second) for row in rows) > 3 * len(rows):
        return "nbest"  # numbers of segments, sentences and totals
    return "table"


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
