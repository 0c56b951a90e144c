"""What a run of annotate counts, checks and reports while blocks come back, and keeps in the journal for a later run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from phrase_rescore.annotation.annotator import FIT_ROWS, Annotator, SignedModel, Statistics, checkpoint_of
from phrase_rescore.data.vocabulary import SIDES, factor_counts, fit_warnings
from phrase_rescore.errors import InputError, RescoreError
from phrase_rescore.files.inputs import Block
from phrase_rescore.files.row_outputs import DroppedRows, ResumableOutput, RowOutput
from phrase_rescore.messages import Listener, Progress, counted, percent, share, silent


@dataclass
class AnnotateObserver(Listener):
    """Functions that are called with the progress of an annotation. The defaults show nothing."""

    on_read: Progress | None = None  # bytes of the table's file
    on_block: Callable[[Statistics], object] = silent  # of the rows so far


@dataclass
class Summary:
    """What a run did."""

    models: tuple[SignedModel, ...]
    statistics: Statistics = field(default_factory=Statistics)
    how: str = ""  # it was computed
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    dropped: str = ""  # how many rows, where they are kept, the first lines

    def prefix(self, model: SignedModel) -> str:
        """Return how messages name a model; '' if there is one."""
        return f"{model.directory}: " if len(self.models) > 1 else ""

    def lines(self) -> list[str]:
        """Return the closing report, line by line, without the ``warnings``."""
        s = self.statistics
        rate = s.rows / self.seconds if self.seconds else 0.0
        lines = [f"{s.rows:,} rows in {self.seconds:.1f} s, {rate:,.0f} rows/s"]
        for model, of_model in zip(self.models, s.models, strict=False):  # no row, no numbers
            prefix = self.prefix(model)
            of_tgt, of_src = share(of_model.tgt_unknown, s.tgt_words), share(of_model.src_unknown, s.src_words)
            unknown = f"{of_model.tgt_unknown:,} of the target ({percent(of_tgt, 2)})"
            lines.append(f"{prefix}unknown words: {unknown}, {of_model.src_unknown:,} of the source ({percent(of_src, 2)})")
            if of_model.clamped_scores:
                lines.append(f"{prefix}clamped: {of_model.clamped_scores:,} scores below 1.2e-38 (log -87.3)")
        if self.dropped:
            lines.append(self.dropped)
        if self.models:
            lines.append(f"scored {self.how}")
        return [*lines, *(f"model: {model.signature}" for model in self.models)]


class Record:
    """What grows while blocks come back, and is kept in the journal for a later run."""

    def __init__(self, annotator: Annotator, dropped: str, observer: AnnotateObserver) -> None:
        self.annotator, self.table, self.observer = annotator, annotator.table, observer
        self.dropped, self.summary = DroppedRows(dropped, annotator.options.drops), Summary(annotator.models)
        self._blocks, self._crc = 0, 0  # of the input, and the CRC-32 of its rows, by which a later run knows them
        self._misfits: list[str] | None = None  # words that do not fit the models; None: not checked yet

    @property
    def rows_read(self) -> int:
        return self.summary.statistics.rows + self.summary.statistics.dropped

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to continue."""
        return {
            "blocks": self._blocks, "input_crc": self._crc, **self.summary.statistics.state(), "misfits": self._misfits,
            "warnings": self.summary.warnings, "dropped": [self.dropped.rows, self.dropped.where],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of an interrupted run. Raises RescoreError if its warnings are errors now."""
        self._blocks, self._crc = state["blocks"], state["input_crc"]
        self.summary.statistics, self.summary.warnings = Statistics.restored(state), state["warnings"]
        self.dropped.rows, self.dropped.where = state["dropped"]
        self._misfits = state["misfits"]
        self._refuse_misfits()

    def remaining(self, blocks: Iterator[Block], out: ResumableOutput | RowOutput) -> Iterator[Block]:
        """Yield the blocks that an interrupted run has not done. Raises InputError if that run read other ones."""
        hint = "pass that table, or leave --resume out"
        crc = 0
        for block in islice(blocks, self._blocks):
            crc = _crc(block, crc)
            if self._misfits is None:
                self.summary.statistics.add_words(self.annotator.count(self.annotator.parse(block)))
        if crc != self._crc:
            what = "rows or their scores" if self.annotator.options.scores else "rows"
            raise InputError(self.table, f"its first {self.rows_read:,} {what} differ from the interrupted run's", hint)
        for block in blocks:
            if out.complete:
                raise InputError(self.table, f"has more than the {self.rows_read:,} rows of the complete run", hint)
            yield block

    def add(self, block: Block, statistics: Statistics) -> None:
        """Count a block that is written, and keep the rows that were dropped from it."""
        for line, row in statistics.dropped_rows:
            self.dropped.add(f"line {line}", row)
        self.summary.statistics += statistics
        if self.rows_read >= FIT_ROWS:
            self._check_fit()
        self._blocks += 1
        self._crc = _crc(block, self._crc)

    def _check_fit(self) -> None:
        """Compare the words of source and target with the models, once. Raises RescoreError with ``strict`` if they misfit."""
        if self._misfits is not None:
            return
        self._misfits = []
        for model in self.annotator.models:
            c = checkpoint_of(model.directory)
            c.refuse_swapped_words(self.table, *self.summary.statistics.words, model=model.directory)
            words = zip(self.summary.statistics.words, c.factors, SIDES, strict=True)
            source, target = (factor_counts(counts, factors, side) for counts, factors, side in words)
            found = fit_warnings((source, target), (c.src_vocab, c.tgt_vocab), c.unk_shares)
            self._misfits += [self.summary.prefix(model) + warning for warning in found]
        self._refuse_misfits()
        for misfit in self._misfits:
            self.warn(misfit)

    def _refuse_misfits(self) -> None:
        if self._misfits and self.annotator.options.strict:
            raise RescoreError(f"{self.table}: {self._misfits[0]} (--strict)")

    def warn(self, warning: str) -> None:
        """Show a warning now, and keep it for the closing report."""
        self.summary.warnings.append(warning)
        self.observer.warn(warning)

    def finish(self) -> None:
        """Check what only the whole table shows. Raises RescoreError for words that do not fit, and for missing rows."""
        self._check_fit()
        s, expected = self.summary.statistics, self.annotator.options.expect_rows
        if expected is not None and s.rows != expected:
            went = counted(s.rows, "row") + (f" (and {s.dropped:,} dropped)" if s.dropped else "")
            remedy = f"pass the whole table if it is cut off, else --expect-rows {s.rows}"
            raise RescoreError(f"{self.table}: {went} went through where {expected:,} were expected; {remedy}")


def _crc(block: Block, crc: int) -> int:
    """Return the CRC-32 so far, continued with the rows of a block and their scores."""
    return zlib.crc32(b"".join(block.scores), zlib.crc32(block.data, crc))
