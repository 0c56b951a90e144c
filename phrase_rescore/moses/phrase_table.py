"""Rows of a Moses phrase table: what makes one valid, and columns appended, dropped and tidied without a stray byte.

``source ||| target ||| scores [||| alignment ||| counts ||| sparse ||| properties]`` (``phrase-extract/consolidate-main.cpp``).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from phrase_rescore.errors import RowError, shown
from phrase_rescore.moses.fields import BLANKS_AND_CR, SEPARATOR, replace_tail, split_fields, words

NUMBER = rb"[+-]?+(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?+\d++)?+"  # possessive: no backtracking over long rows
_SCORES = re.compile(rb"[ \t]*" + NUMBER + rb"(?:[ \t]+" + NUMBER + rb")*[ \t\r]*")
_NUMBER = re.compile(NUMBER)


class TableRow(NamedTuple):
    """A valid row. ``fields`` joined by ``|||`` are its bytes."""

    src: list[bytes]  # words of the source phrase
    tgt: list[bytes]  # words of the target phrase
    n_scores: int
    fields: list[bytes]  # source, target, scores and (one piece, if any) the rest


def phrase_words(field: bytes, side: str) -> list[bytes]:
    """The words of a source or target field.

    Raises RowError for an empty phrase and for a non-terminal, ``[X]``: any word of two bytes or more in brackets
    (``moses/Phrase.cpp``).
    """
    found = words(field)
    if not found:
        raise RowError(f"the {side} phrase is empty", "every row needs both phrases")
    if b"]" in field:
        for word in found:
            if len(word) >= 2 and word.startswith(b"[") and word.endswith(b"]"):
                raise RowError(
                    f"non-terminal {shown(word)} in the {side}",
                    "hierarchical rules are not phrase pairs; brackets in text are escaped as &#91; and &#93;",
                )
    return found


def parse_row(row: bytes, n_scores: int | None = None) -> TableRow:
    """Splits and checks one row (without its newline).

    ``n_scores`` is the number of scores that the first row had: Moses needs it to be the same on every row.

    Raises RowError for fewer than three fields, an empty phrase, a non-terminal, a score that is no plain decimal number,
    no score at all, or another number of scores than ``n_scores``.
    """
    fields = split_fields(row, 3)
    if len(fields) < 3:
        raise RowError(
            f"{len(fields)} field{'s' * (len(fields) != 1)} in {shown(row)}",
            "a phrase-table row is 'source ||| target ||| scores …'",
        )
    src, tgt, scores = phrase_words(fields[0], "source"), phrase_words(fields[1], "target"), fields[2]
    if not _SCORES.fullmatch(scores):
        bad = next((word for word in words(scores.rstrip(BLANKS_AND_CR)) if not _NUMBER.fullmatch(word)), None)
        if bad is None:
            raise RowError("the score field is empty", "every row needs the same number of scores, at least one")
        raise RowError(f"score {shown(bad)}", "scores are plain decimal numbers such as 0.25 or 6.1e-05")
    found = len(scores.split())
    if n_scores is not None and found != n_scores:
        raise RowError(
            f"{found} score{'s' * (found != 1)} where the first row has {n_scores}",
            "Moses needs the same number on every row",
        )
    return TableRow(src, tgt, found, fields)


def with_scores(fields: list[bytes], drop: int, append: bytes) -> bytes:
    """The row with the last ``drop`` scores gone and ``append`` (which brings its leading blank) after the last one.

    >>> with_scores([b"a ", b" b ", b" 0.5 ", b" 0-0 ||| 1 1 1"], 0, b" 0.25 1")
    b'a ||| b ||| 0.5 0.25 1 ||| 0-0 ||| 1 1 1'
    """
    return SEPARATOR.join((*fields[:2], replace_tail(fields[2], drop, append), *fields[3:]))


def has_irregular_blanks(scores: bytes) -> bool:
    """Whether the score field has a tab or two blanks on end.

    CreateProbingPT splits this field on exactly one blank (``probingpt/StoreTarget.cpp``) and would misread it, as would
    the Perl filters that index scores.
    """
    return b"  " in scores or b"\t" in scores


def with_single_blanks(scores: bytes) -> bytes:
    """The score field with one blank between scores and at most one at either end; a CR at the end stays.

    >>> with_single_blanks(b"  0.5\\t0.25  ")
    b' 0.5 0.25 '
    """
    body = scores.rstrip(BLANKS_AND_CR)
    end = (b" " if scores[len(body) :].strip(b"\r") else b"") + b"\r" * scores[len(body) :].count(b"\r")
    start = b" " if body[:1] in (b" ", b"\t") else b""
    return start + b" ".join(words(body)) + end
