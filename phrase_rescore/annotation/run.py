"""A whole table through the annotator: checks before, during and after, rows out in the order they came in."""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from phrase_rescore._version import __version__
from phrase_rescore.annotation import pipeline
from phrase_rescore.annotation.annotator import Annotator, SignedModel, Statistics, Summary, checkpoint_of
from phrase_rescore.annotation.options import AnnotateOptions
from phrase_rescore.data.vocabulary import SIDES, factor_counts, fit_warnings
from phrase_rescore.errors import InputError, OptionError, RescoreError
from phrase_rescore.files.inputs import BLOCK_BYTES, Block, count_rows, display_name, open_input, read_blocks
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import check_apart, check_one_stream, files_of, is_stream, partial_of
from phrase_rescore.files.row_outputs import DroppedRows, ResumableOutput, RowOutput, row_output
from phrase_rescore.files.score_files import ScoreFiles
from phrase_rescore.messages import counted, printable
from phrase_rescore.moses.columns import TableColumns
from phrase_rescore.moses.sidecar import AddedColumn, format_sidecar, sidecar_path
from phrase_rescore.moses.table import score_values
from phrase_rescore.progress import Listener, Progress, silent
from phrase_rescore.ranges import TABLE_ROWS, check
from phrase_rescore.runtime import check_precision, prepare, resolve_devices, usable_cores


@dataclass
class AnnotateObserver(Listener):
    """Functions that are called with the progress of an annotation. The defaults show nothing."""

    on_read: Progress | None = None  # bytes of the table's file
    on_block: Callable[[Statistics], object] = silent  # of the rows so far


class _Run:
    """What grows while blocks come back, and is kept in the journal for a later run."""

    def __init__(self, annotator: Annotator, expected: int | None, dropped: str, observer: AnnotateObserver) -> None:
        options = annotator.options
        self.annotator, self.table, self._observer = annotator, annotator.table, observer
        self.dropped = DroppedRows(dropped, options.drops)
        self.summary, self._expected = Summary(annotator.models), expected
        self._blocks, self._crc = 0, 0  # of the input, and the CRC-32 of its rows, by which a later run knows them
        self._misfits: list[str] | None = None  # words that do not fit the models; None: not checked yet
        self._may_change = {  # when an interrupted run is resumed, since rows that are written stay as they are
            "--on-bad-row": options.on_bad_row, "--allow-untrained-unk": options.allow_untrained_unk,
            "--strict": options.strict, "--expect-rows": expected,
        }  # fmt: skip

    @property
    def rows_read(self) -> int:
        return self.summary.statistics.rows + self.summary.statistics.dropped

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to continue."""
        return {
            "blocks": self._blocks, "input_crc": self._crc, **self.summary.statistics.state(), "misfits": self._misfits,
            "warnings": self.summary.warnings, "may_change": self._may_change, "changes": self.summary.changes,
            "dropped": [self.dropped.rows, self.dropped.where],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of an interrupted run. Raises RescoreError if its warnings are errors now."""
        self._blocks, self._crc = state["blocks"], state["input_crc"]
        self.summary.statistics = Statistics.restored(state)
        self.summary.warnings, self.summary.changes = state["warnings"], state["changes"]
        self.dropped.rows, self.dropped.where = state["dropped"]
        for option, was in state["may_change"].items():
            if was != (now := self._may_change[option]):
                self.summary.changes.append(f"{option} was {was}; from row {self.rows_read + 1:,} it is {now}")
        self._misfits = state["misfits"]
        for misfit in self._misfits or ():
            self._judge(misfit)

    def remaining(self, blocks: Iterator[Block], out: ResumableOutput | RowOutput) -> Iterator[Block]:
        """Yield the blocks that an interrupted run has not done. Raises InputError if that run read other ones."""
        hint = f"pass that table, or {out.restart_hint}"
        crc = 0
        for block in islice(blocks, self._blocks):
            crc = _crc(block, crc)
            if self._misfits is None:
                self.summary.statistics.add_words(self.annotator.statistics_of(block))
        if crc != self._crc:
            of = " or their scores" * bool(self.annotator.options.scores)
            raise InputError(self.table, f"its first {self.rows_read:,} rows{of} differ from the interrupted run's", hint)
        for block in blocks:
            if out.complete:
                raise InputError(self.table, f"has more than the {self.rows_read:,} rows of the complete run", hint)
            yield block

    def add(self, block: Block, statistics: Statistics) -> None:
        """Count a block that is written, and keep the rows that were dropped from it."""
        for line, row in statistics.dropped_rows:
            self.dropped.add(f"line {line}", row)
        self.summary.statistics += statistics
        if self.rows_read >= pipeline.FIT_ROWS:
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
            for found in fit_warnings((source, target), (c.src_vocab, c.tgt_vocab), c.unk_shares):
                misfit = self.summary.prefix(model) + found
                self._misfits.append(misfit)
                self._judge(misfit)
                self.summary.warnings.append(misfit)
                self._observer.warn(misfit)

    def _judge(self, misfit: str) -> None:
        if self.annotator.options.strict:
            raise RescoreError(f"{self.table}: {misfit} (--strict)")

    def finish(self, out: ResumableOutput | RowOutput) -> None:
        """Check what only the whole table shows. Raises RescoreError for words that do not fit, and for missing rows."""
        self._check_fit()
        s = self.summary.statistics
        if self._expected is not None and s.rows != self._expected:
            went = counted(s.rows, "row") + (f" (and {s.dropped:,} dropped)" if s.dropped else "")
            remedy = f"pass the whole table if it is cut off, else --expect-rows {s.rows}"
            if out.resume_hint:
                remedy, out.resume_hint = f"add --resume, and {remedy}", ""  # the same command would come here again
            raise RescoreError(f"{self.table}: {went} went through where {self._expected:,} were expected; {remedy}")
        if s.small_batches:
            self.summary.warnings.append(f"memory ran out in {counted(s.small_batches, 'block')}; smaller batches went through")


