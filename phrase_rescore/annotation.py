"""A whole table through the annotator: checks before, during and after, rows out in the order they came in."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from phrase_rescore.annotator import FIT_ROWS, ONE_CORE, Annotator, Compute, Format, Model, Statistics
from phrase_rescore.checkpoint import Checkpoint
from phrase_rescore.errors import InputError, OptionError, RescoreError, RowError
from phrase_rescore.factors import select_factor
from phrase_rescore.fileio import Block, SideFile, atomic_output, count_rows, display_name, open_input, read_blocks
from phrase_rescore.own_columns import looks_annotated, sidecar_path
from phrase_rescore.phrase_table import TableRow, parse_row
from phrase_rescore.pipeline import BLOCK_ROWS, GZIP_LEVEL, gzip_level_of, in_order, table_output
from phrase_rescore.runtime import no_cycle_collection
from phrase_rescore.vocabulary_fit import fit_warnings

_JUDGED_ROWS = 1000  # rows looked at for columns that are ours already


@dataclass(frozen=True)
class Files:
    """Where everything comes from and goes to; ``-`` is standard input or output."""

    table: str
    model_dirs: tuple[str, ...]
    out: str = "-"
    columns_json: str | None = None  # default: OUT.columns.json, nothing for standard output
    dropped: str | None = None  # default: OUT.dropped, or TABLE.dropped in this directory for standard output

    @property
    def columns_path(self) -> str | None:
        return self.columns_json or (None if self.out == "-" else sidecar_path(self.out))

    @property
    def dropped_path(self) -> str:
        base = self.out if self.out != "-" else os.path.basename(self.table) if self.table != "-" else "stdin"
        return self.dropped or f"{base}.dropped"


@dataclass
class Summary:
    """What a run did."""

    statistics: Statistics
    models: tuple[Model, ...]
    how: str  # it was computed
    seconds: float
    warnings: list[str]
    dropped: str  # how many rows, where they are kept, the first lines

    def lines(self) -> list[str]:
        """The closing report, line by line."""
        s = self.statistics
        rate = s.rows / self.seconds if self.seconds else 0.0

        def share(part: int, whole: int) -> str:
            return f"{part / whole:.2%}" if whole else "none"

        lines = [f"{s.rows:,} rows of {s.sources:,} sources in {self.seconds:.1f} s, {rate:,.0f} rows/s"]
        for model, of_model in zip(self.models, s.models, strict=False):  # no row, no numbers
            whose = f"{model.directory}: " if len(self.models) > 1 else ""
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
        if s.dropped:
            lines.append(self.dropped)
        lines.append(f"scored {self.how}")
        signatures = (f"model: {model.signature}" for model in self.models)
        return [*lines, *(f"warning: {warning}" for warning in self.warnings), *signatures]


def _valid_rows(block: Block, limit: int) -> Iterator[TableRow]:
    for data in block.rows()[:limit]:
        try:
            yield parse_row(data)
        except RowError:
            continue


def _first_rows(blocks: Iterator[Block], table: str, form: Format) -> tuple[list[TableRow], Iterator[Block]]:
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
        if rows := list(_valid_rows(block, _JUDGED_ROWS)):
            return rows, chain(taken, blocks)
        if rows := list(_valid_rows(block, len(block.data))):
            return rows, chain(taken, blocks)
        if block.first_row > FIT_ROWS:
            break
    raise InputError(table, "no valid row in it" if taken else "is empty", "pass a phrase table")


def _columns(form: Format, n_scores: int, checkpoints: Sequence[Checkpoint]) -> str:
    """The sidecar: what the columns added mean."""
    exp, columns = form.scale == "exp", list[dict[str, Any]]()
    for checkpoint in checkpoints:
        read, predicted = checkpoint.sides
        side = {"output": predicted, "input": read, "both": "source and target"}[form.unknown_side]
        log_p = f"natural log p({predicted} | {read}), EOS included"
        for feature in form.features:
            if feature == "score":
                name, unit = "log_prob", f"probability: exp of the {log_p}" if exp else log_p
            else:
                name, unit = "unknown_words", f"{'exp of the ' if exp else ''}number of {side} words unknown to the model"
            number = n_scores - form.replace + len(columns) + 1
            columns.append({"column": number, "feature": name, "model": checkpoint.signature, "unit": unit})
    return json.dumps({"format_version": 1, "columns": columns}, indent=2) + "\n"


@contextlib.contextmanager
def _sidecar(path: str | None, text: str) -> Iterator[None]:
    """Writes ``text`` once the ``with`` block has ended well; a path that cannot be written is noticed before it begins."""
    if path is None:
        yield
        return
    with atomic_output(path) as stream:
        yield
        stream.write(text.encode())


class _Run:
    """The state of one annotation while its blocks come back."""

    def __init__(self, files: Files, annotator: Annotator, strict: bool, warn: Callable[[str], None]) -> None:
        self.files, self.strict, self.warn, self.models = files, strict, warn, annotator.models
        self.checkpoints = [annotator.compute.scorer(model.directory).checkpoint for model in annotator.models]
        self.statistics, self.warnings = Statistics(), list[str]()
        self.dropped = SideFile(files.dropped_path, annotator.format.drop_bad_rows)
        self._fit_checked = False

    def add(self, block: Statistics) -> None:
        for line, row in block.dropped_rows:
            self.dropped.add(f"line {line}", row)
        self.statistics += block
        if self.statistics.rows + self.statistics.dropped >= FIT_ROWS:
            self.check_fit()

    def check_fit(self) -> None:
        if self._fit_checked:
            return
        self._fit_checked = True
        s = self.statistics
        src, tgt = (b"\n".join(seen).split(b"\n") for seen in (s.src_seen, s.tgt_seen))
        s.src_seen, s.tgt_seen = [], []  # needed no more
        for model, c in zip(self.models, self.checkpoints, strict=True):
            seen = select_factor(src, c.factors[0], "source"), select_factor(tgt, c.factors[1], "target")
            texts = b" ".join((*seen[0], b"")), b" ".join((*seen[1], b""))
            whose = f"{model.directory}: " if len(self.models) > 1 else ""
            for found in fit_warnings(texts, (c.src_vocab, c.tgt_vocab), c.unk_shares):
                if self.strict:
                    raise RescoreError(f"{display_name(self.files.table)}: {whose}{found} (--strict)")
                self.warnings.append(whose + found)
                self.warn(whose + found)


def expected_rows(value: str | None) -> int | None:
    """``--expect-rows``: a number, or a file whose rows are counted."""
    return None if value is None else int(value) if value.isascii() and value.isdigit() else count_rows(value)


def annotate(
    files: Files,
    form: Format,
    executor: Executor,
    jobs: int,
    compute: Compute = ONE_CORE,
    *,
    strict: bool = False,
    expect_rows: int | None = None,
    block_rows: int = BLOCK_ROWS,
    gzip_level: str = GZIP_LEVEL,
    on_read: Callable[[int], object] | None = None,
    on_block: Callable[[Statistics], None] = lambda statistics: None,
    warn: Callable[[str], None] = lambda message: None,
) -> Summary:
    """Annotates a table; rows in, rows out, in their order. ``executor`` runs ``jobs`` blocks at a time.

    Raises InputError for bad input, OptionError for options that do not fit it, RescoreError when ``strict`` or
    ``expect_rows`` is not met; IncompleteOutput, with the reason as its cause, once rows went to standard output. A file
    appears under its name only when all is well.
    """
    form = replace(form, gzip_level=gzip_level_of(files.out, gzip_level))
    start = time.monotonic()
    if len(set(map(os.path.realpath, files.model_dirs))) < len(files.model_dirs):
        raise OptionError("-m names the same model twice; each adds its columns once")
    models = tuple(Model(name, compute.scorer(name).checkpoint.signature) for name in files.model_dirs)
    table = display_name(files.table)
    with open_input(files.table, on_read) as stream:
        first, blocks = _first_rows(read_blocks(stream, block_rows), table, form)
        n_scores = first[0].n_scores
        if form.replace >= n_scores:
            raise OptionError(f"--replace {form.replace}: {table} has only {n_scores} scores, and at least one must stay")
        annotator = Annotator(table, models, n_scores, form, compute)
        run = _Run(files, annotator, strict, warn)
        if not form.replace and looks_annotated(first):
            message = "the last two columns look like ours already; --replace 2 writes new ones in their place"
            run.warnings.append(message)
            warn(message)
        sidecar = _sidecar(files.columns_path, _columns(form, n_scores, run.checkpoints))
        with no_cycle_collection(), table_output(files.out) as out, sidecar, run.dropped:
            for data, statistics in in_order(executor, annotator, blocks, in_flight=jobs + 2):
                out.write(data, statistics.rows)
                run.add(statistics)
                on_block(run.statistics)
            run.check_fit()
            if expect_rows is not None and run.statistics.rows != expect_rows:
                raise RescoreError(f"{table}: {run.statistics.rows:,} rows went through where {expect_rows:,} were expected")
    seconds = time.monotonic() - start
    how = f"on {', '.join(compute.devices)} in {compute.precision}, {jobs} x {compute.threads} threads"
    if small := [d for i, d in enumerate(compute.devices) if any(compute.scorer(m.directory, i).halved for m in models)]:
        run.warnings.append(f"{', '.join(small)} ran out of memory; smaller batches went through")
    return Summary(run.statistics, models, how, seconds, run.warnings, run.dropped.summary())
