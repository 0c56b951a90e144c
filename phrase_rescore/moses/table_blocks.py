"""Phrase tables a block of rows at a time: the same rows and bytes as row by row, in a fraction of the time.

One expression, ``plain_row``, cuts and checks the rows that are laid out as Moses writes them. Every other row goes through
``parse_row``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import RowError
from phrase_rescore.files.blocks import Block
from phrase_rescore.moses.factors import WHOLE, Factors, check_factor, have_factor
from phrase_rescore.moses.table import (
    SEPARATOR,
    cut_after_scores,
    has_irregular_blanks,
    parse_row,
    plain_row,
    split_fields,
    with_single_blanks,
    without_last,
)

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
    return np.fromstring(b" ".join(fields), np.float64, sep=" ").reshape(len(fields), n_scores)


@dataclass
class TableBlock:
    """The valid rows of a block, as columns of one length."""

    lines: Sequence[int]  # their numbers, from 1
    heads: list[bytes]  # their bytes up to the last score
    src: list[bytes]  # their source phrases, words between single blanks
    tgt: list[bytes]
    tails: list[bytes]  # their bytes after the scores, with the newline
    irregular_blanks: int = 0  # rows with tabs or doubled blanks among their scores
    bad: list[BadRow] = field(default_factory=list)

    def write(self, drop: int, append: Sequence[bytes]) -> bytes:
        """Join the rows, with newlines, as ``with_scores`` makes them."""
        heads = [without_last(head, drop) for head in self.heads] if drop else self.heads
        return b"".join(chain.from_iterable(zip(heads, append, self.tails, strict=True)))

    def row(self, i: int) -> bytes:
        """Join a row, without its newline."""
        return (self.heads[i] + self.tails[i]).removesuffix(b"\n")

    def counts(self) -> list[bytes]:
        """Cut the counts, ``n_target n_source n_joint``, out of every row; empty where a row has none."""
        fields = [split_fields(tail.removesuffix(b"\n"), 3) for tail in self.tails]
        return [found[2] if len(found) > 2 else b"" for found in fields]

    def values(self, n_scores: int) -> NDArray[np.float64]:
        """Read the scores as numbers (rows, n_scores)."""
        return score_values([head[head.rindex(SEPARATOR) + len(SEPARATOR) :] for head in self.heads], n_scores)


def parse_block(block: Block, n_scores: int, fix_blanks: bool = False, factors: Collection[Factors] = (WHOLE,)) -> TableBlock:
    """Cut and check the rows of a block; every row must have ``n_scores`` scores, and its words all of ``factors``.

    ``fix_blanks`` writes single blanks between scores. Bad rows are returned, not raised.
    """
    rows = cut_rows(block.data, n_scores)
    lines = range(block.first_row, block.first_row + len(rows.heads))
    if all(rows.heads) and all(have_factor(rows.src, src) and have_factor(rows.tgt, tgt) for src, tgt in factors):
        table = TableBlock(lines, rows.heads, rows.src, rows.tgt, rows.tails)
    else:
        table = _look_closer(rows, block.first_row, n_scores, fix_blanks, factors)
    if not block.data.endswith(b"\n") and table.lines and table.lines[-1] == lines[-1]:
        table.tails[-1] = table.tails[-1].removesuffix(b"\n")
    return table


def _look_closer(rows: CutRows, first_row: int, n_scores: int, fix_blanks: bool, factors: Collection[Factors]) -> TableBlock:
    """Parse those rows of a block that are not plain, and check the factors of all."""
    lines = list[int]()
    table = TableBlock(lines, [], [], [], [])
    for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
        row, irregular = other if other is not None else (head + tail)[:-1], False
        try:
            if other is not None:
                parsed = parse_row(row, n_scores)
                src, tgt, fields = b" ".join(parsed.src), b" ".join(parsed.tgt), parsed.fields
                irregular = has_irregular_blanks(fields[2])
                if irregular and fix_blanks:
                    fields[2] = with_single_blanks(fields[2])
                head, tail = cut_after_scores(fields)
                tail += b"\n"
            for of_src, of_tgt in factors:
                check_factor(src, of_src, "source")
                check_factor(tgt, of_tgt, "target")
        except RowError as error:
            table.bad.append((line, row, error))
            continue
        table.irregular_blanks += irregular
        lines.append(line)
        table.heads.append(head)
        table.src.append(src)
        table.tgt.append(tgt)
        table.tails.append(tail)
    return table
