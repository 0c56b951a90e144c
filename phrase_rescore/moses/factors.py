"""Factors: of a word such as ``houses|house|NNS`` in a factored table (``moses/Word.cpp``) a model reads one."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from phrase_rescore.errors import RowError, shown

Factors = tuple[int | None, int | None]  # of source and target: 0, 1, …; None: words are whole tokens
WHOLE: Factors = (None, None)


@functools.cache
def _patterns(factor: int) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Of a word, its factor caught, and of a text of words all of which have that factor."""
    word = rb"(?:[^ \n|]*+\|){%d}([^ \n|]++)(?:\|[^ \n]*+)?+" % factor
    return re.compile(word), re.compile(rb"(?:" + word + rb"(?:[ \n]|\Z))*+")


def check_factor(phrase: bytes, factor: int | None, side: str) -> None:
    """Raises RowError if a word of a phrase (single blanks between words) lacks the factor, or it is empty."""
    if factor is None or _patterns(factor)[1].fullmatch(phrase):
        return
    bad = next(word for word in phrase.split(b" ") if not _patterns(factor)[0].fullmatch(word))
    raise RowError(f"{side} word {shown(bad)} has no factor {factor}", "factors are counted from 0 and stand between bars")


def have_factor(phrases: Sequence[bytes], factor: int | None) -> bool:
    """Whether all words of all phrases have it."""
    return factor is None or _patterns(factor)[1].fullmatch(b"\n".join(phrases)) is not None


def select_factor(phrases: Sequence[bytes], factor: int | None, side: str) -> Sequence[bytes]:
    """The phrases with nothing but this factor of their words. Raises RowError if a word lacks it.

    >>> select_factor([b"the|DT houses|NNS", b"a|DT"], 1, "source")
    [b'DT NNS', b'DT']
    """
    if factor is None:
        return phrases
    if not have_factor(phrases, factor):
        for phrase in phrases:
            check_factor(phrase, factor, side)
    return _patterns(factor)[0].sub(rb"\1", b"\n".join(phrases)).split(b"\n") if phrases else phrases
