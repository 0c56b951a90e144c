"""The unit of work of annotation: a function from a block of rows to its annotated bytes and its counts, for any executor."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.annotation.options import AnnotateOptions
from phrase_rescore.data.log_probs import check_finite
from phrase_rescore.data.vocabulary import UNK
from phrase_rescore.errors import InputError, ModelError
from phrase_rescore.files.inputs import Block, natural_log
from phrase_rescore.files.outputs import gzip_member
from phrase_rescore.messages import shown
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.table import TableBlock, parse_block
from phrase_rescore.nn.storage import CONFIG
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.runtime import use_threads

FIT_ROWS = 100_000  # rows whose words are counted to see whether model and table go together


class ModelStatistics(NamedTuple):
    """What is counted of one model's columns."""

    src_unknown: int = 0
    tgt_unknown: int = 0
    clamped_scores: int = 0


@dataclass
class Statistics:
    """Counts of rows. Statistics of neighbouring blocks add up with ``+=``, in order."""

    rows: int = 0  # written
    src_words: int = 0
    tgt_words: int = 0
    dropped: int = 0
    models: list[ModelStatistics] = field(default_factory=list)
    words: tuple[Counter[bytes], Counter[bytes]] = field(default_factory=lambda: (Counter(), Counter()))  # of FIT_ROWS rows
    dropped_rows: list[tuple[int, bytes]] = field(default_factory=list)  # (row number, row) of this block alone

    def counts(self) -> dict[str, int]:
        """Return the counts that simply add up, by name."""
        return {name: count for name, count in vars(self).items() if isinstance(count, int)}

    def __iadd__(self, other: Statistics) -> Statistics:
        for name, count in other.counts().items():
            setattr(self, name, getattr(self, name) + count)
        sums = [ModelStatistics(*map(add, *both)) for both in zip(self.models, other.models, strict=False)]
        self.models = sums or self.models or other.models
        self.add_words(other)
        return self

    def state(self) -> dict[str, Any]:
        """Return what a later run needs, as JSON: all but the words."""
        return {"numbers": self.counts(), "models": [of_model._asdict() for of_model in self.models]}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Statistics:
        """Return the statistics that an interrupted run kept."""
        return cls(**state["numbers"], models=[ModelStatistics(**of_model) for of_model in state["models"]])

    def add_words(self, other: Statistics) -> None:
        for counted, more in zip(self.words, other.words, strict=True):
            counted.update(more)


_loading = threading.Lock()


@functools.lru_cache(maxsize=64)
def _load(model_dir: str, config_file: object) -> Checkpoint:
    return load(model_dir)


@functools.lru_cache(maxsize=64)
def _scorer(model_dir: str, config_file: object, device: str, precision: str) -> Scorer:
    return Scorer(_load(model_dir, config_file), device, precision)


def _config_file(model_dir: str) -> object:
    """Return what changes when another model takes this one's place."""
    with contextlib.suppress(OSError):
        status = os.stat(os.path.join(model_dir, CONFIG))
        return status.st_ino, status.st_mtime_ns
    return None


def checkpoint_of(model_dir: str) -> Checkpoint:
    """Return the model of a directory, loaded once a process and again when another model has taken its place."""
    with _loading:
        return _load(model_dir, _config_file(model_dir))


def scorer_of(model_dir: str, device: str = "cpu", precision: str = "float32") -> Scorer:
    """Return the scorer of a model directory, likewise made once a process."""
    with _loading:
        return _scorer(model_dir, _config_file(model_dir), device, precision)


@dataclass(frozen=True)  # not a tuple: Dask takes those apart
class SignedModel:
    """A model to score with: its directory, and its signature, which must not change during the run."""

    directory: str
    signature: str


