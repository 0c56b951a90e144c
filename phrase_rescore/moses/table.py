"""The grammar of a phrase table: how a row is cut, which rows are valid, and how columns go on and off without a stray byte.

``source ||| target ||| scores [||| alignment ||| counts ||| sparse ||| properties]`` (``phrase-extract/consolidate-main.cpp``).
Moses finds the separator as a raw substring (``TM/RuleTable/LoaderStandard.cpp``), and neighbouring empty fields share a
blank (``... ||| 1 1 1 ||| |||``). So a row is cut at ``|||`` itself and never at ``" ||| "``. Blanks are the ASCII space and
tab. Nothing else separates words: ``str.split`` would also cut at U+0085, U+00A0, U+2028 and their kin.

``plain_row`` recognizes the valid rows that are laid out as Moses writes them, which is nearly all of them. ``parse_row``
takes any row, and it alone says what is wrong with one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phrase_rescore.errors import RowError, counted, shown

SEPARATOR = b"|||"
BLANKS = b" \t"
BLANKS_AND_CR = b" \t\r"

# Patterns are possessive, so that long rows are not tried in many ways
NUMBER = rb"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+"
WORD = rb"[^ \t\r\n\0|\]]++"  # of a plain row
_NUMBER = re.compile(NUMBER)
_SCORES = re.compile(rb"[ \t]*+%b(?:[ \t]++%b)*+[ \t\r]*+" % (NUMBER, NUMBER))


def split_fields(row: bytes, limit: int = -1) -> list[bytes]:
    """Cut a row into its fields, with the blanks around them; joined by ``|||`` they are the row again.

    With ``limit`` only the first ``limit`` fields are cut off. The rest of the row follows them in one piece.

    >>> split_fields(b"a b ||| c ||| 0.5 ||| |||")
    [b'a b ', b' c ', b' 0.5 ', b' ', b'']
    >>> split_fields(b"a ||| b ||| 0.5 ||| 0-0 ||| 1 1 1", limit=3)
    [b'a ', b' b ', b' 0.5 ', b' 0-0 ||| 1 1 1']
    """
    return row.split(SEPARATOR, limit)


def words(field: bytes) -> list[bytes]:
    """Cut a field at its runs of ASCII blanks.

    >>> words(b" l&apos;  eau\\tfroide ")
    [b'l&apos;', b'eau', b'froide']
    """
    if b"\t" in field:
        field = field.replace(b"\t", b" ")
    return [word for word in field.split(b" ") if word]


def is_non_terminal(word: bytes) -> bool:
    """Tell whether Moses takes a word for a non-terminal: two bytes or more in brackets (``moses/Phrase.cpp``)."""
    return len(word) >= 2 and word.startswith(b"[") and word.endswith(b"]")


def phrase_words(field: bytes, side: str) -> list[bytes]:
    """Cut a source or target field into its words.

    Raises RowError for an empty phrase and for a non-terminal.
    """
    found = words(field)
    if not found:
        raise RowError(f"the {side} phrase is empty", "every row needs both phrases")
    if b"]" in field and (bad := next(filter(is_non_terminal, found), None)):
        raise RowError(
            f"non-terminal {shown(bad)} in the {side}",
            "hierarchical rules are not phrase pairs; brackets in text are escaped as &#91; and &#93;",
        )
    return found


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
    """Cut and check one row, without its newline.

    ``n_scores`` is the number of scores that the first row had: Moses needs it to be the same on every row.

    Raises RowError for fewer than three fields, an empty phrase, a non-terminal, a score that is not a plain decimal number,
    no score at all, or another number of scores than ``n_scores``.
    """
    fields = split_fields(row, 3)
    if len(fields) < 3:
        raise RowError(
            f"{counted(len(fields), 'field')} in {shown(row)}", "a phrase-table row is 'source ||| target ||| scores …'"
        )
    src, tgt = phrase_words(fields[0], "source"), phrase_words(fields[1], "target")
    scores = words(fields[2].rstrip(BLANKS_AND_CR))
    if not _SCORES.fullmatch(fields[2]):
        bad = next((score for score in scores if not _NUMBER.fullmatch(score)), None)
        if bad is None:
            raise RowError("the score field is empty", "every row needs the same number of scores, at least one")
        raise RowError(f"score {shown(bad)}", "scores are plain decimal numbers such as 0.25 or 6.1e-05")
    if n_scores is not None and len(scores) != n_scores:
        found = f"{counted(len(scores), 'score')} where the first row has {n_scores}"
        raise RowError(found, "Moses needs the same number on every row")
    return TableRow(src, tgt, scores, fields)


def valid_rows(rows: Iterable[bytes]) -> Iterator[TableRow]:
    """Parse rows, without their newlines, and leave out those that are not valid."""
    for row in rows:
        try:
            yield parse_row(row)
        except RowError:
            continue


@functools.lru_cache
def plain_row(n_scores: int) -> re.Pattern[bytes]:
    """Make the expression of a valid row of ``n_scores`` scores as Moses writes it, with its newline; or else of any row.

    In a plain row, all blanks up to the last score are single, words have bars only between factors, and none has a closing
    bracket. Its groups are: head (the bytes up to the last score), source, target and tail (the bytes after the scores, with
    the newline). Of a row that is not plain, only the fifth and last group is set: its bytes without the newline.
    """
    phrase, scores = rb"%b(?:[ |]%b)*+" % (WORD, WORD), rb" ".join([NUMBER] * n_scores)
    bars = rb" " + re.escape(SEPARATOR)
    head = rb"((%b)%b (%b)%b %b)" % (phrase, bars, phrase, bars, scores)
    return re.compile(rb"%b((?:%b[^\n]*+)?+\n)|([^\n]*+)\n" % (head, bars))


def cut_after_scores(fields: list[bytes]) -> tuple[bytes, bytes]:
    """Cut the row that has these fields after its last score.

    >>> cut_after_scores([b"a ", b" b ", b" 0.5 ", b" 0-0 ||| 1 1 1"])
    (b'a ||| b ||| 0.5', b' ||| 0-0 ||| 1 1 1')
    """
    scores = fields[2].rstrip(BLANKS_AND_CR)
    return SEPARATOR.join((*fields[:2], scores)), SEPARATOR.join((fields[2][len(scores) :], *fields[3:]))


def without_last(head: bytes, drop: int) -> bytes:
    """Take the last ``drop`` scores, which must not be all, and the blanks before them from a row that ends with its scores.

    >>> without_last(b"a ||| b ||| 0.5 0.25\\t1", 2)
    b'a ||| b ||| 0.5'
    """
    return head.rsplit(None, drop)[0]


def with_scores(fields: list[bytes], drop: int, append: bytes) -> bytes:
    """Join a row without its last ``drop`` scores, which must not be all, and with ``append`` after the last one.

    ``append`` brings its leading blank. What ended the score field ends it again, so that no other byte of the row changes.

    >>> with_scores([b"a ", b" b ", b" 0.5 ", b" 0-0 ||| 1 1 1"], 0, b" 0.25 1")
    b'a ||| b ||| 0.5 0.25 1 ||| 0-0 ||| 1 1 1'
    """
    head, tail = cut_after_scores(fields)
    return without_last(head, drop) + append + tail


def has_irregular_blanks(scores: bytes) -> bool:
    """Tell whether the score field has a tab or two neighbouring blanks.

    CreateProbingPT splits this field at every single blank (``probingpt/StoreTarget.cpp``) and would misread it, as would
    the Perl filters that index scores.
    """
    return b"  " in scores or b"\t" in scores


def with_single_blanks(scores: bytes) -> bytes:
    """Write the score field with one blank between scores and at most one at either end; a CR at the end stays.

    >>> with_single_blanks(b"  0.5\\t0.25  ")
    b' 0.5 0.25 '
    """
    body = scores.rstrip(BLANKS_AND_CR)
    end = (b" " if scores[len(body) :].strip(b"\r") else b"") + b"\r" * scores[len(body) :].count(b"\r")
    start = b" " if body[:1] in (b" ", b"\t") else b""
    return start + b" ".join(words(body)) + end
