"""Reads a table for ``report`` in one pass: a sample of its sources with all their rows, words, and long sources."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sampling import hashes
from phrase_rescore.data.vocabulary import SIDES, Vocabulary, refuse_swapped
from phrase_rescore.messages import Progress
from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.table import READ_ROWS, TableBlock, read_table, select_factor
from phrase_rescore.rnn.checkpoint import Checkpoint

LONG = 4  # words of a long source, as in the paper's Table 2 and figure 5
_JUDGED_BLOCKS = 8  # whose words tell that the table is of the other direction
_MAPPED = 3000  # long sources, for the map
# A word of more than a letter or a sign; a long source has at most one that is not
_WORDS = re.compile(rb"(?<![^ ])[^ ]*[A-Za-z\x80-\xff]{2}")

Floats = NDArray[np.float64]
Phrases = NDArray[Any]  # of bytes, words with single blanks between them


def is_long(src: bytes) -> bool:
    """Return whether a source is long, as in the paper's Table 2."""
    return src.count(b" ") + 1 >= LONG and len(_WORDS.findall(src)) >= LONG - 1


@dataclass
class SampleRows:
    """Rows, all those of a source next to each other; logarithms are natural, nan if the table does not say."""

    src: Phrases
    tgt: Phrases
    log_phi: Floats
    log_p: Floats
    src_count: Floats  # occurrences of the source
    joint: Floats  # and of the pair
    hashes: NDArray[np.uint64]  # of the source

    def __len__(self) -> int:
        return len(self.src)

    def __getitem__(self, part: Any) -> SampleRows:
        return SampleRows(*(column[part] for column in vars(self).values()))

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows of another source begin."""
        return np.flatnonzero(np.append(True, self.src[1:] != self.src[:-1])[: len(self)])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each source."""
        return np.diff(self.starts, append=len(self))

    @property
    def occurrences(self) -> Floats:
        """How often each source was seen: as the table says, or else its number of rows."""
        counts = self.src_count[self.starts]
        return np.where(np.isfinite(counts), counts, self.sizes)


@dataclass
class SideWords:
    """Words of one side, as the model reads them, over all rows."""

    name: str
    vocabulary: Vocabulary
    factor: int | None
    counts: Counter[bytes] = field(default_factory=Counter)

    def add(self, phrases: Sequence[bytes]) -> None:
        """Raises RowError for a word without the factor that the model reads."""
        for phrase in select_factor(phrases, self.factor, self.name):
            self.counts.update(phrase.split(b" "))

    def unknown_words(self) -> Counter[bytes]:
        """The words that the model does not know."""
        return Counter({word: n for word, n in self.counts.items() if word not in self.vocabulary.ids})

    @property
    def unknown_share(self) -> float:
        """The share of the words that the model does not know."""
        return self.unknown_words().total() / max(self.counts.total(), 1)


class TableReader:
    """Reads a table and keeps all rows of the sources with the smallest hashes: ``room`` rows, or a little fewer.

    ``phi``: the number of φ's column, None for the usual place. Raises as ``TableColumns.read`` and ``TableColumns.phi``.
    """

    def __init__(self, table: str, checkpoint: Checkpoint, phi: int | None, room: int) -> None:
        self.columns = TableColumns.read(table)
        self.phi = self.columns.phi(phi, checkpoint.inverse)
        self.log_p: ScoreColumn | None = self.columns.score(checkpoint.signature)  # None: the table has no model's score
        self.rows = self.sources = self.counted = 0  # counted: rows that have counts
        vocabularies = checkpoint.src_vocab, checkpoint.tgt_vocab
        self.sides = [SideWords(*side) for side in zip(SIDES, vocabularies, checkpoint.factors, strict=True)]
        self.long_sources: dict[bytes, float] = {}  # the most frequent ones, with their occurrences
        self.table, self._room = table, room
        self._parts = list[SampleRows]()
        self._limit = np.uint64(2**64 - 1)  # the largest hash of a source of the sample
        self._last = b""  # source

    def read(self, on_read: Progress | None = None, block_rows: int = READ_ROWS) -> SampleRows:
        """Read the table and return the sample. Raises InputError for a bad row and for a file that cannot be read."""
        src, tgt = self.sides
        for number, rows in enumerate(read_table(self.table, len(self.columns), on_read, block_rows)):
            self._add(rows)
            if number < _JUDGED_BLOCKS:
                refuse_swapped(self.table, (src.counts, tgt.counts), (src.vocabulary, tgt.vocabulary))
        return self._shrunk()

    def _add(self, rows: TableBlock) -> None:
        self.rows += len(rows.src)
        logs, seen = self.columns.logs(rows.values(len(self.columns))), rows.occurrences()
        self.counted += int(np.isfinite(seen[:, 1]).sum())
        for side, phrases in zip(self.sides, (rows.src, rows.tgt), strict=True):
            side.add(phrases)
        self._add_sources(rows.src, seen[:, 0])
        of_sources = hashes(rows.src)
        log_p = np.full(len(logs), np.nan) if self.log_p is None else logs[:, self.log_p.number - 1]
        log_phi = logs[:, self.phi.number - 1]
        src, tgt = (np.array([*phrases, None], object)[:-1] for phrases in (rows.src, rows.tgt))
        part = SampleRows(src, tgt, log_phi, log_p, seen[:, 0], seen[:, 1], of_sources)
        self._parts.append(part[of_sources <= self._limit])
        if sum(map(len, self._parts)) > 2 * self._room:
            self._parts = [self._shrunk()]

    def _add_sources(self, sources: Sequence[bytes], counts: Floats) -> None:
        for src, count in zip(sources, counts.tolist(), strict=True):
            new = src != self._last
            self.sources, self._last = self.sources + new, src
            if (new or count != count) and is_long(src):
                self.long_sources[src] = count if count == count else self.long_sources.get(src, 0) + 1
        if len(self.long_sources) > 10 * _MAPPED:
            self.long_sources = dict(heapq.nlargest(_MAPPED, self.long_sources.items(), key=lambda item: item[1]))

    def _shrunk(self) -> SampleRows:
        """Return the sample so far, sources in the order of their hashes, without those that have no room."""
        columns = zip(*(vars(part).values() for part in self._parts), strict=True)
        rows = SampleRows(*map(np.concatenate, columns))
        rows = rows[np.argsort(rows.hashes, kind="stable")]
        if len(rows) > self._room:
            first = int(np.searchsorted(rows.hashes, rows.hashes[self._room]))  # a source that is cut there goes
            self._limit = rows.hashes[max(first, 1) - 1]
            rows = rows[rows.hashes <= self._limit]
        return rows
