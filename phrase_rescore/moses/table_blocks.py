"""A block of phrase-table rows taken all at once: the same rows and bytes as row by row, in a fraction of the time.

Where every row of a block is laid out as Moses writes it, with single blanks and a digit before every point, a few operations
on the block's bytes find, check and cut its fields. Any other block goes through ``parse_row`` and ``with_scores``, row by row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import RowError
from phrase_rescore.files.blocks import Block
from phrase_rescore.moses.factors import WHOLE, Factors, check_factor, have_factor
from phrase_rescore.moses.fields import SEPARATOR
from phrase_rescore.moses.phrase_table import has_irregular_blanks, parse_row, with_scores, with_single_blanks

_BLANK, _TAB, _NEWLINE, _BAR = b" \t\n" + SEPARATOR[:1]
_STEP = len(SEPARATOR) + 1  # from a separator, past the blank behind it, to the field's first byte
Positions = NDArray[np.int64]

_NON_TERMINAL = re.compile(rb"(?<![^ \n])\[[^ \n]*\](?![^ \n])")


@dataclass
class TableBlock:
    """The valid rows of a block."""

    lines: Sequence[int]  # their numbers, from 1
    src: Sequence[bytes]  # their source phrases, words between single blanks
    tgt: Sequence[bytes]
    write: Callable[[int, Sequence[bytes]], bytes]  # (drop, append): the rows as ``with_scores`` makes them, with newlines
    irregular_blanks: int = 0  # rows with tabs or doubled blanks among their scores
    bad: list[tuple[int, bytes, RowError]] = field(default_factory=list)  # number, row and what is wrong with it


def _by_byte(values: dict[bytes, int]) -> bytes:
    """For ``bytes.translate``: the value of every byte, 0 for those that are not listed."""
    table = bytearray(256)
    for listed, value in values.items():
        for byte in listed:
            table[byte] = value
    return bytes(table)


_DIGITS = b"0123456789"
_DIGIT, _POINT, _EXPONENT, _SIGN, _GAP = 1, 2, 4, 8, 16
_KIND = _by_byte({_DIGITS: _DIGIT, b".": _POINT, b"eE": _EXPONENT, b"+-": _SIGN, b" \n": _GAP})
_NEXT = _by_byte({  # the kinds that may follow each
    _DIGITS: _DIGIT | _POINT | _EXPONENT | _GAP, b".": _DIGIT | _EXPONENT | _GAP, b"eE": _DIGIT | _SIGN, b"+-": _DIGIT,
    b" \n": _DIGIT | _SIGN,
})  # fmt: skip


@functools.lru_cache(maxsize=10_000)
def _in_order(marks: bytes, n_scores: int) -> bool:
    """Whether ``marks``, a row's scores without their digits, may be those of ``n_scores`` numbers."""
    number = rb"[+-]?\.?(?:[eE][+-]?)?"
    return re.fullmatch(number + rb"(?: " + number + rb"){%d}" % (n_scores - 1), marks) is not None


def _are_scores(text: bytes, n_scores: int) -> bool:
    """Whether each line is ``n_scores`` numbers (``phrase_table.NUMBER``) between single blanks; False too for ``.5``.

    By what stands beside what, digits begin every number and end every exponent. That a number has no second point or
    exponent, and no point in its exponent, shows without the digits.
    """
    padded = b"\n" + text + b"\n"
    kinds, following = (np.frombuffer(padded.translate(table), np.uint8) for table in (_KIND, _NEXT))
    if not (following[:-1] & kinds[1:]).all():
        return False
    return all(_in_order(marks, n_scores) for marks in set(text.translate(None, _DIGITS).split(b"\n")))


def _has_non_terminal(phrases: Sequence[bytes]) -> bool:
    return _NON_TERMINAL.search(b"\n".join(phrases)) is not None


def cut(data: bytes, starts: Positions, ends: Positions) -> list[bytes]:
    """``data[start:end]`` of every start and end."""
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


@dataclass(frozen=True)
class PlainRows:
    """Valid rows that are plainly laid out, and where in their bytes every field begins and ends."""

    data: bytes
    starts: Positions  # of rows, (rows,)
    ends: Positions  # of rows, without their newlines, (rows,)
    separators: Positions  # where ``|||`` stands, also those that overlap in ``||||``, of all rows
    first_separator: Positions  # the index in ``separators`` of every row's first, (rows,)
    n_separators: Positions  # (rows,), 2 or more
    score_starts: Positions  # (rows,)
    score_ends: Positions
    src: list[bytes]  # words between single blanks
    tgt: list[bytes]
    scores: list[bytes]

    def field(self, number: int) -> tuple[Positions, Positions, Positions]:
        """The rows (from 0) that have a field of this number (from 0; 3 or more), where it begins and where it ends."""
        having = np.flatnonzero(self.n_separators >= number)
        before = self.first_separator[having] + number - 1
        behind = np.append(self.separators, 0)[before + 1]
        ends = np.where(self.n_separators[having] > number, behind, self.ends[having])
        return having, self.separators[before] + len(SEPARATOR), ends

    def write(self, drop: int, append: Sequence[bytes]) -> bytes:
        """The rows as ``with_scores`` makes them, with newlines."""
        kept_ends = self.score_ends
        if drop:
            kept_ends = self.score_starts + np.array([len(kept.rsplit(b" ", drop)[0]) for kept in self.scores])
        between = cut(self.data, np.append(0, self.score_ends[:-1]), kept_ends)  # a row's end and the next one's beginning
        return b"".join((*chain.from_iterable(zip(between, append, strict=True)), self.data[self.score_ends[-1] :]))


