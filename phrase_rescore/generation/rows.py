"""Proposals as rows of a phrase table: laid out like the rows of one that is there, so that both can be sorted into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.models.checkpoint import SIDES, Checkpoint
from phrase_rescore.moses.phrase_table import SEPARATOR, split_fields
from phrase_rescore.moses.score_columns import (
    ColumnFormat,
    OwnColumn,
    looks_annotated,
    read_columns,
    read_first_rows,
    read_sidecar,
    sidecar_path,
)

_COUNTS = b"0 0 0"  # of target, source and pair: what was never extracted


class Score(Enum):
    """A column with the model's score."""

    SCORE = 1


SCORE = Score.SCORE


@dataclass(frozen=True)
class Count:
    """A column with the number of unknown words of these sides."""

    sides: tuple[str, ...]


Column = bytes | Literal[Score.SCORE] | Count  # a constant, the model's score or a count


def monotone(src_words: int, tgt_words: int) -> bytes:
    """Points that align every word of both sides, along the diagonal.

    The model knows no alignment, and CompactPT's default encoding stops at an empty one
    (``TM/CompactPT/PhraseTableCreator.cpp``).

    >>> monotone(2, 2), monotone(1, 3), monotone(4, 2)
    (b'0-0 1-1', b'0-0 0-1 0-2', b'0-0 1-0 2-1 3-1')
    """
    n = max(src_words, tgt_words)
    return b" ".join(b"%d-%d" % (i * src_words // n, i * tgt_words // n) for i in range(n))


@dataclass(frozen=True)
class RowLayout:
    """The score columns of a table's rows, and how many fields they have."""

    columns: tuple[Column, ...]
    n_fields: int
    digits: int = 7

    def rows(self, pairs: Sequence[tuple[bytes, bytes]], log_p: Sequence[float], unknown: Mapping[str, int]) -> list[bytes]:
        """A row, with its newline, for every pair (source, target), its natural log p and its sides' unknown words."""
        form = ColumnFormat(digits=self.digits, features=("score",))
        scores = form.columns(np.array(log_p, dtype=np.float64), [0] * len(pairs))
        return [self._row(src, tgt, score.strip(), unknown) for (src, tgt), score in zip(pairs, scores, strict=True)]

    def _row(self, src: bytes, tgt: bytes, score: bytes, unknown: Mapping[str, int]) -> bytes:
        def value(column: Column) -> bytes:
            if isinstance(column, Count):
                return ColumnFormat(digits=self.digits).count(sum(unknown[side] for side in column.sides))
            return score if column is SCORE else column

        alignment = monotone(src.count(b" ") + 1, tgt.count(b" ") + 1)
        fields = (src, tgt, b" ".join(map(value, self.columns)), alignment, _COUNTS)[: self.n_fields]
        empty = (b" " + SEPARATOR) * (self.n_fields - len(fields))  # neighbouring empty fields share a blank
        return (b" " + SEPARATOR + b" ").join(fields) + empty + b"\n"


def _of_sidecar(sidecar: list[OwnColumn], table: str, checkpoint: Checkpoint) -> dict[int, Column]:
    """The columns that this model wrote, by number from 1."""
    own: dict[int, Column] = {}
    for column in sidecar:
        if column.model == checkpoint.signature:
            sides = tuple(side for side in SIDES if side in column.unit)
            own[column.column] = SCORE if column.feature == "log_prob" else Count(sides)
    if sidecar and not own:
        found = f"the columns are of another model, {sidecar[0].model}"
        raise InputError(sidecar_path(table), found, "name that one with -m, or annotate the table with this one")
    return own


def layout_like(table: str, fill: Sequence[bytes], checkpoint: Checkpoint, digits: int = 7) -> RowLayout:
    """The layout of a table's rows. Columns that ``checkpoint`` wrote have its score and count, the others ``fill``.

    Which those are the table's sidecar says, or the looks of its last two columns; a table that has none gets them
    appended. ``fill`` has one value for all other columns or one for each.

    Raises InputError for a table that Moses would not load as it should, or that has columns of another model;
    OptionError for another number of values.
    """
    if table == "-":
        raise OptionError("--like needs a table that can be read twice; name a file")
    n_scores, rows = len(read_columns(table)), list(read_first_rows(table))
    count = Count((checkpoint.sides[1],))
    if (sidecar := read_sidecar(table)) is not None:
        own = _of_sidecar(sidecar, table, checkpoint)
    elif looks_annotated(rows):
        own = {n_scores - 1: SCORE, n_scores: count}
    else:
        own = {}
    if not own:
        own = {n_scores + 1: SCORE, n_scores + 2: count}
    total = max(n_scores, *own)
    others = [number for number in range(1, total + 1) if number not in own]
    if len(fill) not in (1, len(others)):
        raise OptionError(
            f"--fill has {len(fill)} values; {table} has {len(others)} columns to fill: write one value, or so many"
        )
    constants = dict(zip(others, fill if len(fill) > 1 else list(fill) * len(others), strict=True))
    columns = tuple(own[number] if number in own else constants[number] for number in range(1, total + 1))
    return RowLayout(columns, len(split_fields(SEPARATOR.join(rows[0].fields))), digits)