def _crc(block: Block, crc: int) -> int:
    """Return the CRC-32 so far, continued with the rows of a block and their scores."""
    return zlib.crc32(b"".join(block.scores), zlib.crc32(block.data, crc))


@contextlib.contextmanager
def _output(run: _Run, out: str, block_rows: int, before: Sequence[AddedColumn]) -> Iterator[ResumableOutput | RowOutput]:
    """Open the output of rows; a file takes its name, and has its sidecar, when the ``with`` block ends well."""
    annotator, options, dropped = run.annotator, run.annotator.options, run.dropped
    sides = [(model.signature, checkpoint_of(model.directory).sides) for model in annotator.models]

    def describe(path: str, table: str | None = None, rows: int = 0) -> None:
        first = annotator.n_scores - options.columns.replace + 1
        columns = [*before, *options.columns.described(first, sides, options.scores)]
        with atomic_output(path) as stream:
            stream.write(format_sidecar(columns, table, rows).encode())

    if is_stream(out):
        if options.resume:
            raise OptionError(f"--resume needs a file, and {out} is a stream; name it with -o")
        with row_output(out) as writer, dropped.opened():
            yield writer
        if options.columns_json:
            describe(options.columns_json)
        return
    beside = () if is_stream(dropped.path) else (dropped.path,)
    with ResumableOutput(out, _identity(annotator, block_rows), options.resume, beside).kept() as output:
        if output.state:
            run.restore(output.state)
        with dropped.opened(*(output.other(path) for path in beside if dropped.expected)):
            yield output
        output.commit(run.state, complete=True)
        describe(options.columns_json or sidecar_path(out), output.path, output.rows)
        output.publish()


