"""The grammar of a phrase table: how a row is cut, which rows are valid, how columns are appended and removed to the byte.

``source ||| target ||| scores [||| alignment ||| counts ||| sparse ||| properties]`` (``phrase-extract/consolidate-main.cpp``).
Moses finds the separator as a raw substring (``TM/RuleTable/LoaderStandard.cpp``), and neighbouring empty fields share a
blank (``... ||| 1 1 1 ||| |||``). So a row is cut at ``|||`` itself and never at ``" ||| "``. Blanks are the ASCII space and
tab. Nothing else separates words: ``str.split`` would also cut at U+0085, U+00A0, U+2028 and their kin.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.inputs import Block, display_name, open_input, read_blocks
from phrase_rescore.messages import Progress, counted, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Factors = tuple[int | None, int | None]  # of source and target: 0, 1, …; None: words are whole tokens
WHOLE: Factors = (None, None)

READ_ROWS = 16384  # parsed at a time by those who read a table from end to end
SEPARATOR = b"|||"
BLANKS = b" \t"
BLANKS_AND_CR = b" \t\r"
LONGEST_PHRASE = 1000  # words; Moses extracts 7, and a longer one is a lost line break, for which hours and gigabytes would go

# Patterns are possessive, so that long rows are not tried in many ways
NUMBER = rb"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+"
WORD = rb"[^ \t\r\n\0|\]]++"  # of a plain row
is_number = re.compile(NUMBER).fullmatch  # a plain decimal number, as programs of Moses all read it
_COUNTS = re.compile(rb"[ \t]*+%b[ \t]++(%b)[ \t]++(%b)(?=[ \t\r]|\Z)" % (NUMBER, NUMBER, NUMBER))  # of target, source, pair
_SCORES = re.compile(rb"[ \t]*+%b(?:[ \t]++%b)*+[ \t\r]*+" % (NUMBER, NUMBER))


def split_fields(row: bytes, limit: int = -1) -> list[bytes]:
    """Cut a row into its fields, with the blanks around them; what follows the first ``limit`` stays in one piece."""
    return row.split(SEPARATOR, limit)


def words(field: bytes) -> list[bytes]:
    """Cut a field at its runs of ASCII blanks.

    >>> words(b" l&apos;  eau\\tfroide ")
    [b'l&apos;', b'eau', b'froide']
    """
    if b"\t" in field:
        field = field.replace(b"\t", b" ")
    return [word for word in field.split(b" ") if word]


@functools.cache
def _word_with(factor: int) -> re.Pattern[bytes]:
    """Make the expression of a word that has the factor, which is its group (``moses/Word.cpp``)."""
    return re.compile(rb"(?:[^ \n|]*+\|){%d}([^ \n|]++)(?:\|[^ \n]*+)?+" % factor)


@functools.cache
def _text_with(factor: int) -> re.Pattern[bytes]:
    """Make the expression of phrases, one a line, whose words all have the factor."""
    return re.compile(rb"(?:%b(?:[ \n]|\Z))*+" % _word_with(factor).pattern)


def check_factor(phrase: bytes, factor: int | None, side: str) -> None:
    """Raise RowError if a word of a phrase (single blanks between words) lacks the factor, or has an empty one."""
    if factor is None or have_factor([phrase], factor):
        return
    bad = next(word for word in phrase.split(b" ") if not _word_with(factor).fullmatch(word))
    raise RowError(f"{side} word {shown(bad)} has no factor {factor}", "factors are counted from 0 and stand between bars")


def check_factors(src: bytes, tgt: bytes, factors: Factors) -> None:
    """Raise RowError as ``check_factor`` for either phrase of a pair."""
    check_factor(src, factors[0], "source")
    check_factor(tgt, factors[1], "target")


def have_factor(phrases: Sequence[bytes], factor: int | None) -> bool:
    """Return whether all words of all phrases have the factor."""
    return factor is None or _text_with(factor).fullmatch(b"\n".join(phrases)) is not None


def select_factor(phrases: Sequence[bytes], factor: int | None, side: str) -> Sequence[bytes]:
    """Reduce phrases to this factor of their words. Raises RowError if a word lacks it.

    >>> select_factor([b"the|DT houses|NNS", b"a|DT"], 1, "source")
    [b'DT NNS', b'DT']
    """
    if factor is None:
        return phrases
    if not have_factor(phrases, factor):
        for phrase in phrases:
            check_factor(phrase, factor, side)
    return _word_with(factor).sub(rb"\1", b"\n".join(phrases)).split(b"\n") if phrases else phrases


def phrase_words(field: bytes, side: str) -> list[bytes]:
    """Cut a source or target field into its words. Raises RowError for a phrase empty or too long, and for a non-terminal."""
    phrase = words(field)
    if not phrase:
        raise RowError(f"the {side} phrase is empty", "every row needs both phrases")
    if len(phrase) > LONGEST_PHRASE:
        lost = "is a line break missing, or is this text instead of phrases?"
        raise RowError(f"a {side} phrase of {len(phrase):,} words, more than {LONGEST_PHRASE:,}", lost)
    brackets = (word for word in phrase if len(word) >= 2 and word.startswith(b"[") and word.endswith(b"]"))
    if b"]" in field and (bad := next(brackets, None)):  # a non-terminal to Moses (moses/Phrase.cpp)
        hint = "hierarchical rules are not phrase pairs; brackets in text are escaped as &#91; and &#93;"
        raise RowError(f"non-terminal {shown(bad)} in the {side}", hint)
    return phrase


def phrase_pair(src: bytes, tgt: bytes, factors: Factors = WHOLE) -> tuple[bytes, bytes]:
    """Write both fields with single blanks between words. Raises RowError as ``phrase_words`` and ``check_factors``."""
    pair = b" ".join(phrase_words(src, "source")), b" ".join(phrase_words(tgt, "target"))
    check_factors(*pair, factors)
    return pair


class TableRow(NamedTuple):
    """A valid row. ``fields`` joined by ``|||`` are its bytes."""

    src: list[bytes]  # words of the source phrase
    tgt: list[bytes]  # words of the target phrase
    scores: list[bytes]
    fields: list[bytes]  # source, target, scores and (one piece, if any) the rest

    @property
    def n_scores(self) -> int:
        return len(self.scores)


def parse_row(row: bytes, n_scores: int | None = None) -> TableRow:
    """Cut and check one row, without its newline. The first row has ``n_scores`` scores; Moses needs as many on every row.

    Raises RowError for fewer than three fields, as ``phrase_words``, for no score, one that is not a plain decimal number, or
    another number of them.
    """
    fields = split_fields(row, 3)
    if len(fields) < 3:
        found = f"{counted(len(fields), 'field')} in {shown(row)}"
        raise RowError(found, "a phrase-table row is 'source ||| target ||| scores …'")
    src, tgt = phrase_words(fields[0], "source"), phrase_words(fields[1], "target")
    scores = words(fields[2].rstrip(BLANKS_AND_CR))
    if not scores:
        raise RowError("the score field is empty", "every row needs the same number of scores, at least one")
    if not _SCORES.fullmatch(fields[2]):
        bad = next(score for score in scores if not is_number(score))
        raise RowError(f"score {shown(bad)}", "scores are plain decimal numbers such as 0.25 or 6.1e-05")
    if n_scores is not None and len(scores) != n_scores:
        found = f"{counted(len(scores), 'score')} where the first row has {n_scores}"
        raise RowError(found, "Moses needs the same number on every row")
    return TableRow(src, tgt, scores, fields)


def first_row(table: str, rows: Sequence[bytes], drops: bool = False) -> TableRow:
    """Return the first of the first rows of a table, or, if bad ones are dropped, the first valid one. Raises InputError."""
    for row in rows:
        try:
            return parse_row(row)
        except RowError as error:
            if not drops:
                raise error.at(table, 1) from None
    raise InputError(table, f"no valid row among its first {len(rows):,}" if rows else "is empty", "pass a phrase table")


@functools.lru_cache
def plain_row(n_scores: int) -> re.Pattern[bytes]:
    """Make the expression of a valid row of ``n_scores`` scores as Moses writes it, with its newline; or else of any row.

    In a plain row, all blanks up to the last score are single, words have bars only between factors, none has a closing
    bracket, and no phrase is too long. Its groups are: head (the bytes up to the last score), source, target and tail (the
    bytes after the scores, with the newline). Of another row only the fifth group is set: its bytes without the newline.
    """
    phrase, scores = rb"%b(?:[ |]%b){,%d}+" % (WORD, WORD, LONGEST_PHRASE - 1), rb" ".join([NUMBER] * n_scores)
    bars = rb" " + re.escape(SEPARATOR)
    head = rb"((%b)%b (%b)%b %b)" % (phrase, bars, phrase, bars, scores)
    return re.compile(rb"%b((?:%b[^\n]*+)?+\n)|([^\n]*+)\n" % (head, bars))


def cut_after_scores(fields: list[bytes]) -> tuple[bytes, bytes]:
    """Cut the row that has these fields after its last score."""
    scores = fields[2].rstrip(BLANKS_AND_CR)
    return SEPARATOR.join((*fields[:2], scores)), SEPARATOR.join((fields[2][len(scores) :], *fields[3:]))


BadRow = tuple[int, bytes, RowError]  # its number from 1, the row, what is wrong with it


class CutRows(NamedTuple):
    """The groups of ``plain_row`` for every row of a block, as columns of one length."""

    heads: list[bytes]  # None where the row is not plain, and so are the next three
    src: list[bytes]
    tgt: list[bytes]
    tails: list[bytes]
    others: list[bytes]  # None where the row is plain


def cut_rows(data: bytes, n_scores: int) -> CutRows:
    """Cut a block of rows that should have ``n_scores`` scores. A newline is added to a last row that lacks one."""
    if data and not data.endswith(b"\n"):
        data += b"\n"
    pieces, n = plain_row(n_scores).split(data), len(CutRows._fields)
    return CutRows(*(pieces[i :: n + 1] for i in range(1, n + 1)))  # before each row's groups stands an empty piece


def score_values(fields: Sequence[bytes], n_scores: int) -> NDArray[np.float64]:
    """Read the score fields of valid rows as numbers (rows, n_scores)."""
    import numpy as np  # here, so that the help of commands that know these names need not wait for it

    return np.fromstring(b" ".join(fields), np.float64, sep=" ").reshape(len(fields), n_scores)


def valid_scores(rows: Sequence[bytes], n_scores: int) -> NDArray[np.float64]:
    """Read the scores of those rows that are valid: (valid rows, n_scores)."""
    return parse_block(Block(0, 1, b"\n".join(rows)), n_scores).values(n_scores)


@dataclass
class TableBlock:
    """The valid rows of a block, as columns of one length."""

    lines: Sequence[int]  # their numbers, from 1
    heads: list[bytes]  # their bytes up to the last score
    src: list[bytes]  # their source phrases, words between single blanks
    tgt: list[bytes]
    tails: list[bytes]  # their bytes after the scores, with the newline
    bad: list[BadRow] = field(default_factory=list)

    def write(self, drop: int, append: Sequence[bytes]) -> bytes:
        """Join the rows, with newlines, without their last ``drop`` scores (never all), and with ``append``, blank first."""
        heads = [head.rsplit(None, drop)[0] for head in self.heads] if drop else self.heads
        return b"".join(chain.from_iterable(zip(heads, append, self.tails, strict=True)))

    def row(self, i: int) -> bytes:
        """Join a row, without its newline."""
        return (self.heads[i] + self.tails[i]).removesuffix(b"\n")

    def occurrences(self) -> NDArray[np.float64]:
        """Read how often the source and the pair of every row were seen, nan if a row does not say: (rows, 2)."""
        import numpy as np

        seen = list[tuple[float, float]]()
        for tail in self.tails:
            fields = split_fields(tail.removesuffix(b"\n"), 3)
            counts = _COUNTS.match(fields[2]) if len(fields) > 2 else None
            seen.append((float(counts[1]), float(counts[2])) if counts else (math.nan, math.nan))
        return np.array(seen, np.float64).reshape(-1, 2)

    def values(self, n_scores: int) -> NDArray[np.float64]:
        """Read the scores as numbers (rows, n_scores)."""
        return score_values([head[head.rindex(SEPARATOR) + len(SEPARATOR) :] for head in self.heads], n_scores)


def parse_block(block: Block, n_scores: int, factors: Collection[Factors] = (WHOLE,)) -> TableBlock:
    """Cut and check the rows of a block; every row must have ``n_scores`` scores, and its words all of ``factors``.

    Bad rows are returned, not raised.
    """
    rows = cut_rows(block.data, n_scores)
    lines = range(block.first_row, block.first_row + len(rows.heads))
    if all(rows.heads) and all(have_factor(rows.src, src) and have_factor(rows.tgt, tgt) for src, tgt in factors):
        table = TableBlock(lines, rows.heads, rows.src, rows.tgt, rows.tails)
    else:
        table = _look_closer(rows, block.first_row, n_scores, factors)
    if not block.data.endswith(b"\n") and table.lines and table.lines[-1] == lines[-1]:
        table.tails[-1] = table.tails[-1].removesuffix(b"\n")
    return table


def read_table(table: str, n_scores: int, on_read: Progress | None = None, block_rows: int = READ_ROWS) -> Iterator[TableBlock]:
    """Yield the blocks of a table. Raises InputError for a bad row and for a file that cannot be read."""
    with open_input(table, on_read) as stream:
        for block in read_blocks(stream, block_rows):
            rows = parse_block(block, n_scores)
            for line, _, error in rows.bad:
                raise error.at(display_name(table), line)
            yield rows


def _look_closer(rows: CutRows, first_row: int, n_scores: int, factors: Collection[Factors]) -> TableBlock:
    """Parse those rows of a block that are not plain, and check the factors of all."""
    lines = list[int]()
    table = TableBlock(lines, [], [], [], [])
    for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
        row = other if other is not None else (head + tail)[:-1]
        try:
            if other is not None:
                parsed = parse_row(row, n_scores)
                src, tgt = b" ".join(parsed.src), b" ".join(parsed.tgt)
                head, tail = cut_after_scores(parsed.fields)
                tail += b"\n"
            for of_sides in factors:
                check_factors(src, tgt, of_sides)
        except RowError as error:
            table.bad.append((line, row, error))
            continue
        lines.append(line)
        table.heads.append(head)
        table.src.append(src)
        table.tgt.append(tgt)
        table.tails.append(tail)
    return table
