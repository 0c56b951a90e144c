"""What the comparison reads of a table: the phrase pairs that were used, and the best targets of their sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from phrase_rescore.files.blocks import read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.table import SEPARATOR, parse_block, score_values

BLOCK_ROWS = 16384


@dataclass(frozen=True)
class ComparedColumns:
    """The score columns of a table, and which of them are compared."""

    all: TableColumns
    phi: ScoreColumn
    score: ScoreColumn | None  # that is compared with φ; None: the table has none
    unknown: ScoreColumn | None  # the number of words unknown to its network


def find_columns(table: str, score: int | None = None, phi: int | None = None) -> ComparedColumns:
    """Find the columns; ``score`` and ``phi``: the numbers that are asked for, None for the usual ones.

    Raises InputError as ``TableColumns.read``, OptionError for a column that the table does not have.
    """
    columns = TableColumns.read(table)
    chosen = columns.asked("--score-column", score) or columns.score()
    of_phi = columns.asked("--phi-column", phi) or columns.phi(chosen is not None and chosen.inverse)
    return ComparedColumns(columns, of_phi, chosen, columns.unknown(chosen))


class Pair(NamedTuple):
    """A phrase pair of the table."""

    logs: tuple[float, ...]  # natural logarithm of every score
    source: float  # how often the source was seen, nan where the table does not say
    joint: float  # how often both were


@dataclass(slots=True)
class Source:
    """A source phrase of the table, with its best targets."""

    count: float = math.nan  # how often it was seen
    targets: int = 0
    phi: float = -math.inf  # log
    by_phi: list[bytes] = field(default_factory=list)  # all that have this φ
    score: float = -math.inf
    by_score: bytes = b""  # the first one that has this score


@dataclass(frozen=True)
class Lookup:
    """What was read: every wanted source that the table has, and every wanted pair."""

    columns: ComparedColumns
    rows: int
    sources: dict[bytes, Source]
    pairs: dict[tuple[bytes, bytes], Pair]


def read_table(
    table: str,
    columns: ComparedColumns,
    wanted: Collection[tuple[bytes, bytes]],
    on_read: Callable[[int], object] | None = None,
) -> Lookup:
    """Read a table once and keep these pairs (source, target) and what is best for their sources.

    Raises InputError for a bad row and for a file that cannot be read.
    """
    name, wanted_sources = display_name(table), {src for src, _ in wanted}
    found = Lookup(columns, 0, {}, {})
    total = 0
    with open_input(table, on_read) as stream:
        for block in read_blocks(stream, BLOCK_ROWS):
            rows = parse_block(block, len(columns.all))
            for line, _, error in rows.bad:
                raise error.at(name, line)
            total += len(rows.src)
            for i in [i for i, src in enumerate(rows.src) if src in wanted_sources]:
                head, tail = rows.heads[i], rows.tails[i]
                logs = columns.all.logs(score_values([head[head.rindex(SEPARATOR) + len(SEPARATOR) :]], len(columns.all)))
                _add(found, (rows.src[i], rows.tgt[i]), wanted, tuple(logs[0].tolist()), tail)
    return Lookup(columns, total, found.sources, found.pairs)


def _add(
    found: Lookup, key: tuple[bytes, bytes], wanted: Collection[tuple[bytes, bytes]], logs: tuple[float, ...], tail: bytes
) -> None:
    columns = found.columns
    count, joint = _counts(tail)
    source = found.sources.setdefault(key[0], Source(count))
    source.targets += 1
    if (phi := columns.phi.of(logs)) >= source.phi:
        if phi > source.phi:
            source.by_phi.clear()
        source.phi = phi
        source.by_phi.append(key[1])
    if columns.score is not None and (score := columns.score.of(logs)) > source.score:
        source.score, source.by_score = score, key[1]
    if key in wanted:
        found.pairs[key] = Pair(logs, count, joint)


def _counts(tail: bytes) -> tuple[float, float]:
    """Read how often the source and the pair were seen from the fields after the scores.

    >>> _counts(b" ||| 0-0 ||| 11 20 8 ||| |||"), _counts(b" ||| 0-0")
    ((20.0, 8.0), (nan, nan))
    """
    fields = tail.split(SEPARATOR)
    try:
        _, source, joint = map(float, fields[2].split())
    except (IndexError, ValueError):
        return math.nan, math.nan
    return source, joint
