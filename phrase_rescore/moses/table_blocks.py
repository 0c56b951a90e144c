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
from phrase_rescore.moses.phrase_table import (
    cut_after_scores,
    has_irregular_blanks,
    parse_row,
    plain_row,
    split_fields,
    with_single_blanks,
    without_last,
)

BadRow = tuple[int, bytes, RowError]  # its number from 1, the row, what is wrong with it


class CutRow(NamedTuple):
    """A row as the groups of ``plain_row`` give it."""

    head: bytes  # up to its last score; empty if the row is not plain
    src: bytes  # words between single blanks
    tgt: bytes
    scores: bytes  # between single blanks
    tail: bytes  # what follows them, with the newline
    other: bytes = b""  # the whole row, without its newline, if it is not plain


def cut_rows(data: bytes, n_scores: int) -> list[tuple[bytes, ...]]:
    """Cut a block of rows, each as CutRow says. A newline is added to a last row that lacks one."""
    return plain_row(n_scores).findall(data if data.endswith(b"\n") else data + b"\n")


@dataclass
class TableBlock:
    """The valid rows of a block, as columns of one length."""

    lines: Sequence[int]  # their numbers, from 1
    heads: Sequence[bytes]  # their bytes up to the last score
    src: Sequence[bytes]  # their source phrases, words between single blanks
    tgt: Sequence[bytes]
    scores: Sequence[bytes]  # between single blanks
    tails: Sequence[bytes]  # their bytes after the scores, with the newline
    irregular_blanks: int = 0  # rows with tabs or doubled blanks among their scores
    bad: list[BadRow] = field(default_factory=list)

    def write(self, drop: int, append: Sequence[bytes]) -> bytes:
        """Join the rows, with newlines, as ``with_scores`` makes them."""
        heads = [without_last(head, drop) for head in self.heads] if drop else self.heads
        return b"".join(chain.from_iterable(zip(heads, append, self.tails, strict=True)))

    def row(self, i: int) -> bytes:
        """The bytes of a row, without its newline."""
        return (self.heads[i] + self.tails[i]).removesuffix(b"\n")

    def counts(self) -> list[bytes]:
        """Cut the counts, ``n_target n_source n_joint``, out of every row; empty where a row has none."""
        fields = [split_fields(tail.removesuffix(b"\n"), 3) for tail in self.tails]
        return [found[2] if len(found) > 2 else b"" for found in fields]


def score_values(scores: Sequence[bytes], n_scores: int) -> NDArray[np.float64]:
    """Read the scores of rows, ``n_scores`` with single blanks between them, as numbers (rows, n_scores)."""
    return np.fromstring(b" ".join(scores), np.float64, sep=" ").reshape(len(scores), n_scores)


def _cut_any(row: bytes, n_scores: int, fix_blanks: bool) -> tuple[CutRow, bool]:
    """Cut a row that is not plain, and tell whether the blanks among its scores are irregular. Raises RowError."""
    src, tgt, scores, fields = parse_row(row, n_scores)
    irregular = has_irregular_blanks(fields[2])
    if irregular and fix_blanks:
        fields[2] = with_single_blanks(fields[2])
    head, tail = cut_after_scores(fields)
    return CutRow(head, b" ".join(src), b" ".join(tgt), b" ".join(scores), tail + b"\n"), irregular


def parse_block(block: Block, n_scores: int, fix_blanks: bool = False, factors: Collection[Factors] = (WHOLE,)) -> TableBlock:
    """Cut and check the rows of a block; every row must have ``n_scores`` scores, and its words all of ``factors``.

    ``fix_blanks`` writes single blanks between scores. Bad rows are returned, not raised.
    """
    found = cut_rows(block.data, n_scores)
    heads, src, tgt, scores, tails, _ = zip(*found, strict=True)
    table = TableBlock(range(block.first_row, block.first_row + len(found)), heads, src, tgt, scores, tails)
    if not all(heads) or not all(have_factor(src, of_src) and have_factor(tgt, of_tgt) for of_src, of_tgt in factors):
        table = _look_closer(found, block.first_row, n_scores, fix_blanks, factors)
    if not block.data.endswith(b"\n") and table.lines and table.lines[-1] == block.first_row + len(found) - 1:
        table.tails = [*table.tails[:-1], table.tails[-1].removesuffix(b"\n")]
    return table


def _look_closer(
    found: list[tuple[bytes, ...]], first_row: int, n_scores: int, fix_blanks: bool, factors: Collection[Factors]
) -> TableBlock:
    """Check those rows of a block that are not plain, and the factors of all."""
    lines, rows, bad, n_irregular = list[int](), list[CutRow](), list[BadRow](), 0
    for line, cut in enumerate(found, first_row):
        plain = CutRow(*cut)
        try:
            row, irregular = (plain, False) if plain.head else _cut_any(plain.other, n_scores, fix_blanks)
            for of_src, of_tgt in factors:
                check_factor(row.src, of_src, "source")
                check_factor(row.tgt, of_tgt, "target")
        except RowError as error:
            bad.append((line, plain.other or (plain.head + plain.tail).removesuffix(b"\n"), error))
            continue
        n_irregular += irregular
        lines.append(line)
        rows.append(row)
    heads, src, tgt, scores, tails, _ = zip(*rows, strict=True) if rows else [()] * 6
    return TableBlock(lines, heads, src, tgt, scores, tails, n_irregular, bad)
