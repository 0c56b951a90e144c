"""A whole table through the annotator: checks before, during and after, rows out in the order they came in."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any

from phrase_rescore._version import __version__
from phrase_rescore.annotation.annotator import (
    FIT_ROWS,
    ONE_CORE,
    Annotator,
    Compute,
    Model,
    ModelStatistics,
    Statistics,
    checkpoint_of,
)
from phrase_rescore.annotation.executors.local import BlockExecutor, BlockLost
from phrase_rescore.annotation.pipeline import BLOCK_ROWS, GZIP_LEVEL, gzip_level_of, in_order
from phrase_rescore.data.coverage import fit_warnings
from phrase_rescore.errors import InputError, OptionError, RescoreError, RowError, counted
from phrase_rescore.files.blocks import BLOCK_BYTES, Block, count_rows, read_blocks
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.files.outputs import DroppedRows, RowOutput, atomic_output, row_output
from phrase_rescore.files.paths import check_outputs, is_stream
from phrase_rescore.files.resumable import ResumableOutput
from phrase_rescore.moses.columns import (
    JUDGED_ROWS,
    ColumnFormat,
    Scored,
    check_replaced,
    describing,
    format_sidecar,
    looks_annotated,
    sidecar_path,
)
from phrase_rescore.moses.factors import select_factor
from phrase_rescore.moses.table import TableRow, parse_row, valid_rows
from phrase_rescore.ranges import TABLE_ROWS, check
from phrase_rescore.rnn.checkpoint import Checkpoint


@dataclass(frozen=True)
class Files:
    """Where everything comes from and goes to; ``-`` is standard input or output."""

    table: str
    model_dirs: tuple[str, ...]
    out: str = "-"
    columns_json: str | None = None  # default: OUT.columns.json, nothing for a stream
    dropped: str | None = None  # default: OUT.dropped, or TABLE.dropped in this directory for a stream

    @property
    def columns_path(self) -> str | None:
        if self.columns_json is not None or is_stream(self.out):
            return self.columns_json
        return sidecar_path(self.out)

    @property
    def dropped_path(self) -> str:
        return f"{self._base}.dropped" if self.dropped is None else self.dropped

    @property
    def failed_path(self) -> str:
        """Where the rows go that workers of a cluster died of."""
        return f"{self._base}.failed"

    @property
    def _base(self) -> str:
        if is_stream(self.out):
            return "stdin" if is_stream(self.table) else os.path.basename(self.table)
        return self.out

    def check(self) -> None:
        """Raise OptionError if an output is the table or another output."""
        sidecar = self.columns_path
        check_outputs([self.table], self.out, self.dropped_path, *([] if sidecar is None else [sidecar]))


def _whose(model: Model, models: Sequence[Model]) -> str:
    """Return the words that tell what is said of one model from what is said of others."""
    return f"{model.directory}: " if len(models) > 1 else ""


@dataclass
class Summary:
    """What a run did."""

    statistics: Statistics
    models: tuple[Model, ...]
    how: str  # it was computed
    seconds: float
    warnings: list[str]
    dropped: str  # how many rows, where they are kept, the first lines
    changes: list[str]  # of options, since an interrupted run began

    def lines(self) -> list[str]:
        """Return the closing report, line by line."""
        s = self.statistics
        rate = s.rows / self.seconds if self.seconds else 0.0

        def share(part: int, whole: int) -> str:
            return f"{part / whole:.2%}" if whole else "none"

        lines = [f"{s.rows:,} rows of {s.sources:,} sources in {self.seconds:.1f} s, {rate:,.0f} rows/s"]
        for model, of_model in zip(self.models, s.models, strict=False):  # no row, no numbers
            whose = _whose(model, self.models)
            lines.append(
                f"{whose}unknown words: {of_model.tgt_unknown:,} of the target ({share(of_model.tgt_unknown, s.tgt_words)}), "
                f"{of_model.src_unknown:,} of the source ({share(of_model.src_unknown, s.src_words)})"
            )
            if of_model.clamped_scores:
                lines.append(f"{whose}clamped: {of_model.clamped_scores:,} scores below 1.2e-38 (log -87.3)")
            if of_model.clamped_counts:
                lines.append(f"{whose}clamped: {of_model.clamped_counts:,} unknown-word counts above 88")
        if s.irregular_blanks:
            lines.append(
                f"doubled blanks or tabs in the scores of {s.irregular_blanks:,} rows (CreateProbingPT misreads them; "
                "--fix-blanks writes single blanks)"
            )
        if self.dropped:
            lines.append(self.dropped)
        lines += self.changes
        lines.append(f"scored {self.how}")
        signatures = (f"model: {model.signature}" for model in self.models)
        return [*lines, *(f"warning: {warning}" for warning in self.warnings), *signatures]


def _first_rows(blocks: Iterator[Block], table: str, form: ColumnFormat) -> tuple[list[TableRow], Iterator[Block]]:
    """The first valid rows, which say how many scores every row has, and the stream with nothing taken from it.

    Raises InputError when the first row (with ``drop_bad_rows``: the first 100,000 rows) is bad, or there is none.
    """
    taken: list[Block] = []
    for block in blocks:
        if not form.drop_bad_rows and block.number == 0:
            try:
                parse_row(block.rows()[0])
            except RowError as error:
                raise error.at(table, 1) from None
        taken.append(block)
        if rows := list(islice(valid_rows(block.rows()), JUDGED_ROWS)):
            return rows, chain(taken, blocks)
        if block.first_row > FIT_ROWS:
            break
    raise InputError(table, "no valid row in it" if taken else "is empty", "pass a phrase table")


class _Run:
    """One annotation while its blocks come back: what is counted and dropped, and how much of the input is done."""

    def __init__(
        self, files: Files, annotator: Annotator, checkpoints: Sequence[Checkpoint], strict: bool, expect_rows: int | None,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.files, self.annotator, self._strict, self._tell = files, annotator, strict, tell
        form = annotator.format
        self._may_change = {  # when an interrupted run goes on, since rows that are written stay as they are
            "--on-bad-row": "drop" if form.drop_bad_rows else "fail",
            "--allow-untrained-unk": form.allow_untrained_unk,
            "--strict": strict,
            "--expect-rows": expect_rows,
        }
        self.changes = list[str]()
        self.checkpoints = checkpoints
        self.statistics, self.warnings = Statistics(), list[str]()
        self.dropped = DroppedRows(files.dropped_path, annotator.format.drop_bad_rows)
        self._misfits: list[str] | None = None  # words that do not fit; None: not looked at yet
        self._done, self._crc = 0, 0  # blocks, and the CRC-32 of their rows as they were read
        # Of each block that is not back yet: the CRC-32 up to it, whether it ends with a newline, and because of its bytes
        self._in_work: deque[tuple[int, bool, bool]] = deque()

    def warn(self, message: str) -> None:
        """Tell a warning now, and once more in the closing report."""
        self.warnings.append(message)
        self._tell(message)

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on."""
        s = self.statistics
        ends = [end and end.decode("latin-1") for end in (s.first_source, s.last_source)]
        return {
            "blocks": self._done, "input_crc": self._crc, "numbers": s.counts(), "models": [asdict(m) for m in s.models],
            "sources": ends, "misfits": self._misfits, "warnings": self.warnings, "may_change": self._may_change,
            "changes": self.changes, "dropped": [self.dropped.rows, self.dropped.where],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of an interrupted run. Raises RescoreError if its warnings are errors now."""
        self._done, self._crc = state["blocks"], state["input_crc"]
        first, last = (end and end.encode("latin-1") for end in state["sources"])
        models = [ModelStatistics(**m) for m in state["models"]]
        self.statistics = Statistics(**state["numbers"], models=models, first_source=first, last_source=last)
        self._misfits, self.warnings = state["misfits"], state["warnings"]
        self.dropped.rows, self.dropped.where = state["dropped"]
        self.changes = state["changes"]
        row = self.statistics.rows + self.statistics.dropped + 1
        for option, was in state["may_change"].items():
            if was != (now := self._may_change[option]):
                self.changes.append(f"{option} was {was} and is {now} from row {row:,} on")
        for found in self._misfits or ():
            self._judge(found)

    def rest(self, blocks: Iterator[Block], out: ResumableOutput | RowOutput) -> Iterator[Block]:
        """Yield the blocks that an interrupted run has not done. Raises InputError if that run read other ones."""
        crc = 0
        for block in islice(blocks, self._done):
            crc = zlib.crc32(block.data, crc)
            if self._misfits is None:
                self.annotator.look_at(block, self.statistics)
        if crc != self._crc:
            found = f"its first {self.statistics.rows + self.statistics.dropped:,} rows are not those of the interrupted run"
            raise InputError(self.annotator.table, found, f"pass that table, or {out.restart_hint}")
        for block in blocks:
            if out.complete:
                found = f"has more than the {self.statistics.rows + self.statistics.dropped:,} rows of the complete run"
                raise InputError(self.annotator.table, found, f"pass that table, or {out.restart_hint}")
            crc = zlib.crc32(block.data, crc)
            self._in_work.append((crc, block.data.endswith(b"\n"), len(block.data) >= BLOCK_BYTES))
            yield block

    def add(self, block: Statistics, block_rows: int) -> bool:
        """Count a block that has come back, and keep the rows that were dropped from it. Tell whether it was whole.

        It was if it ended for its size, not because the input did: more of the same input leaves it as it is.
        """
        for line, row in block.dropped_rows:
            self.dropped.add(f"line {line}", row)
        self.statistics += block
        self._crc, ended, large = self._in_work.popleft()
        self._done += 1
        if self.statistics.rows + self.statistics.dropped >= FIT_ROWS:
            self.check_fit()
        return ended and (large or block.rows + block.dropped == block_rows)

    def check_fit(self) -> None:
        """Warn, once, of a table and a model that do not go together. Raises RescoreError if warnings are errors."""
        if self._misfits is not None:
            return
        self._misfits = []
        s = self.statistics
        seen = [b"\n".join(blocks).split(b"\n") for blocks in (s.src_seen, s.tgt_seen)]
        s.src_seen, s.tgt_seen = [], []  # needed no more
        for model, c in zip(self.annotator.models, self.checkpoints, strict=True):
            read = select_factor(seen[0], c.factors[0], "source"), select_factor(seen[1], c.factors[1], "target")
            for misfit in fit_warnings(read, (c.src_vocab, c.tgt_vocab), c.unk_shares):
                found = _whose(model, self.annotator.models) + misfit
                self._misfits.append(found)
                self._judge(found)
                self.warn(found)

    def _judge(self, misfit: str) -> None:
        if self._strict:
            raise RescoreError(f"{self.annotator.table}: {misfit} (--strict)")


def _identity(annotator: Annotator, block_rows: int) -> dict[str, Any]:
    """Return what the output depends on besides the rows."""
    compute, form = annotator.compute, asdict(annotator.format)
    return {
        "version": __version__,
        "models": [model.signature for model in annotator.models],
        **{name: form[name] for name in form if name not in ("drop_bad_rows", "allow_untrained_unk")},
        "scores": annotator.n_scores,
        "block_size": block_rows,
        "threads": compute.threads,
        "precision": compute.precision,
        "devices": sorted({device.partition(":")[0] for device in compute.devices}),
    }


@contextlib.contextmanager
def _output(run: _Run, columns: str, identity: dict[str, Any], resume: bool) -> Iterator[ResumableOutput | RowOutput]:
    """Open the place where rows go; a file takes its name, and has its sidecar, when the ``with`` block ends well."""
    files = run.files
    if is_stream(files.out):
        if resume:
            raise OptionError(f"--resume needs a file to go on with; name it with -o, and not {files.out}")
        with row_output(files.out) as writer, run.dropped.opened():
            yield writer
        _write_sidecar(files.columns_path, columns)
        return
    side = () if is_stream(files.dropped_path) else (files.dropped_path,)
    with ResumableOutput(files.out, identity, resume, side).kept() as out:
        if out.state:
            run.restore(out.state)
        with run.dropped.opened(*(out.other(path) for path in side if run.dropped.expected)):
            yield out
        out.commit(run.state, complete=True)
        _write_sidecar(files.columns_path, describing(columns, out.path, out.rows))
        out.publish()


def _kept(lost: BlockLost, path: str, table: str) -> RescoreError:
    """Keep the rows that workers failed at in a file of their own, and make the error that says so."""
    with atomic_output(path) as stream:
        stream.write(lost.block.data)
    first = lost.block.first_row
    rows = f"rows {first:,} to {first + len(lost.block.rows()) - 1:,}"
    return RescoreError(f"{table}: {rows}: workers failed at them again and again ({lost}); they are kept in {path}")


def _write_sidecar(path: str | None, columns: str) -> None:
    if path is not None:
        with atomic_output(path) as stream:
            stream.write(columns.encode())


def expected_rows(value: int | str | None) -> int | None:
    """Read ``--expect-rows``: a number, or a file whose rows are counted. Raises OptionError for a number out of range."""
    if value is None:
        return None
    if isinstance(value, int):
        check("expect_rows", value, TABLE_ROWS)
        return value
    return int(TABLE_ROWS.read(value)) if _is_number(value) else count_rows(value)


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit()


def annotate(
    files: Files,
    form: ColumnFormat,
    executor: BlockExecutor,
    compute: Compute = ONE_CORE,
    *,
    strict: bool = False,
    expect_rows: int | str | None = None,
    replace_any: bool = False,
    block_rows: int = BLOCK_ROWS,
    gzip_level: str = GZIP_LEVEL,
    resume: bool = False,
    on_read: Callable[[int], object] | None = None,
    on_block: Callable[[Statistics], None] = lambda statistics: None,
    warn: Callable[[str], None] = lambda message: None,
) -> Summary:
    """Annotate a table: rows in, rows out, in their order, by way of ``executor``.

    A file appears under its name only when all is well. With ``resume`` the run goes on from what an interrupted one left
    (``files.resumable``), if that is of the same models, options and rows; the output is the same to the byte.

    Raises InputError for bad input, OptionError for options that do not fit it, RescoreError when ``strict`` or
    ``expect_rows`` is not met; IncompleteOutput, with the reason as its cause, once rows went to standard output.
    """
    form = replace(form, gzip_level=gzip_level_of(files.out, gzip_level))
    start = time.monotonic()
    files.check()
    expected = expected_rows(expect_rows)
    if len(set(map(os.path.realpath, files.model_dirs))) < len(files.model_dirs):
        raise OptionError("-m names the same model twice; each adds its columns once")
    checkpoints = [checkpoint_of(name) for name in files.model_dirs]
    models = tuple(Model(name, found.signature) for name, found in zip(files.model_dirs, checkpoints, strict=True))
    table = display_name(files.table)
    with open_input(files.table, on_read) as stream:
        first, blocks = _first_rows(read_blocks(stream, block_rows), table, form)
        n_scores = first[0].n_scores
        if form.replace >= n_scores:
            raise OptionError(f"--replace {form.replace}: {table} has only {n_scores} scores, and at least one must stay")
        if not replace_any:
            check_replaced(files.table, first, form.replace)
        annotator = Annotator(table, models, n_scores, form, compute)
        run = _Run(files, annotator, checkpoints, strict, expected, warn)
        if not form.replace and looks_annotated(first):
            run.warn("the last two columns look like ours already; --replace 2 writes new ones in their place")
        identity = _identity(annotator, block_rows)
        columns = format_sidecar(form, n_scores, [Scored(c.signature, c.sides) for c in run.checkpoints])
        with _output(run, columns, identity, resume) as out:
            try:
                for data, statistics in in_order(executor, annotator, run.rest(blocks, out)):
                    out.write(data, statistics.rows)
                    if run.add(statistics, block_rows):  # the last block may be longer when a cut-off table comes again
                        out.commit(run.state)
                    on_block(run.statistics)
            except BlockLost as lost:
                raise _kept(lost, files.failed_path, table) from None
            run.check_fit()
            if expected is not None and run.statistics.rows != expected:
                found = f"{run.statistics.rows:,} rows went through where {expected:,} were expected"
                raise RescoreError(f"{table}: {found}; is the table cut off, or the number of another one?")
    seconds = time.monotonic() - start
    how = f"on {', '.join(compute.devices)} in {compute.precision}, {executor.describe(compute.threads)}"
    if small := run.statistics.small_batches:
        run.warnings.append(f"memory ran out in {counted(small, 'block')}; smaller batches went through")
    return Summary(run.statistics, models, how, seconds, run.warnings, run.dropped.summary(), run.changes)
