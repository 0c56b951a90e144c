"""The unit of work of annotation: a pure function from a block of rows to its annotated bytes and its counts.

``Annotator(...)(number, first_row, data)`` depends on nothing but its arguments and the model on disk, so any executor may
run it anywhere and in any order.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import ne
from typing import cast

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.checkpoint import CONFIG, load
from phrase_rescore.errors import InputError, ModelError, shown
from phrase_rescore.fileio import Block, gzip_member
from phrase_rescore.pairs import EncodedPairs
from phrase_rescore.runtime import use_threads
from phrase_rescore.scoring import Scorer
from phrase_rescore.table_blocks import TableBlock, parse_block
from phrase_rescore.vocabulary import UNK

MIN_P = 1.2e-38  # just above the smallest normal 32-bit float: below it consumers differ
MIN_LOG_P = math.log(MIN_P)  # -87.3
MAX_COUNT = 88  # exp(89) overflows a 32-bit float
FIT_ROWS = 100_000  # rows whose words are kept to see whether model and table go together


@dataclass(frozen=True)
class Format:
    """How columns are written and which rows are taken."""

    scale: str = "exp"  # exp: what Moses loads, it takes the logarithm itself; log: for people
    digits: int = 7  # significant
    unknown_side: str = "output"  # output, input, both: whose unknown words are counted
    replace: int = 0  # last score columns to drop first
    fix_blanks: bool = False
    drop_bad_rows: bool = False
    allow_untrained_unk: bool = False
    gzip_level: str | None = None  # None: plain bytes

    def count(self, n: int) -> bytes:
        """The column of a number of unknown words.

        >>> Format().count(0), Format().count(2), Format(scale="log").count(2)
        (b'1', b'7.389056', b'2')
        """
        return b"%d" % n if self.scale == "log" else b"%.*g" % (self.digits, math.exp(min(n, MAX_COUNT)))

    def columns(self, log_p: NDArray[np.float64], unknown: Sequence[int]) -> list[bytes]:
        """Both columns of every row, each with the blank before it, from natural log-probabilities (n,).

        >>> Format().columns(np.array([-3.25, -1000.0]), [0, 1]), Format(scale="log").columns(np.array([-3.25]), [2])
        ([b' 0.03877421 1', b' 1.2e-38 2.718282'], [b' -3.25 2'])
        """
        values = log_p if self.scale == "log" else np.exp(np.clip(log_p, MIN_LOG_P, 0.0))
        forms = {n: b" %%.%dg %b" % (self.digits, self.count(n)) for n in set(unknown)}
        return [forms[n] % x for x, n in zip(values.tolist(), unknown, strict=True)]


@dataclass
class Statistics:
    """What is counted over rows. Statistics of neighbouring blocks add up with ``+=``, in order."""

    rows: int = 0  # written
    sources: int = 0  # runs of equal sources: in a sorted table, distinct sources
    src_words: int = 0
    tgt_words: int = 0
    src_unknown: int = 0
    tgt_unknown: int = 0
    clamped_scores: int = 0
    clamped_counts: int = 0
    irregular_blanks: int = 0
    dropped: int = 0
    src_seen: list[bytes] = field(default_factory=list)  # texts of the first FIT_ROWS rows, a blank behind each word
    tgt_seen: list[bytes] = field(default_factory=list)
    first_source: bytes | None = None
    last_source: bytes | None = None
    dropped_rows: list[tuple[int, bytes]] = field(default_factory=list)  # (row number, row) of this block alone

    def __iadd__(self, other: Statistics) -> Statistics:
        joined = self.last_source is not None and self.last_source == other.first_source
        for f in fields(self):
            if isinstance(mine := getattr(self, f.name), int):
                setattr(self, f.name, mine + getattr(other, f.name))
        self.src_seen += other.src_seen
        self.tgt_seen += other.tgt_seen
        self.sources -= joined
        self.first_source = self.first_source if self.first_source is not None else other.first_source
        self.last_source = other.last_source if other.last_source is not None else self.last_source
        return self


_loading = threading.Lock()


@functools.lru_cache(maxsize=64)
def _load(model_dir: str, identity: tuple[int, int] | None, device: str, precision: str) -> Scorer:
    return Scorer(load(model_dir), device, precision)


def scorer_of(model_dir: str, device: str = "cpu", precision: str = "float32") -> Scorer:
    """The scorer of a model directory, loaded once a process and again when another model has taken its place."""
    try:
        found = os.stat(os.path.join(model_dir, CONFIG))
        identity = found.st_ino, found.st_mtime_ns
    except OSError:
        identity = None
    with _loading:
        return _load(model_dir, identity, device, precision)


@dataclass(frozen=True)
class Compute:
    """Where scores are computed and how."""

    devices: tuple[str, ...] = ("cpu",)  # blocks go to them in turn
    threads: int = 1  # cores that score one block
    precision: str = "float32"  # one of devices.PRECISIONS

    def scorer(self, model_dir: str, block: int = 0) -> Scorer:
        """The scorer of a block, by its number."""
        return scorer_of(model_dir, self.devices[block % len(self.devices)], self.precision)


ONE_CORE = Compute()


@dataclass(frozen=True)
class Annotator:
    """Appends the score and the unknown-word count to every row of a block.

    Raises InputError for a bad row (unless ``format.drop_bad_rows``) and for a word that needs an untrained UNK.
    """

    table: str  # name for messages
    model_dir: str
    signature: str  # of the model that was meant: it must not change on disk meanwhile
    n_scores: int  # columns that every row must have
    format: Format
    compute: Compute = ONE_CORE

    def __call__(self, number: int, first_row: int, data: bytes) -> tuple[bytes, Statistics]:
        use_threads(self.compute.threads)
        scorer = self.compute.scorer(self.model_dir, number)
        if scorer.checkpoint.signature != self.signature:
            raise ModelError(f"{self.model_dir}: the model has changed since annotation began; start again")
        statistics = Statistics()
        table = parse_block(Block(number, first_row, data), self.n_scores, self.format.fix_blanks)
        if table.bad and not self.format.drop_bad_rows:
            line, _, error = table.bad[0]
            raise error.at(self.table, line)
        statistics.dropped_rows, statistics.dropped = [(line, row) for line, row, _ in table.bad], len(table.bad)
        statistics.irregular_blanks = table.irregular_blanks
        pairs = scorer.encode_phrases(table.src, table.tgt)
        unknown = self._count_words(table, pairs, scorer.checkpoint.unk_shares, statistics)
        log_p = scorer.log_probs(pairs)
        if self.format.scale == "exp":
            statistics.clamped_scores = int((log_p < MIN_LOG_P).sum())
            statistics.clamped_counts = sum(unknown.count(n) for n in set(unknown) if n > MAX_COUNT)
        out = table.write(self.format.replace, self.format.columns(log_p, unknown))
        return out if self.format.gzip_level is None else gzip_member(out, self.format.gzip_level), statistics

    def _count_words(
        self, table: TableBlock, pairs: EncodedPairs, unk_shares: tuple[float, float], statistics: Statistics
    ) -> list[int]:
        """Fills in the counts of words and sources; returns the unknown words that each row's column shows."""
        statistics.rows = len(table.lines)
        src_unknown, tgt_unknown = pairs.src.counts_of(UNK), pairs.tgt.counts_of(UNK)
        statistics.src_words, statistics.tgt_words = len(pairs.src.ids), len(pairs.tgt.ids)
        statistics.src_unknown, statistics.tgt_unknown = int(src_unknown.sum()), int(tgt_unknown.sum())
        for side, share, counts in (("source", unk_shares[0], src_unknown), ("target", unk_shares[1], tgt_unknown)):
            if share == 0 and not self.format.allow_untrained_unk and counts.any():
                place = int((counts > 0).argmax())
                phrase = table.src[place] if side == "source" else table.tgt[place]
                raise InputError(
                    self.table,
                    f"{shown(phrase)} has a {side} word that the model does not know, and its UNK was never trained",
                    "train on data with rarer words or a smaller --shortlist, or accept with --allow-untrained-unk",
                    table.lines[place],
                )
        if table.lines and table.lines[0] <= FIT_ROWS:
            looked_at = slice(FIT_ROWS + 1 - table.lines[0])
            statistics.src_seen.append(b" ".join((*table.src[looked_at], b"")))
            statistics.tgt_seen.append(b" ".join((*table.tgt[looked_at], b"")))
        statistics.sources = sum(map(ne, table.src, islice(table.src, 1, None))) + bool(table.src)
        if table.src:
            statistics.first_source, statistics.last_source = table.src[0], table.src[-1]
        shown_unknown = {"output": tgt_unknown, "input": src_unknown, "both": src_unknown + tgt_unknown}
        return cast(list[int], shown_unknown[self.format.unknown_side].tolist())
