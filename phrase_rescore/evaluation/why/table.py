"""What the comparison reads of a table: the phrase pairs that were used, and the best targets of their sources."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from phrase_rescore.errors import InputError, OptionError, counted
from phrase_rescore.files.blocks import read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.columns import (
    MIN_P,
    OwnColumn,
    looks_annotated,
    read_first_rows,
    read_sidecar,
    sidecar_path,
)
from phrase_rescore.moses.table import SEPARATOR
from phrase_rescore.moses.table_blocks import parse_block

BLOCK_ROWS = 16384
_OF_MOSES = ("φ(s|t)", "lex(s|t)", "φ(t|s)", "lex(t|s)")  # phrase-extract/consolidate-main.cpp


class Column(NamedTuple):
    """A score column: what to call it, and whether the table has its logarithm."""

    name: str
    is_log: bool = False
    is_count: bool = False  # of unknown words


@dataclass(frozen=True)
class Columns:
    """The score columns of a table; places are counted from 0."""

    of: tuple[Column, ...]
    phi: int
    score: int | None  # that is compared with φ; None: the table has none
    unknown: int | None  # the number of words unknown to its network
    guessed: bool = False  # there is no sidecar, and the last two look like annotate's


def find_columns(table: str, score: int | None = None, phi: int | None = None) -> Columns:
    """Tell the columns by the sidecar of ``annotate``, or else by their looks; ``score`` and ``phi`` (from 1): as asked for.

    Raises InputError for an empty table, a first row that is not valid and a sidecar that does not fit, OptionError for a
    column that the table does not have.
    """
    rows, own = list(read_first_rows(table)), read_sidecar(table)
    n, guessed = rows[0].n_scores, False
    logs = [any(float(row.scores[i]) < 0 for row in rows) for i in range(n)]
    for option, number in (("--score-column", score), ("--phi-column", phi)):
        if number is not None and number > n:
            raise OptionError(f"{option} {number}: {display_name(table)} has {counted(n, 'score column')}")
    if own is None and (guessed := looks_annotated(rows)):
        unit = "" if logs[n - 2] else "probability"
        own = [OwnColumn(n - 1, "log_prob", "", unit), OwnColumn(n, "unknown_words", "", "" if logs[n - 2] else "exp")]
    ours = {column.column - 1: column for column in own or ()}
    if beyond := [place for place in ours if not 0 <= place < n]:
        found = f"column {beyond[0] + 1} of a table that has {n}"
        raise InputError(sidecar_path(table), found, "remove it, or annotate the table again")
    columns = list(_named(ours, logs))
    scores = [place for place, column in ours.items() if column.feature == "log_prob"]
    scores.sort(key=lambda place: "p(source" in ours[place].unit)  # the forward model first, or else as they stand
    chosen = score - 1 if score else scores[0] if scores else None
    inverse = chosen in ours and "p(source" in ours[chosen].unit
    usual = 0 if inverse or n < 3 else 2
    unknown = [place for place, column in ours.items() if column.feature == "unknown_words"]
    mine = [place for place in unknown if chosen in ours and ours[place].model == ours[chosen].model]
    return Columns(tuple(columns), phi - 1 if phi else usual, chosen, next(iter(mine or unknown), None), guessed)


def _named(ours: dict[int, OwnColumn], logs: list[bool]) -> Iterator[Column]:
    """Name the columns; two of one name get their numbers."""
    first = min(ours, default=len(logs))
    names = [_name(place, ours.get(place), first) for place in range(len(logs))]
    times = Counter(names)
    for place, name in enumerate(names):
        own = ours.get(place)
        is_log = not own.unit.startswith(("probability", "exp")) if own else logs[place]
        is_count = own is not None and own.feature == "unknown_words"
        yield Column(name if times[name] == 1 else f"{name} {place + 1}", is_log, is_count)


def _name(place: int, own: OwnColumn | None, first: int) -> str:
    if own is None:
        return _OF_MOSES[place] if first >= len(_OF_MOSES) > place else f"column {place + 1}"
    if own.feature == "unknown_words":
        return "unknown"
    return "p(s|t)" if "p(source" in own.unit else "p(t|s)"


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

    columns: Columns
    rows: int
    sources: dict[bytes, Source]
    pairs: dict[tuple[bytes, bytes], Pair]


def read_table(
    table: str, columns: Columns, wanted: Collection[tuple[bytes, bytes]], on_read: Callable[[int], object] | None = None
) -> Lookup:
    """Read a table once and keep these pairs (source, target) and what is best for their sources.

    Raises InputError for a bad row and for a file that cannot be read.
    """
    name, wanted_sources = display_name(table), {src for src, _ in wanted}
    found = Lookup(columns, 0, {}, {})
    total = 0
    with open_input(table, on_read) as stream:
        for block in read_blocks(stream, BLOCK_ROWS):
            rows = parse_block(block, len(columns.of))
            for line, _, error in rows.bad:
                raise error.at(name, line)
            total += len(rows.src)
            for i in [i for i, src in enumerate(rows.src) if src in wanted_sources]:
                head, tail = rows.heads[i], rows.tails[i]
                _add(found, (rows.src[i], rows.tgt[i]), wanted, head[head.rindex(SEPARATOR) + len(SEPARATOR) :], tail)
    return Lookup(columns, total, found.sources, found.pairs)


def _add(found: Lookup, key: tuple[bytes, bytes], wanted: Collection[tuple[bytes, bytes]], scores: bytes, tail: bytes) -> None:
    columns = found.columns
    logs = tuple(
        float(score) if column.is_log else math.log(max(float(score), MIN_P))
        for score, column in zip(scores.split(), columns.of, strict=True)
    )
    count, joint = _counts(tail)
    source = found.sources.setdefault(key[0], Source(count))
    source.targets += 1
    if (phi := logs[columns.phi]) >= source.phi:
        if phi > source.phi:
            source.by_phi.clear()
        source.phi = phi
        source.by_phi.append(key[1])
    if columns.score is not None and (score := logs[columns.score]) > source.score:
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
