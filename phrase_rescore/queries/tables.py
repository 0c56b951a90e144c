"""Generation and phrase tables: phrases and their partners looked up in one, hypotheses laid out as rows like those of one.

A lookup is one pass over the table. Rows are laid out like those that are there, so that both can be sorted into one table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phrase_rescore.data.sketch import Hashes, hashes
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import is_stream
from phrase_rescore.moses.columns import (
    RANGE_ROWS,
    AddedColumn,
    ColumnFormat,
    TableColumns,
    looks_annotated,
    read_first_rows,
    read_sidecar,
    sidecar_path,
)
from phrase_rescore.moses.factors import Factors
from phrase_rescore.moses.pairs import read_pair_blocks
from phrase_rescore.moses.table import SEPARATOR, split_fields
from phrase_rescore.rnn.checkpoint import SIDES, Checkpoint

Partners = dict[bytes, set[bytes]]
_COUNTS = b"0 0 0"  # of target, source and pair: what was never extracted


# ---- what is looked up in a table


def _seeded(phrases: Sequence[bytes], seed: int) -> Hashes:
    """Return hashes of phrases whose order is another one for every seed."""
    salt = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8).digest()
    mixed = (hashes(phrases) ^ np.uint64(int.from_bytes(salt, "little"))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))


def sample_of(blocks: Iterable[Sequence[bytes]], n: int, seed: int) -> list[bytes]:
    """Choose ``n`` distinct phrases, each as likely as any other however often it stands there; in the order of the input.

    They are those of the smallest hashes, so that no more than some 2 n and a block are in memory.
    """
    kept: dict[bytes, int] = {}
    largest = 2**64 - 1
    for phrases in blocks:
        found = _seeded(phrases, seed)
        for i in np.flatnonzero(found <= np.uint64(largest)).tolist():
            kept.setdefault(phrases[i], int(found[i]))
        if len(kept) > 2 * n:
            largest = sorted(kept.values())[n - 1]
            kept = {phrase: hash for phrase, hash in kept.items() if hash <= largest}
    taken = sorted(kept, key=lambda phrase: (kept[phrase], phrase))[:n]
    chosen = set(taken)
    return [phrase for phrase in kept if phrase in chosen]


def sampled_phrases(table: str, side: str, n: int, seed: int, on_read: Callable[[int], object] | None = None) -> list[bytes]:
    """Choose ``n`` phrases of a side of a table, as ``sample_of`` does. Raises InputError for a bad row or an empty table."""
    blocks = read_pair_blocks(table, "table", on_read)
    phrases = sample_of((block.src if side == "source" else block.tgt for block in blocks), n, seed)
    if not phrases:
        raise InputError(display_name(table), "is empty", "pass a phrase table")
    return phrases


def partners(
    table: str, side: str, wanted: Collection[bytes], factors: Factors, on_read: Callable[[int], object] | None = None
) -> Partners:
    """Find the phrases that a table has beside every wanted phrase of a side; words are read by their ``factors``.

    Raises InputError for a bad row.
    """
    found: Partners = {phrase: set() for phrase in wanted}
    for block in read_pair_blocks(table, "table", on_read, factors=factors):
        pairs = zip(block.src, block.tgt, strict=True) if side == "source" else zip(block.tgt, block.src, strict=True)
        for phrase, partner in pairs:
            if phrase in found:
                found[phrase].add(partner)
    return found


# ---- rows of a table


@dataclass(frozen=True)
class Column:
    """A score column to write: a constant, or the number of unknown words of the ``counted`` sides, or the model's score."""

    constant: bytes | None = None
    counted: tuple[str, ...] | None = None


SCORE = Column()


def monotone(src_words: int, tgt_words: int) -> bytes:
    """Return the points that align every word of both sides, along the diagonal.

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
        """Return a row, with its newline, for every pair (source, target), its natural log p and its sides' unknown words."""
        form = ColumnFormat(digits=self.digits, features=("score",))
        scores = form.columns(np.array(log_p, dtype=np.float64), [0] * len(pairs))
        return [self._row(src, tgt, score.strip(), unknown) for (src, tgt), score in zip(pairs, scores, strict=True)]

    def _row(self, src: bytes, tgt: bytes, score: bytes, unknown: Mapping[str, int]) -> bytes:
        def value(column: Column) -> bytes:
            if column.counted is not None:
                return ColumnFormat(digits=self.digits).count(sum(unknown[side] for side in column.counted))
            return score if column.constant is None else column.constant

        alignment = monotone(src.count(b" ") + 1, tgt.count(b" ") + 1)
        fields = (src, tgt, b" ".join(map(value, self.columns)), alignment, _COUNTS)[: self.n_fields]
        empty = (b" " + SEPARATOR) * (self.n_fields - len(fields))  # neighbouring empty fields share a blank
        return (b" " + SEPARATOR + b" ").join(fields) + empty + b"\n"


def _of_sidecar(sidecar: list[AddedColumn], table: str, checkpoint: Checkpoint) -> dict[int, Column]:
    """Find the columns that this model wrote, by number from 1. Raises InputError if all are another model's."""
    own: dict[int, Column] = {}
    for column in sidecar:
        if column.model == checkpoint.signature:
            sides = tuple(side for side in SIDES if side in column.unit)
            own[column.column] = SCORE if column.feature == "log_prob" else Column(counted=sides)
    if sidecar and not own:
        found = f"the columns are of another model, {sidecar[0].model}"
        raise InputError(sidecar_path(table), found, "name that one with -m, or annotate the table with this one")
    return own


def layout_like(table: str, fill: Sequence[bytes], checkpoint: Checkpoint, digits: int = 7) -> RowLayout:
    """Find the layout of a table's rows. Columns that ``checkpoint`` wrote have its score and count, the others ``fill``.

    The table's sidecar says which those are, or else the looks of its last two columns; to a table that has none they are
    appended. ``fill`` has one value for all other columns or one for each.

    Raises InputError for a table that Moses would not load as it should, or that has columns of another model;
    OptionError for another number of values.
    """
    if is_stream(table):
        raise OptionError("--like needs a table that can be read twice; name a file")
    there, rows = TableColumns.read(table, RANGE_ROWS), list(read_first_rows(table))
    there.check_loadable()
    n_scores = len(there)
    count = Column(counted=(checkpoint.sides[1],))
    if (sidecar := read_sidecar(table)) is not None:
        own = _of_sidecar(sidecar, table, checkpoint)
    elif looks_annotated(rows):
        own = {n_scores - 1: SCORE, n_scores: count}
    else:
        own = {}
    if not own:
        own = {n_scores + 1: SCORE, n_scores + 2: count}
    total = max(n_scores, *own)
    others = total - len(own)
    if len(fill) not in (1, others):
        raise OptionError(f"--fill has {len(fill)} values; {table} has {others} columns to fill: write one value, or so many")
    constants = iter(fill if len(fill) > 1 else list(fill) * others)
    columns = tuple(own.get(number) or Column(next(constants)) for number in range(1, total + 1))
    return RowLayout(columns, len(split_fields(SEPARATOR.join(rows[0].fields))), digits)
