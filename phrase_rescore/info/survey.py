"""Survey a phrase table in one pass: its contents, its order, and the rows that a Moses program mishandles."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter, lt, ne
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sampling import DistinctSample
from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import Block, display_name, open_input, read_blocks
from phrase_rescore.info.faults import BAR, examine, harmless_tail, tail_faults, value_faults
from phrase_rescore.messages import shown
from phrase_rescore.moses.columns import JUDGED_ROWS, looks_annotated
from phrase_rescore.moses.file_kinds import DESCRIBED, check_kind
from phrase_rescore.moses.table import (
    BLOCK_ROWS,
    SEPARATOR,
    cut_rows,
    is_number,
    parse_block,
    score_values,
    split_fields,
    words,
)
from phrase_rescore.progress import Progress, silent
from phrase_rescore.runtime import no_cycle_collection


class RowCount(NamedTuple):
    """The number of rows (or sources) of a kind, and the line of the first."""

    rows: int
    first_line: int


class ScoreRanges:
    """The range of every score column, in the rows that have all scores: arrays (n_scores,)."""

    def __init__(self, n_scores: int) -> None:
        self.rows = 0
        self.least, self.greatest = np.full(n_scores, np.inf), np.full(n_scores, -np.inf)
        self.log_sums = np.zeros(n_scores)  # of natural logarithms of scores above 0
        self.above_zero, self.zeros = np.zeros(n_scores, np.int64), np.zeros(n_scores, np.int64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Measure more scores (rows, n_scores)."""
        self.rows += len(values)
        self.least = np.minimum(self.least, values.min(axis=0, initial=np.inf))
        self.greatest = np.maximum(self.greatest, values.max(axis=0, initial=-np.inf))
        above = values > 0
        self.log_sums += np.log(np.where(above, np.minimum(values, np.finfo(np.float64).max), 1.0)).sum(axis=0)
        self.above_zero += above.sum(axis=0)
        self.zeros += (values == 0).sum(axis=0)


class SurveyedSide:
    """Counts of the phrases of one side."""

    def __init__(self) -> None:
        self.words = Counter[bytes]()  # in how many places each stands
        self.lengths = Counter[int]()  # in words: how many rows have a phrase so long
        self.sample = DistinctSample()  # of sources one occurrence a run, else every one

    def add(self, phrases: Sequence[bytes], occurrences: Sequence[bytes], lines: NDArray[np.int64]) -> None:
        """Count more phrases, one at least; ``occurrences`` and their ``lines`` go to the sample."""
        self.words.update(b" ".join(phrases).split(b" "))
        for n, rows in Counter(map(bytes.count, phrases, repeat(b" "))).items():
            self.lengths[n + 1] += rows
        self.sample.add(occurrences, lines)

    @property
    def factors(self) -> int | None:
        """The number of factors that every word has; None if they differ."""
        found = {word.count(BAR) for word in self.words}
        return found.pop() + 1 if len(found) == 1 else None


