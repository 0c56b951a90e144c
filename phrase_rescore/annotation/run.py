"""A whole table through the annotator: checks before, during and after, rows out in the order they came in."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from phrase_rescore._version import __version__
from phrase_rescore.annotation.annotator import Annotator, SignedModel, checkpoint_of
from phrase_rescore.annotation.options import AnnotateOptions
from phrase_rescore.annotation.pipeline import (
    CPU_BLOCK_ROWS,
    GPU_BLOCK_ROWS,
    Workers,
    choose_devices,
    choose_jobs,
    in_order,
    local,
)
from phrase_rescore.annotation.record import AnnotateObserver, Record, Summary
from phrase_rescore.errors import OptionError
from phrase_rescore.files.inputs import BLOCK_BYTES, Block, ScoreFiles, display_name, look_ahead, open_input, read_blocks
from phrase_rescore.files.outputs import atomic_output, gzip_level_of
from phrase_rescore.files.paths import check_apart, files_of, is_stream, partial_of
from phrase_rescore.files.row_outputs import ResumableOutput, RowOutput, row_output
from phrase_rescore.moses.columns import AddedColumn, TableColumns, format_sidecar, sidecar_path
from phrase_rescore.moses.file_kinds import TABLE, check_kind
from phrase_rescore.moses.table import first_row
from phrase_rescore.runtime import check_precision

if TYPE_CHECKING:
    from phrase_rescore.annotation.cluster import Cluster

AHEAD_ROWS = 20_000  # read before the first is written
JUDGED_AHEAD = 2000  # of these rows: whose words tell the direction, and whose scores look like those of annotate or not


def annotate(table: str, model_dirs: Sequence[str], out: str, options: AnnotateOptions, observer: AnnotateObserver) -> Summary:
    """Annotate a table: rows in, rows out, in their order; a run that resumes another gives the same bytes.

    Raises InputError for bad input, OptionError for options that do not fit it, RescoreError when ``strict`` or
    ``expect_rows`` is not met. A note on the error says how many rows went to standard output, or are kept for ``resume``.
    """
    start = time.monotonic()
    gzip_level, dropped = gzip_level_of(out, options.gzip_level), _dropped_path(table, out)
    _check_request(table, model_dirs, out, dropped, options)
    directories = model_dirs if options.cluster is None else map(os.path.abspath, model_dirs)  # workers start elsewhere
    models = tuple(SignedModel(directory, checkpoint_of(directory).signature) for directory in directories)
    with contextlib.ExitStack() as stack:
        cluster, devices = choose_devices(options, observer, stack)
        jobs = 0 if cluster else choose_jobs(options, devices)
        for device in dict.fromkeys(devices):
            if slow := check_precision(options.precision, device, here=cluster is None):
                observer.warn(slow)
        block_rows = options.block_rows or (CPU_BLOCK_ROWS if devices[0] == "cpu" else GPU_BLOCK_ROWS)
        stream = stack.enter_context(open_input(table, observer.on_read))
        rows, blocks = look_ahead(read_blocks(stream, block_rows), AHEAD_ROWS)
        name = display_name(table)
        check_kind(name, rows, TABLE)
        annotator = Annotator(name, models, first_row(name, rows, options.drops).n_scores, options, gzip_level, devices)
        record = Record(annotator, dropped, observer)
        kept = _kept_columns(table, rows, record)
        if options.scores:
            blocks = stack.enter_context(ScoreFiles(options.scores, table, "rows")).beside(blocks)
        executor = cluster or stack.enter_context(local(jobs, options.threads, devices[0], len(rows) < AHEAD_ROWS))
        with _output(record, out, block_rows, kept) as output:
            _write(record, executor, blocks, output, block_rows)
        record.summary.how = f"on {', '.join(devices)} in {options.precision}, {executor.description}"
    record.summary.dropped = record.dropped.summary()
    record.summary.seconds = time.monotonic() - start
    return record.summary


def _dropped_path(table: str, out: str) -> str:
    """Name the file of dropped rows: beside OUT, or, where that is a stream, in the working directory."""
    base = out if not is_stream(out) else "stdin" if is_stream(table) else os.path.basename(table)
    return f"{base}.dropped"


def _check_request(table: str, model_dirs: Sequence[str], out: str, dropped: str, options: AnnotateOptions) -> None:
    """Check what can be checked before anything is read. Raises OptionError."""
    reads = [("TABLE", table), *(("--scores", path) for path in options.scores)]
    for directory in model_dirs:
        reads += files_of("-m", directory)
    writes = [("-o", out)]
    if options.drops:
        writes.append(("the dropped rows", dropped))
    if not is_stream(out):
        partial = partial_of(out, hidden=False)
        writes += [("the partial of -o", partial), ("its journal", f"{partial}.json"), ("the sidecar", sidecar_path(out))]
    elif options.resume:
        raise OptionError(f"--resume needs a file, and {out} is a stream; name it with -o")
    check_apart(reads, writes)
    if not (model_dirs or options.scores):
        raise OptionError("nothing to append; name a model with -m, or a file with --scores")
    if options.log and not options.scores:
        raise OptionError("--log says that --scores has logarithms; to choose what is written use --scale")
    if len(set(map(os.path.realpath, model_dirs))) < len(model_dirs):
        raise OptionError("-m names the same model twice; name it once")


def _kept_columns(table: str, rows: Sequence[bytes], record: Record) -> list[AddedColumn]:
    """Return the columns that were added before and stay. Refuse, by its first rows, a table that cannot be annotated.

    Raises InputError if it is of another direction than a model, OptionError if it has a model's columns already.
    """
    annotator = record.annotator
    options, n_scores = annotator.options, annotator.n_scores
    some = annotator.parse(Block(0, 1, b"\n".join(rows[:: max(1, len(rows) // JUDGED_AHEAD)])))
    columns = TableColumns.of(table, some.values(n_scores))
    replaced = columns.last(options.columns.replace, "--replace")
    kept = [column.added for column in columns.columns if column.added and column not in replaced]
    directories = {model.signature: model.directory for model in annotator.models}
    for column in kept:
        if column.kind in options.columns.features and column.model in directories:
            found = f"column {column.column} of {annotator.table} is that of {directories[column.model]} already"
            raise OptionError(f"{found}; to renew it add --replace {n_scores - column.column + 1}")
    for model in annotator.models if some.src else ():
        checkpoint_of(model.directory).refuse_swapped(annotator.table, some.src, some.tgt, model.directory)
    if columns.doubt and not replaced:
        record.warn(f"{columns.doubt}; to renew them add --replace 2")
    return kept


@contextlib.contextmanager
def _output(record: Record, out: str, block_rows: int, kept: list[AddedColumn]) -> Iterator[ResumableOutput | RowOutput]:
    """Open the output of rows; a file takes its name, and has its sidecar, when the ``with`` block ends well."""
    annotator, dropped = record.annotator, record.dropped
    if is_stream(out):
        with row_output(out) as writer, dropped.opened():
            yield writer
        return
    form, scores = annotator.options.columns, annotator.options.scores
    models = [(model.signature, checkpoint_of(model.directory).sides[1]) for model in annotator.models]
    columns = [*kept, *form.described(annotator.n_scores - form.replace + 1, models, scores)]
    identity = _identity(annotator, block_rows)
    with ResumableOutput(out, identity, annotator.options.resume, [dropped.path]).kept() as output:
        if output.state:
            record.restore(output.state)
        with dropped.opened(output.other(dropped.path) if dropped.expected else None):
            yield output
        output.commit(record.state, complete=True)
        with atomic_output(sidecar_path(out)) as stream:
            stream.write(format_sidecar(columns, output.path, output.rows).encode())
        output.publish()


def _identity(annotator: Annotator, block_rows: int) -> dict[str, Any]:
    """Return what the output depends on besides the rows."""
    options = annotator.options
    return {
        "version": __version__, "models": [model.signature for model in annotator.models], **asdict(options.columns),
        "gzip_level": annotator.gzip_level, "scores": annotator.n_scores, "block_size": block_rows,
        "threads": options.threads, "precision": options.precision,
        "devices": sorted({device.partition(":")[0] for device in annotator.devices}),
        **({"score_files": len(options.scores), "log": options.log} if options.scores else {}),
    }  # fmt: skip


def _write(
    record: Record, executor: Workers | Cluster, blocks: Iterator[Block], output: ResumableOutput | RowOutput, block_rows: int
) -> None:
    """Score all blocks that an interrupted run has not done, and write them in their order."""
    for block, (data, statistics) in in_order(executor, record.annotator, record.remaining(blocks, output)):
        output.write(data, statistics.rows)
        record.add(block, statistics)
        ended_for_its_size = block.n_rows == block_rows or len(block.data) >= BLOCK_BYTES
        if ended_for_its_size and block.data.endswith(b"\n"):  # else it is longer when a cut-off table comes again
            output.commit(record.state)
        record.observer.on_block(record.summary.statistics)
    record.finish()
