"""A model reads one factor of every word of a factored table, such as ``houses|house|NNS`` (``moses/Word.cpp``)."""

import functools
import re
from collections.abc import Sequence

from phrase_rescore.errors import RowError, shown

Factors = tuple[int | None, int | None]  # of source and target: 0, 1, …; None: words are whole tokens
WHOLE: Factors = (None, None)


@functools.cache
def _word_with(factor: int) -> re.Pattern[bytes]:
    """Make the expression of a word that has the factor, which is its group."""
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
    """Tell whether all words of all phrases have the factor."""
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