def plain_rows(data: bytes, n_scores: int) -> PlainRows | None:
    """The rows of a block, with or without fields after the scores; None unless all are valid and plainly laid out."""
    chars = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(chars == _NEWLINE)
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1] + 1))
    bars, blanks = chars == _BAR, chars == _BLANK
    separators = np.flatnonzero(bars[:-2] & bars[1:-1] & bars[2:])
    first = np.searchsorted(separators, starts)
    found = np.diff(first, append=len(separators))
    if found.min() < 2:
        return None
    tgt_starts, score_starts = separators[first] + _STEP, separators[first + 1] + _STEP
    src_ends, tgt_ends = separators[first] - 1, separators[first + 1] - 1
    score_ends = np.where(found > 2, np.append(separators, 0)[first + 2] - 1, ends)
    if not ((starts < src_ends) & (tgt_starts < tgt_ends) & (score_starts < score_ends)).all():
        return None
    around = (src_ends, tgt_starts - 1, tgt_ends, score_starts - 1, score_ends[found > 2])
    if not all(blanks[places].all() for places in around) or blanks[starts].any():
        return None
    odd = np.flatnonzero((blanks[:-1] & blanks[1:]) | (chars[:-1] == _TAB))  # doubled blanks, tabs: no harm after the scores
    if len(odd) and (odd < score_ends[np.searchsorted(starts, odd, "right") - 1]).any():
        return None
    src, tgt = cut(data, starts, src_ends), cut(data, tgt_starts, tgt_ends)
    scores = cut(data, score_starts, score_ends)
    if not _are_scores(b"\n".join(scores), n_scores) or (b"]" in data and (_has_non_terminal(src) or _has_non_terminal(tgt))):
        return None
    return PlainRows(data, starts, ends, separators, first, found, score_starts, score_ends, src, tgt, scores)


def _at_once(block: Block, n_scores: int, factors: Collection[Factors]) -> TableBlock | None:
    rows = plain_rows(block.data, n_scores)
    if rows is None:
        return None
    if not all(have_factor(rows.src, of_src) and have_factor(rows.tgt, of_tgt) for of_src, of_tgt in factors):
        return None
    return TableBlock(range(block.first_row, block.first_row + len(rows.src)), rows.src, rows.tgt, rows.write)


def _by_rows(block: Block, n_scores: int, factors: Collection[Factors], fix_blanks: bool) -> TableBlock:
    rows = block.rows()
    kept, src, tgt, fields = [], [], [], []
    bad, irregular = [], 0
    for line, row in enumerate(rows, block.first_row):
        try:
            parsed = parse_row(row, n_scores)
            phrases = b" ".join(parsed.src), b" ".join(parsed.tgt)
            for of_src, of_tgt in factors:
                check_factor(phrases[0], of_src, "source")
                check_factor(phrases[1], of_tgt, "target")
        except RowError as error:
            bad.append((line, row, error))
            continue
        if has_irregular_blanks(parsed.fields[2]):
            irregular += 1
            if fix_blanks:
                parsed.fields[2] = with_single_blanks(parsed.fields[2])
        kept.append(line)
        src.append(phrases[0])
        tgt.append(phrases[1])
        fields.append(parsed.fields)
    last_as_it_was = bool(kept) and kept[-1] == block.first_row + len(rows) - 1 and not block.data.endswith(b"\n")

    def write(drop: int, append: Sequence[bytes]) -> bytes:
        written = [with_scores(row, drop, columns) + b"\n" for row, columns in zip(fields, append, strict=True)]
        return b"".join(written)[: -1 if last_as_it_was else None]

    return TableBlock(kept, src, tgt, write, irregular, bad)


def parse_block(block: Block, n_scores: int, fix_blanks: bool = False, factors: Collection[Factors] = (WHOLE,)) -> TableBlock:
    """Splits and checks the rows of a block; every row must have ``n_scores`` scores, and its words all of ``factors``.

    ``fix_blanks`` writes single blanks between scores. Bad rows are returned, not raised.
    """
    return _at_once(block, n_scores, factors) or _by_rows(block, n_scores, factors, fix_blanks)