class Survey:
    """Counts of the rows so far of a table whose first row has ``n_scores`` scores and ``n_fields`` fields."""

    def __init__(self, n_scores: int, n_fields: int, table: str = "", annotated: bool = False, rules: bool = False) -> None:
        self.table, self.looks_annotated, self.rules = table, annotated, rules
        self.n_scores, self.n_fields = n_scores, n_fields
        self.rows = self.pairs = self.sources = 0  # pairs: rows that have both phrases; sources: runs of equal ones
        self.src, self.tgt = SurveyedSide(), SurveyedSide()
        self.scores = ScoreRanges(n_scores)
        self.faults: dict[str, RowCount] = {}  # by keys of FAULTS
        self.pair_order: dict[str, RowCount] = {}  # rows that should stand before the row before, "unsorted", or are "repeated"
        self._last: tuple[bytes, bytes] | None = None  # source and key of the last row with both phrases

    def add(self, first_row: int, data: bytes) -> None:
        """Survey the rows that follow."""
        rows, is_harmless = cut_rows(data, self.n_scores), harmless_tail(self.n_fields).fullmatch
        where: dict[str, list[int]] = defaultdict(list)  # lines that have a fault
        pairs = list[tuple[int, bytes, bytes, bytes]]()  # line, source, target and key of rows with both phrases
        scored = list[tuple[int, bytes]]()  # lines that have all scores, and the scores
        for line, (head, src, tgt, tail, other) in enumerate(zip(*rows, strict=True), first_row):
            if other is None:
                end = head.rindex(SEPARATOR) + len(SEPARATOR)
                key, scores = head[:end], head[end:]
                faults: Sequence[str] = () if is_harmless(tail) else tail_faults(tail, self.n_scores, self.n_fields)
                if BAR in src or BAR in tgt:
                    faults = (*faults, "bars")
            else:
                faults, src, tgt, key, scores = examine(other, self.n_scores, self.n_fields)
            for kind in faults:
                where[kind].append(line)
            if src and tgt:
                pairs.append((line, src, tgt, key))
            if scores:
                scored.append((line, scores))
        self.rows += len(rows.heads)
        values = score_values([scores for _, scores in scored], self.n_scores)
        self.scores.add(values)
        for kind, mask in value_faults(values).items():
            where[kind] = [line for (line, _), is_so in zip(scored, mask.tolist(), strict=True) if is_so]
        for kind, of_kind in where.items():
            _count(self.faults, kind, of_kind)
        if pairs:
            self._add_pairs(*zip(*pairs, strict=True))

    def _add_pairs(self, lines: Sequence[int], src: Sequence[bytes], tgt: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Count rows with both phrases; they should be sorted by ``keys``."""
        last_src, last_key = self._last or (b"", b"")
        begins = np.flatnonzero(np.fromiter(map(ne, src, chain((last_src,), src)), bool, len(src)))
        self.pairs, self.sources = self.pairs + len(src), self.sources + len(begins)
        self.src.add(src, [src[i] for i in begins.tolist()], np.array(lines)[begins])
        self.tgt.add(tgt, tgt, np.array(lines))
        before, self._last = (last_key, *keys), (src[-1], keys[-1])
        if not all(map(lt, before, keys)):  # else the sources ascend too
            steps = list(zip(lines, before, keys, strict=False))
            _count(self.pair_order, "unsorted", [line for line, key, then in steps if then < key])
            _count(self.pair_order, "repeated", [line for line, key, then in steps if then == key])
            _count(self.faults, "unsorted", [line for line, key, then in steps if _sorted_by(then) < _sorted_by(key)])

    def finish(self) -> None:
        """Judge the table as a whole, after its last row."""
        _count(self.faults, "sources_apart", np.sort(self.src.sample.repeated).tolist())
        if self.rules:  # where words in brackets are what they seem
            self.faults.pop("non_terminals", None)
        factors = self.src.factors, self.tgt.factors
        if None not in factors and factors != (1, 1):
            self.faults.pop("bars", None)  # a factored table


def _sorted_by(key: bytes) -> bytes:
    """Cut off ``source |||``, what CompactPT wants to be sorted (``TM/CompactPT/PhraseTableCreator.cpp:333-341``)."""
    return key[: key.find(SEPARATOR) + len(SEPARATOR)]


def _count(counts: dict[str, RowCount], kind: str, lines: Sequence[int]) -> None:
    """Add later lines, ascending, to those of their kind."""
    if lines:
        rows, first_line = counts.get(kind, (0, lines[0]))
        counts[kind] = RowCount(rows + len(lines), first_line)


def _scored(rows: Iterable[bytes]) -> list[tuple[list[bytes], bool]]:
    """Return the scores of rows of three fields or more, and whether they are numbers, even of bad rows."""
    listed = [words(fields[2].rstrip(b"\r")) for row in rows if len(fields := split_fields(row, 3)) > 2]
    return [(scores, bool(scores) and all(map(is_number, scores))) for scores in listed]


def _are_rules(table: str, rows: Sequence[bytes]) -> bool:
    """Return whether a table's first rows are rules. Raises InputError for any other kind of file."""
    kind = check_kind(table, rows, DESCRIBED)
    if kind is None and not any(row.count(SEPARATOR) > 1 for row in rows):
        raise InputError(table, f"{shown(rows[0])} does not look like a phrase table", f"pass {DESCRIBED.what}")
    return kind == "rules"


def survey_table(table: str, on_read: Progress | None = None, on_rows: Progress = silent) -> Survey:
    """Survey a table (``-``: standard input), which is read once. Memory grows with the number of distinct words alone.

    ``on_rows`` gets the number of rows read so far. Raises InputError for what is not a phrase table; bad rows are counted.
    """
    name = display_name(table)
    with no_cycle_collection(), open_input(table, on_read) as stream:
        blocks = read_blocks(stream, BLOCK_ROWS)
        first = list(islice(blocks, 1))
        rows = first[0].rows() if first else []
        rules = _are_rules(name, rows[:JUDGED_ROWS])
        n_fields = len(split_fields(next((row for row in rows if SEPARATOR in row), b"")))
        scores, _ = max(_scored(rows), key=itemgetter(1), default=([], False))  # the first that are numbers, if any are
        n_scores = len(scores) or 1
        judged = parse_block(Block(0, 1, b"\n".join(rows[:JUDGED_ROWS])), n_scores).values(n_scores)
        survey = Survey(n_scores, n_fields, name, looks_annotated(judged), rules)
        for block in chain(first, blocks):
            survey.add(block.first_row, block.data)
            on_rows(survey.rows)
    survey.finish()
    return survey