def _expected_rows(value: int | str | None) -> int | None:
    """Read ``--expect-rows``: a number, or a file whose rows are counted. Raises OptionError for a number out of range."""
    if isinstance(value, int):
        check("expect_rows", value, TABLE_ROWS)
    if not isinstance(value, str):
        return value
    return int(TABLE_ROWS.read(value)) if value.isascii() and value.isdigit() else count_rows(value)


def _identity(annotator: Annotator, block_rows: int) -> dict[str, Any]:
    """Return what the output depends on besides the rows."""
    options = annotator.options
    return {
        "version": __version__, "models": [model.signature for model in annotator.models], **asdict(options.columns),
        "fix_blanks": options.fix_blanks, "gzip_level": annotator.gzip_level, "scores": annotator.n_scores,
        "block_size": block_rows, "threads": options.threads, "precision": options.precision,
        "devices": sorted({device.partition(":")[0] for device in annotator.devices}),
        **({"score_files": len(options.scores), "log": options.log} if options.scores else {}),
    }  # fmt: skip


def _executor(
    options: AnnotateOptions, models: tuple[SignedModel, ...], listener: Listener, stack: contextlib.ExitStack
) -> tuple[Callable[[bool], contextlib.AbstractContextManager[Any]], tuple[str, ...]]:
    """Return what opens the executor of blocks, of a ``small`` table or not, and its devices: of this machine, or a cluster."""
    if options.cluster is not None:
        if options.jobs is not None:
            raise OptionError("--jobs is for this machine; leave it out, a cluster uses every thread of its workers")
        try:
            from phrase_rescore.annotation.cluster import open_cluster

            cluster, devices = stack.enter_context(
                open_cluster(options.cluster, models, options.device, options.strict, listener)
            )
        except ImportError as error:
            needs = f"--cluster {printable(options.cluster)} needs {error.name}"
            raise OptionError(f"{needs}; in the checkout, run: pip install '.[cluster]'") from None
        return lambda small: contextlib.nullcontext(cluster), devices
    cores, threads, devices = usable_cores(), options.threads, resolve_devices(options.device)
    on_gpu = not devices[0].startswith("cpu")
    jobs = options.jobs or max(1, min(cores // threads, pipeline.GPU_JOBS * len(devices) if on_gpu else cores))
    if jobs * threads > cores:
        raise OptionError(f"--jobs {jobs} with --threads {threads} needs {jobs * threads} cores; this process may use {cores}")
    prepare(threads)
    return lambda small: pipeline.local(jobs, threads, not small and (on_gpu or jobs > pipeline.THREADS_UP_TO)), devices


def _refuse_twice(
    columns: TableColumns, kept: Sequence[AddedColumn], options: AnnotateOptions, models: Sequence[SignedModel]
) -> None:
    """Raise OptionError if a table has columns already that one of these models would append."""
    signatures = {model.signature: model.directory for model in models}
    for column in kept:
        if column.kind in options.columns.features and column.model in signatures:
            found = f"column {column.column} of {display_name(columns.table)} is that of {signatures[column.model]} already"
            raise OptionError(f"{found}; to renew it add --replace {len(columns) - column.column + 1}")


def _check_paths(table: str, model_dirs: Sequence[str], out: str, dropped: str, options: AnnotateOptions) -> None:
    """Raise OptionError if a file that is written is also read, or written twice."""
    reads = [("TABLE", table), *(("--scores", path) for path in options.scores)]
    if isinstance(options.expect_rows, str):
        reads.append(("--expect-rows", options.expect_rows))
    for directory in model_dirs:
        reads += files_of("-m", directory)
    writes = [("-o", out)]
    if options.drops:
        writes.append(("--dropped", dropped))
    if options.columns_json:
        writes.append(("--columns-json", options.columns_json))
    if not is_stream(out):
        partial = partial_of(out, hidden=False)
        writes += [("the partial of -o", partial), ("its journal", f"{partial}.json")]
        if not options.columns_json:
            writes.append(("the sidecar", sidecar_path(out)))
    check_apart(reads, writes)


def annotate(table: str, model_dirs: Sequence[str], out: str, options: AnnotateOptions, observer: AnnotateObserver) -> Summary:
    """Annotate a table: rows in, rows out, in their order; a run that resumes another gives the same bytes.

    Raises InputError for bad input, OptionError for options that do not fit it, RescoreError when ``strict`` or
    ``expect_rows`` is not met; IncompleteOutput, with the reason as its cause, once rows went to standard output.
    """
    start = time.monotonic()
    name, gzip_level = display_name(table), pipeline.gzip_level_of(out, options.gzip_level)
    base = out if not is_stream(out) else "stdin" if is_stream(table) else os.path.basename(table)
    dropped = options.dropped or f"{base}.dropped"
    _check_paths(table, model_dirs, out, dropped, options)
    if not (model_dirs or options.scores):
        raise OptionError("nothing to append; name a model with -m, or a file with --scores")
    if options.log and not options.scores:
        raise OptionError("--log says that --scores has logarithms; to choose what is written use --scale")
    check_one_stream(table, *options.scores)
    expected = _expected_rows(options.expect_rows)
    if len(set(map(os.path.realpath, model_dirs))) < len(model_dirs):
        raise OptionError("-m names the same model twice; name it once")
    models = tuple(SignedModel(directory, checkpoint_of(directory).signature) for directory in model_dirs)
    with contextlib.ExitStack() as stack:
        pool, devices = _executor(options, models, observer, stack)
        stream = stack.enter_context(open_input(table, observer.on_read))
        scores = stack.enter_context(ScoreFiles(options.scores, table, "rows"))
        for device in dict.fromkeys(devices):
            if slow := check_precision(options.precision, device, here=options.cluster is None):
                observer.warn(slow)
        block_rows = options.block_rows or (pipeline.BLOCK_ROWS if devices[0] == "cpu" else pipeline.GPU_BLOCK_ROWS)
        first, blocks = pipeline.first_valid_rows(read_blocks(stream, block_rows), name, options.drops)
        n_scores = first[0].n_scores
        columns = TableColumns.of(table, score_values([row.fields[2] for row in first if row.n_scores == n_scores], n_scores))
        replaced = columns.last(options.columns.replace, "--replace")
        before = [column.added for column in columns.columns if column.added and column not in replaced]
        _refuse_twice(columns, before, options, models)
        doubt = "" if replaced else columns.doubt
        annotator = Annotator(name, models, n_scores, options, gzip_level, devices)
        ahead, blocks = pipeline.read_ahead(blocks, pipeline.AHEAD_ROWS)
        annotator.refuse_swapped(ahead)
        small = sum(block.n_rows for block in ahead) < pipeline.AHEAD_ROWS
        del ahead
        if options.scores:
            blocks = scores.beside(blocks)
        run = _Run(annotator, expected, dropped, observer)
        run.summary.replaced = ", ".join(map(str, replaced))
        if doubt:
            observer.warn(f"{doubt}; to renew them add --replace 2")
            run.summary.warnings.append(f"{doubt}; to renew them add --replace 2")
        with pool(small) as executor, _output(run, out, block_rows, before) as output:
            for block, (data, statistics) in pipeline.in_order(executor, annotator, run.remaining(blocks, output)):
                output.write(data, statistics.rows)
                run.add(block, statistics)
                ended_for_its_size = block.n_rows == block_rows or len(block.data) >= BLOCK_BYTES
                if ended_for_its_size and block.data.endswith(b"\n"):  # else it is longer when a cut-off table comes again
                    output.commit(run.state)
                observer.on_block(run.summary.statistics)
            run.finish(output)
            run.summary.how = f"on {', '.join(devices)} in {options.precision}, {executor.description}"
    run.summary.dropped = run.dropped.summary()
    run.summary.seconds = time.monotonic() - start
    return run.summary