@dataclass(frozen=True)
class Annotator:
    """Appends the columns to every row of a block. Raises InputError for a bad row, unless dropped, and if UNK is untrained."""

    table: str  # name for messages
    models: tuple[SignedModel, ...]
    n_scores: int  # columns that every row must have
    options: AnnotateOptions
    gzip_level: str | None  # None: plain bytes
    devices: tuple[str, ...]  # blocks go to them in turn

    def __call__(self, block: Block) -> tuple[bytes, Statistics]:
        use_threads(self.options.threads)
        scorers = [self._scorer(model, block.number) for model in self.models]
        table = self.parse(block)
        if table.bad and not self.options.drops:
            line, _, error = table.bad[0]
            raise error.at(self.table, line)
        statistics = self.count(table)
        columns = [self._columns(scorer, table, statistics) for scorer in scorers]
        for path, text in zip(self.options.scores, block.scores, strict=True):
            numbers = text.split(b"\n")
            logs = (natural_log(path, line, numbers[line - block.first_row], self.options.log) for line in table.lines)
            columns.append(list(map(self.options.columns.given, logs)))
        out = table.write(self.options.columns.replace, list(map(b"".join, zip(*columns, strict=True))))
        return out if self.gzip_level is None else gzip_member(out, self.gzip_level), statistics

    def parse(self, block: Block) -> TableBlock:
        """Cut and check the rows of a block; bad ones are returned apart."""
        factors = {checkpoint_of(model.directory).factors for model in self.models}
        return parse_block(block, self.n_scores, factors)

    def _scorer(self, model: SignedModel, block: int) -> Scorer:
        scorer = scorer_of(model.directory, self.devices[block % len(self.devices)], self.options.precision)
        if scorer.checkpoint.signature != model.signature:
            raise ModelError(f"{model.directory}: the model has changed since annotation began; start again")
        return scorer

    def count(self, table: TableBlock) -> Statistics:
        """Count what needs no model."""
        s = Statistics(len(table.lines), dropped=len(table.bad))
        s.dropped_rows = [(line, row) for line, row, _ in table.bad]
        if table.lines and (counted := max(0, FIT_ROWS + 1 - table.lines[0])):
            for words, phrases in zip(s.words, (table.src, table.tgt), strict=True):
                words.update(b" ".join(phrases[:counted]).split(b" "))
        return s

    def _columns(self, scorer: Scorer, table: TableBlock, statistics: Statistics) -> list[bytes]:
        """Make the columns of one model, and add their counts to the statistics. Raises InputError where UNK is untrained."""
        form, pairs = self.options.columns, scorer.encode_phrases(table.src, table.tgt)
        statistics.src_words, statistics.tgt_words = len(pairs.src.ids), len(pairs.tgt.ids)
        src_unknown, tgt_unknown = pairs.src.counts_of(UNK), pairs.tgt.counts_of(UNK)
        if not self.options.allow_untrained_unk:
            src_share, tgt_share = scorer.checkpoint.unk_shares
            self._check_unk("source", src_share, src_unknown, table.src, table.lines)
            self._check_unk("target", tgt_share, tgt_unknown, table.tgt, table.lines)
        counted = src_unknown if scorer.checkpoint.inverse else tgt_unknown  # of the side that the model predicts
        log_p = scorer.log_probs(pairs) if "score" in form.features else np.zeros(len(pairs))
        check_finite(log_p, self.table, table.lines)
        clamped = int((log_p < MIN_LOG_P).sum()) if form.scale == "exp" else 0
        statistics.models.append(ModelStatistics(int(src_unknown.sum()), int(tgt_unknown.sum()), clamped))
        return form.columns(log_p, counted.tolist())

    def _check_unk(
        self, side: str, in_training: float, unknown: NDArray[np.int64], phrases: Sequence[bytes], lines: Sequence[int]
    ) -> None:
        """Raise InputError for the first row with an unknown word if the model has never seen one in training."""
        if in_training == 0 and unknown.any():
            place = int((unknown > 0).argmax())
            found = f"{shown(phrases[place])} has a {side} word that the model does not know, and its UNK was never trained"
            hint = "train on data with rarer words or a smaller --shortlist, or accept with --allow-untrained-unk"
            raise InputError(self.table, found, hint, lines[place])
