"""Rows of ``|||``-separated fields: the one place that knows the separator.

Moses finds the separator as a raw substring (``TM/RuleTable/LoaderStandard.cpp``), and neighbouring empty fields share a
blank (``... ||| 1 1 1 ||| |||``), so a row is split on ``|||`` itself and never on ``" ||| "``. Blanks are the ASCII
space and tab; nothing else separates words (``str.split`` would also cut at U+0085, U+00A0, U+2028 and their kin).
"""

from __future__ import annotations

SEPARATOR = b"|||"
BLANKS = b" \t"
BLANKS_AND_CR = b" \t\r"


def split_fields(row: bytes, limit: int = -1) -> list[bytes]:
    """The fields of a row, with the blanks around them; joined by ``|||`` they are the row again.

    With ``limit`` only the first ``limit`` fields are cut off and the rest of the row stays whole behind them.

    >>> split_fields(b"a b ||| c ||| 0.5 ||| |||")
    [b'a b ', b' c ', b' 0.5 ', b' ', b'']
    >>> split_fields(b"a ||| b ||| 0.5 ||| 0-0 ||| 1 1 1", limit=3)
    [b'a ', b' b ', b' 0.5 ', b' 0-0 ||| 1 1 1']
    """
    return row.split(SEPARATOR, limit)


def words(field: bytes) -> list[bytes]:
    """The words of a field: bytes between runs of ASCII blanks.

    >>> words(b" l&apos;  eau\\tfroide ")
    [b'l&apos;', b'eau', b'froide']
    """
    if b"\t" in field:
        field = field.replace(b"\t", b" ")
    return [word for word in field.split(b" ") if word]


def replace_tail(field: bytes, drop: int, append: bytes) -> bytes:
    """``field`` without its last ``drop`` words and with ``append`` after the last byte that is not blank, tab or CR.

    The blanks (and CR) that ended the field end it again, so that no other byte of the row changes. If every word is
    dropped, the field's leading blanks go with them. ``append`` brings its own leading blank.

    >>> replace_tail(b" 0.5 0.25 ", 0, b" 0.1 1")
    b' 0.5 0.25 0.1 1 '
    >>> replace_tail(b" 0.5 0.25 0.1 1 \\r", 2, b"")
    b' 0.5 0.25 \\r'
    """
    body = field.rstrip(BLANKS_AND_CR)
    end = field[len(body) :]
    for _ in range(drop):
        body = body[: max(body.rfind(b" "), body.rfind(b"\t")) + 1].rstrip(BLANKS)
    return body + append + end
