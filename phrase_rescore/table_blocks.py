"""A block of phrase-table rows taken column by column: the same rows and bytes as row by row, in a fraction of the time.

Where every row of a block is laid out as Moses writes it, with single blanks, a few operations on whole columns
split, check and write it. Any other block goes through ``parse_row`` and ``with_scores``, row by row.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add

from phrase_rescore.errors import RowError
from phrase_rescore.fields import SEPARATOR
from phrase_rescore.fileio import Block
from phrase_rescore.phrase_table import NUMBER, has_irregular_blanks, parse_row, with_scores, with_single_blanks

_PLAIN_SEPARATOR = b" " + SEPARATOR + b" "
_NON_TERMINAL = re.compile(rb"(?<![^ \n])\[[^ \n]*\](?![^ \n])")


@dataclass
class TableBlock:
    """The valid rows of a block."""

    lines: Sequence[int]  # their numbers, from 1
    src: Sequence[bytes]  # their source phrases, words between single blanks
    tgt: Sequence[bytes]
    write: Callable[[int, Sequence[bytes]], list[bytes]]  # (drop, append): the rows, as ``with_scores`` writes them
    irregular_blanks: int = 0  # rows with tabs or doubled blanks among their scores
    bad: list[tuple[int, bytes, RowError]] = field(default_factory=list)  # number, row and what is wrong with it


@functools.lru_cache
def _score_column(n_scores: int) -> re.Pattern[bytes]:
    row = NUMBER + rb"(?: " + NUMBER + rb"){%d}" % (n_scores - 1)
    return re.compile(row + rb"(?:\n" + row + rb")*+")


def _are_phrases(column: Sequence[bytes]) -> bool:
    """Whether all are words between single blanks, with no doubt about separators or non-terminals."""
    text = b" \n ".join(column)
    blanks = text[:1] in (b"", b" ") or text[-1:] == b" " or b"  " in text or b"\t" in text
    return not (blanks or SEPARATOR in text or (b"]" in text and _NON_TERMINAL.search(text)))


def _by_columns(lines: Sequence[int], rows: list[bytes], n_scores: int) -> TableBlock | None:
    """The block if all its rows are valid and plainly laid out, with or without fields after the scores; else None."""
    fields = [row.split(_PLAIN_SEPARATOR, 3) for row in rows]
    widths = set(map(len, fields))
    if widths not in ({3}, {4}):
        return None
    (width,) = widths
    flat = list(chain.from_iterable(fields))
    src, tgt, scores, rest = flat[0::width], flat[1::width], flat[2::width], [flat[i::width] for i in range(3, width)]
    if not (_are_phrases(src) and _are_phrases(tgt) and _score_column(n_scores).fullmatch(b"\n".join(scores))):
        return None

    def write(drop: int, append: Sequence[bytes]) -> list[bytes]:
        kept = [column.rsplit(b" ", drop)[0] for column in scores] if drop else scores
        return list(map(_PLAIN_SEPARATOR.join, zip(src, tgt, map(add, kept, append), *rest, strict=True)))

    return TableBlock(lines, src, tgt, write)


def _by_rows(lines: Sequence[int], rows: list[bytes], n_scores: int, fix_blanks: bool) -> TableBlock:
    kept, src, tgt, fields = [], [], [], []
    bad, irregular = [], 0
    for line, row in zip(lines, rows, strict=True):
        try:
            parsed = parse_row(row, n_scores)
        except RowError as error:
            bad.append((line, row, error))
            continue
        if has_irregular_blanks(parsed.fields[2]):
            irregular += 1
            if fix_blanks:
                parsed.fields[2] = with_single_blanks(parsed.fields[2])
        kept.append(line)
        src.append(b" ".join(parsed.src))
        tgt.append(b" ".join(parsed.tgt))
        fields.append(parsed.fields)

    def write(drop: int, append: Sequence[bytes]) -> list[bytes]:
        return [with_scores(row, drop, columns) for row, columns in zip(fields, append, strict=True)]

    return TableBlock(kept, src, tgt, write, irregular, bad)


def parse_block(block: Block, n_scores: int, fix_blanks: bool = False) -> TableBlock:
    """Splits and checks the rows of a block; every row must have ``n_scores`` scores.

    ``fix_blanks`` writes single blanks between scores. Bad rows are returned, not raised.
    """
    rows = block.rows()
    lines = range(block.first_row, block.first_row + len(rows))
    return _by_columns(lines, rows, n_scores) or _by_rows(lines, rows, n_scores, fix_blanks)
