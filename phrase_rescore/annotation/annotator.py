"""The unit of work of annotation: a pure function from a block of rows to its annotated bytes and its counts.

``Annotator(...)(number, first_row, data)`` depends on nothing but its arguments and the model on disk, so any executor may
run it anywhere and in any order.
"""

from __future__ import annotations

import functools
import os
import threading
from dataclasses import astuple, dataclass, field, fields
from itertools import islice
from operator import ne

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.errors import InputError, ModelError, shown
from phrase_rescore.files.atomic import gzip_member
from phrase_rescore.files.blocks import Block
from phrase_rescore.inference.scorer import Scorer
from phrase_rescore.models.checkpoint import CONFIG, SIDES, load
from phrase_rescore.moses.score_columns import MAX_COUNT, MIN_LOG_P, Format
from phrase_rescore.moses.table_blocks import TableBlock, parse_block
from phrase_rescore.runtime import use_threads

FIT_ROWS = 100_000  # rows whose words are kept to see whether model and table go together


@dataclass(frozen=True)
class ModelStatistics:
    """What one model's columns show of the rows."""

    src_unknown: int = 0
    tgt_unknown: int = 0
    clamped_scores: int = 0
    clamped_counts: int = 0

    def __add__(self, other: ModelStatistics) -> ModelStatistics:
        return ModelStatistics(*(mine + others for mine, others in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class Statistics:
    """What is counted over rows. Statistics of neighbouring blocks add up with ``+=``, in order."""

    rows: int = 0  # written
    sources: int = 0  # runs of equal sources: in a sorted table, distinct sources
    src_words: int = 0
    tgt_words: int = 0
    models: list[ModelStatistics] = field(default_factory=list)
    irregular_blanks: int = 0
    dropped: int = 0
    src_seen: list[bytes] = field(default_factory=list)  # the phrases of the first FIT_ROWS rows, one a line, block by block
    tgt_seen: list[bytes] = field(default_factory=list)
    first_source: bytes | None = None
    last_source: bytes | None = None
    dropped_rows: list[tuple[int, bytes]] = field(default_factory=list)  # (row number, row) of this block alone

    def __iadd__(self, other: Statistics) -> Statistics:
        joined = self.last_source is not None and self.last_source == other.first_source
        for f in fields(self):
            if isinstance(mine := getattr(self, f.name), int):
                setattr(self, f.name, mine + getattr(other, f.name))
        if self.models:
            self.models = [mine + others for mine, others in zip(self.models, other.models, strict=True)]
        else:
            self.models = other.models
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
    precision: str = "float32"  # one of runtime.PRECISIONS

    def scorer(self, model_dir: str, block: int = 0) -> Scorer:
        """The scorer of a block, by its number."""
        return scorer_of(model_dir, self.devices[block % len(self.devices)], self.precision)


ONE_CORE = Compute()


@dataclass(frozen=True)
class Model:
    """A model that is meant: its directory, and its signature, which must not change meanwhile."""

    directory: str
    signature: str


@dataclass(frozen=True)
class Annotator:
    """Appends the features of every model to every row of a block.

    Raises InputError for a bad row (unless ``format.drop_bad_rows``) and for a word that needs an untrained UNK.
    """

    table: str  # name for messages
    models: tuple[Model, ...]
    n_scores: int  # columns that every row must have
    format: Format
    compute: Compute = ONE_CORE

    def __call__(self, number: int, first_row: int, data: bytes) -> tuple[bytes, Statistics]:
        use_threads(self.compute.threads)
        scorers = [self._scorer(model, number) for model in self.models]
        table = self._parse(Block(number, first_row, data), scorers)
        if table.bad and not self.format.drop_bad_rows:
            line, _, error = table.bad[0]
            raise error.at(self.table, line)
        statistics = self._count(table)
        columns = [self._columns(scorer, table, statistics) for scorer in scorers]
        out = table.write(
            self.format.replace, columns[0] if len(columns) == 1 else list(map(b"".join, zip(*columns, strict=True)))
        )
        return out if self.format.gzip_level is None else gzip_member(out, self.format.gzip_level), statistics

    def look_at(self, block: Block, statistics: Statistics) -> None:
        """Adds the phrases of a block that is done already to those by which table and models are compared."""
        seen = self._count(self._parse(block, [self._scorer(model, block.number) for model in self.models]))
        statistics.src_seen += seen.src_seen
        statistics.tgt_seen += seen.tgt_seen

    def _parse(self, block: Block, scorers: list[Scorer]) -> TableBlock:
        factors = {scorer.checkpoint.factors for scorer in scorers}
        return parse_block(block, self.n_scores, self.format.fix_blanks, factors)

    def _scorer(self, model: Model, block: int) -> Scorer:
        scorer = self.compute.scorer(model.directory, block)
        if scorer.checkpoint.signature != model.signature:
            raise ModelError(f"{model.directory}: the model has changed since annotation began; start again")
        return scorer

    def _count(self, table: TableBlock) -> Statistics:
        """What is counted without a model."""
        s = Statistics(len(table.lines), dropped=len(table.bad), irregular_blanks=table.irregular_blanks)
        s.dropped_rows = [(line, row) for line, row, _ in table.bad]
        s.sources = sum(map(ne, table.src, islice(table.src, 1, None))) + bool(table.src)
        if table.src:
            s.first_source, s.last_source = table.src[0], table.src[-1]
        if table.lines and table.lines[0] <= FIT_ROWS:
            looked_at = slice(FIT_ROWS + 1 - table.lines[0])
            s.src_seen.append(b"\n".join(table.src[looked_at]))
            s.tgt_seen.append(b"\n".join(table.tgt[looked_at]))
        return s

    def _columns(self, scorer: Scorer, table: TableBlock, statistics: Statistics) -> list[bytes]:
        """The columns of one model; its counts are added to the statistics."""
        pairs = scorer.encode_phrases(table.src, table.tgt)
        statistics.src_words, statistics.tgt_words = len(pairs.src.ids), len(pairs.tgt.ids)
        unknown = pairs.src.counts_of(UNK), pairs.tgt.counts_of(UNK)
        self._check_unk(table, scorer.checkpoint.unk_shares, unknown)
        read, predicted = reversed(unknown) if scorer.checkpoint.inverse else unknown
        shown_unknown = {"output": predicted, "input": read, "both": read + predicted}[self.format.unknown_side].tolist()
        log_p = scorer.log_probs(pairs) if "score" in self.format.features else np.zeros(len(pairs))
        clamped_scores = clamped_counts = 0
        if self.format.scale == "exp":
            clamped_scores = int((log_p < MIN_LOG_P).sum())
            clamped_counts = sum(shown_unknown.count(n) for n in set(shown_unknown) if n > MAX_COUNT)
        statistics.models.append(ModelStatistics(int(unknown[0].sum()), int(unknown[1].sum()), clamped_scores, clamped_counts))
        return self.format.columns(log_p, shown_unknown)

    def _check_unk(
        self, table: TableBlock, unk_shares: tuple[float, float], unknown: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> None:
        for side, phrases, share, counts in zip(SIDES, (table.src, table.tgt), unk_shares, unknown, strict=True):
            if share == 0 and not self.format.allow_untrained_unk and counts.any():
                place = int((counts > 0).argmax())
                raise InputError(
                    self.table,
                    f"{shown(phrases[place])} has a {side} word that the model does not know, and its UNK was never trained",
                    "train on data with rarer words or a smaller --shortlist, or accept with --allow-untrained-unk",
                    table.lines[place],
                )
