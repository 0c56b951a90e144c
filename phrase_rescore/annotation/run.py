"""A whole table through the annotator: checks before, during and after, rows out in the order they came in."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phrase_rescore._version import __version__
from phrase_rescore.annotation.annotator import Annotator, SignedModel, checkpoint_of
from phrase_rescore.annotation.options import AnnotateOptions
from phrase_rescore.annotation.pipeline import CPU_BLOCK_ROWS, GPU_BLOCK_ROWS, BlockExecutor, choose_executor, in_order
from phrase_rescore.annotation.record import AnnotateObserver, Record, Summary
from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import BLOCK_BYTES, Block, count_rows, display_name, look_ahead, open_input, read_blocks
from phrase_rescore.files.outputs import atomic_output, gzip_level_of
from phrase_rescore.files.paths import check_apart, files_of, is_stream, partial_of
from phrase_rescore.files.row_outputs import ResumableOutput, RowOutput, row_output
from phrase_rescore.files.score_files import ScoreFiles
from phrase_rescore.moses.columns import ScoreColumn, TableColumns
from phrase_rescore.moses.file_kinds import TABLE, check_kind
from phrase_rescore.moses.sidecar import AddedColumn, format_sidecar, sidecar_path
from phrase_rescore.moses.table import first_row
from phrase_rescore.ranges import TABLE_ROWS, check
from phrase_rescore.runtime import check_precision

AHEAD_ROWS = 20_000  # read before the first is written
JUDGED_AHEAD = 2000  # of these rows: whose words tell the direction, and whose scores look like those of annotate or not


@dataclass(frozen=True)
class _Request:
    """What is asked for, before anything is read: options, models and files that go together."""

    table: str
    out: str
    options: AnnotateOptions
    models: tuple[SignedModel, ...]
    dropped: str  # the file of dropped rows
    expected: int | None  # rows
    gzip_level: str | None


def annotate(table: str, model_dirs: Sequence[str], out: str, options: AnnotateOptions, observer: AnnotateObserver) -> Summary:
    """Annotate a table: rows in, rows out, in their order; a run that resumes another gives the same bytes.

    Raises InputError for bad input, OptionError for options that do not fit it, RescoreError when ``strict`` or
    ``expect_rows`` is not met. A note on the error says how many rows went to standard output, or are kept for ``resume``.
    """
    start = time.monotonic()
    request = _requested(table, model_dirs, out, options)
    with contextlib.ExitStack() as stack:
        pool, devices = choose_executor(options, request.models, observer, stack)
        for device in dict.fromkeys(devices):
            if slow := check_precision(options.precision, device, here=options.cluster is None):
                observer.warn(slow)
        opened = _opened(request, devices, observer, stack)
        record = Record(opened.annotator, request.expected, request.dropped, observer)
        record.summary.replaced = ", ".join(map(str, opened.replaced))
        if opened.doubt:
            record.warn(opened.doubt)
        with pool(opened.small) as executor, _output(record, request, opened) as output:
            _write(record, opened, executor, output)
            record.summary.how = f"on {', '.join(devices)} in {options.precision}, {executor.description}"
    record.summary.dropped = record.dropped.summary()
    record.summary.seconds = time.monotonic() - start
    return record.summary


def _requested(table: str, model_dirs: Sequence[str], out: str, options: AnnotateOptions) -> _Request:
    """Check what can be checked before the table is opened. Raises OptionError, ModelError."""
    gzip_level = gzip_level_of(out, options.gzip_level)
    base = out if not is_stream(out) else "stdin" if is_stream(table) else os.path.basename(table)
    dropped = options.dropped or f"{base}.dropped"
    _check_paths(table, model_dirs, out, dropped, options)
    if not (model_dirs or options.scores):
        raise OptionError("nothing to append; name a model with -m, or a file with --scores")
    if options.log and not options.scores:
        raise OptionError("--log says that --scores has logarithms; to choose what is written use --scale")
    if len(set(map(os.path.realpath, model_dirs))) < len(model_dirs):
        raise OptionError("-m names the same model twice; name it once")
    expected = _expected_rows(options.expect_rows)
    models = tuple(SignedModel(directory, checkpoint_of(directory).signature) for directory in model_dirs)
    return _Request(table, out, options, models, dropped, expected, gzip_level)


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


def _expected_rows(value: int | str | None) -> int | None:
    """Read ``--expect-rows``: a number, or a file whose rows are counted. Raises OptionError for a number out of range."""
    if isinstance(value, int):
        check("expect_rows", value, TABLE_ROWS)
    if not isinstance(value, str):
        return value
    return int(TABLE_ROWS.read(value)) if value.isascii() and value.isdigit() else count_rows(value)


@dataclass(frozen=True)
class _Opened:
    """A table whose first rows were read."""

    annotator: Annotator
    blocks: Iterator[Block]
    block_rows: int
    small: bool  # so that no process is worth starting
    kept: list[AddedColumn]  # that were added before and stay
    replaced: list[ScoreColumn]
    doubt: str  # a warning, if there is one


def _opened(request: _Request, devices: tuple[str, ...], observer: AnnotateObserver, stack: contextlib.ExitStack) -> _Opened:
    """Open the table, look at its first rows and refuse what cannot be annotated. Raises InputError, OptionError."""
    options, name = request.options, display_name(request.table)
    block_rows = options.block_rows or (CPU_BLOCK_ROWS if devices[0] == "cpu" else GPU_BLOCK_ROWS)
    stream = stack.enter_context(open_input(request.table, observer.on_read))
    rows, blocks = look_ahead(read_blocks(stream, block_rows), AHEAD_ROWS)
    check_kind(name, rows, TABLE)
    n_scores = first_row(name, rows, options.drops).n_scores
    annotator = Annotator(name, request.models, n_scores, options, request.gzip_level, devices)
    some = annotator.parse(Block(0, 1, b"\n".join(rows[:: max(1, len(rows) // JUDGED_AHEAD)])))
    columns = TableColumns.of(request.table, some.values(n_scores))
    replaced = columns.last(options.columns.replace, "--replace")
    kept = [column.added for column in columns.columns if column.added and column not in replaced]
    _refuse_twice(annotator, kept)
    annotator.refuse_swapped(some)
    if options.scores:
        scores = stack.enter_context(ScoreFiles(options.scores, request.table, "rows"))
        blocks = scores.beside(blocks)
    doubt = f"{columns.doubt}; to renew them add --replace 2" if columns.doubt and not replaced else ""
    return _Opened(annotator, blocks, block_rows, len(rows) < AHEAD_ROWS, kept, replaced, doubt)


def _refuse_twice(annotator: Annotator, kept: Sequence[AddedColumn]) -> None:
    """Raise OptionError if a table has columns already that one of the models would append."""
    directories = {model.signature: model.directory for model in annotator.models}
    for column in kept:
        if column.kind in annotator.options.columns.features and column.model in directories:
            found = f"column {column.column} of {annotator.table} is that of {directories[column.model]} already"
            raise OptionError(f"{found}; to renew it add --replace {annotator.n_scores - column.column + 1}")


@contextlib.contextmanager
def _output(record: Record, request: _Request, table: _Opened) -> Iterator[ResumableOutput | RowOutput]:
    """Open the output of rows; a file takes its name, and has its sidecar, when the ``with`` block ends well."""
    out, options, dropped = request.out, request.options, record.dropped

    def describe(path: str, annotated: str | None = None, rows: int = 0) -> None:
        sides = [(model.signature, checkpoint_of(model.directory).sides) for model in request.models]
        first = table.annotator.n_scores - len(table.replaced) + 1
        columns = [*table.kept, *options.columns.described(first, sides, options.scores)]
        with atomic_output(path) as stream:
            stream.write(format_sidecar(columns, annotated, rows).encode())

    if is_stream(out):
        if options.resume:
            raise OptionError(f"--resume needs a file, and {out} is a stream; name it with -o")
        with row_output(out) as writer, dropped.opened():
            yield writer
        if options.columns_json:
            describe(options.columns_json)
        return
    beside = () if is_stream(dropped.path) else (dropped.path,)
    with ResumableOutput(out, _identity(table.annotator, table.block_rows), options.resume, beside).kept() as output:
        if output.state:
            record.restore(output.state)
        with dropped.opened(*(output.other(path) for path in beside if dropped.expected)):
            yield output
        output.commit(record.state, complete=True)
        describe(options.columns_json or sidecar_path(out), output.path, output.rows)
        output.publish()


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


def _write(record: Record, table: _Opened, executor: BlockExecutor, output: ResumableOutput | RowOutput) -> None:
    """Score all blocks that an interrupted run has not done, and write them in their order."""
    for block, (data, statistics) in in_order(executor, table.annotator, record.remaining(table.blocks, output)):
        output.write(data, statistics.rows)
        record.add(block, statistics)
        ended_for_its_size = block.n_rows == table.block_rows or len(block.data) >= BLOCK_BYTES
        if ended_for_its_size and block.data.endswith(b"\n"):  # else it is longer when a cut-off table comes again
            output.commit(record.state)
        record.tell()
    record.finish(output)
