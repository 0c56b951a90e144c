"""From an n-best list to the same list with more features, the whole of ``phrase-rescore rescore``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.blocks import read_rows
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.files.outputs import gzip_member
from phrase_rescore.files.row_output import row_output
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.ini import read_ini, read_weights
from phrase_rescore.moses.nbest import Entry, check_label, of_each, read_entries, weighted_total
from phrase_rescore.moses.table import words
from phrase_rescore.nn.kinds import TEXT
from phrase_rescore.nn.storage import Config
from phrase_rescore.rescoring.scorers import EntryScorer, PairFeature, TextFeature, beyond
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.scorer import Scorer

AT_ONCE = 4096  # entries, and what is left of the last one's segment
GZIP_LEVEL = "fast"


@dataclass(frozen=True)
class Options:
    """What is asked for. Without ``models`` nothing is added to the list."""

    nbest: str
    out: str
    models: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # of the models, in their order; those that are missing are CSLM0, …, RNN0, …
    source: str | None = None
    weights: str | None = None  # recompute the totals by this ini
    replace: bool = False
    sort: bool = False  # by total, the best entry of a segment first
    best: bool = False  # write the words of the best entry, a line for every segment, in place of the list
    device: str = "cpu"


@dataclass
class Summary:
    """What was done."""

    segments: int = 0
    entries: int = 0
    warnings: list[str] = field(default_factory=list)
    features: dict[str, str] = field(default_factory=dict)  # what is told of each, by label


def rescore(options: Options, on_read: Callable[[int], object] | None = None) -> Summary:
    """Add the features of models to every entry of an n-best list, and recompute totals or choose, as asked.

    Entries keep their order unless they are to be sorted. ``out`` appears under its name only when it is complete. Raises
    InputError, with the line, for a bad list, ModelError for a bad model, OptionError for options that do not fit.
    """
    _check_options(options)
    name = display_name(options.nbest)
    weights = _weights(options.weights)
    sources = None if options.source is None else _sources(options.source)
    summary = Summary()
    scorers = list(_scorers(options, sources, summary))
    with (
        open_input(options.nbest, on_read) as stream,
        row_output(options.out) as output,
        contextlib.closing(_blocks(read_entries(read_rows(stream), name))) as blocks,
    ):
        scored = (_with_features(block, scorers, options.replace, weights, name) for block in blocks)
        segments = _segments(scored, name, options, summary)
        pieces = _best(segments, name, sources) if options.best else ([e.line() for e in entries] for _, entries in segments)
        for lines in _joined(pieces):
            data = b"".join(lines)
            output.write(gzip_member(data, GZIP_LEVEL) if options.out.endswith(".gz") else data, len(lines))
        if not summary.entries:
            raise InputError(name, "is empty", "pass an n-best list")
    for scorer in scorers:
        label, tally = scorer.label.decode(), scorer.tally
        summary.features[label] = tally.line()
        if misfit := tally.misfit():
            summary.warnings.append(f"{label}: {misfit}")
    return summary


def _segments(
    blocks: Iterable[list[Entry]], name: str, options: Options, summary: Summary
) -> Iterator[tuple[int, list[Entry]]]:  # fmt: skip
    """Yield the segments and their entries, ranked if that is asked for."""
    for block in blocks:
        summary.entries += len(block)
        for segment, group in groupby(block, key=lambda entry: entry.segment):
            summary.segments += 1
            entries = list(group)
            yield segment, _ranked(entries, name) if options.sort or options.best else entries


def _best(
    segments: Iterable[tuple[int, list[Entry]]], name: str, sources: Sequence[Sequence[bytes]] | None
) -> Iterator[list[bytes]]:  # fmt: skip
    """Yield a line for every segment, an empty one where the list has no entry: there the source was empty."""
    written = 0
    for segment, (best, *_) in segments:
        if sources is not None and segment >= len(sources):
            raise beyond(segment, len(sources)).at(name, best.number)
        for start in range(written, segment, AT_ONCE):
            yield [b"\n"] * min(AT_ONCE, segment - start)
        yield [b" ".join(of_each([best], name, Entry.hypothesis)[0]) + b"\n"]
        written = segment + 1
    yield [b"\n"] * (len(sources) - written if sources is not None else 0)


def _joined(pieces: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield the same lines, AT_ONCE or more at a time."""
    lines: list[bytes] = []
    for piece in pieces:
        lines += piece
        if len(lines) >= AT_ONCE:
            yield lines
            lines = []
    if lines:
        yield lines


def _sources(path: str) -> list[list[bytes]]:
    with open_input(path) as stream:
        return [words(line.rstrip(b"\r\n")) for line in read_rows(stream)]


def _check_options(options: Options) -> None:
    if [options.nbest, options.source, options.weights].count("-") > 1:
        raise OptionError("standard input is named twice; give a name to one of the files")
    if options.out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
        raise OptionError(f"cannot write {options.out}: Moses reads plain lists and .gz")
    if not (options.models or options.weights or options.sort or options.best):
        raise OptionError("nothing to do; name a model with -m, or ask for --weights, --sort or --best")
    if options.sort and options.best:
        raise OptionError("--sort writes the list, --best one hypothesis a segment; choose one of them")
    if options.best and options.models and not options.weights:
        raise OptionError("--best goes by the totals of the list, in which -m does not count; give --weights, or leave -m out")
    if len(options.labels) > len(options.models):
        raise OptionError(f"{len(options.labels)} labels for {len(options.models)} models; --label names those of -m, in order")
    for label in options.labels:
        check_label(os.fsencode(label))


def _weights(path: str | None) -> Mapping[bytes, Sequence[float]] | None:
    if path is None:
        return None
    return read_weights(read_ini(path), display_name(path))


def _scorers(options: Options, sources: Sequence[Sequence[bytes]] | None, summary: Summary) -> Iterator[EntryScorer]:
    """Load the models, each as the feature that it adds. Raises OptionError for a label that stands twice."""
    taken: dict[str, str] = {}
    numbers = {"CSLM": 0, "RNN": 0}
    for i, directory in enumerate(options.models):
        of_text = Config(directory).model_of() == TEXT
        base = "CSLM" if of_text else "RNN"
        label = options.labels[i] if i < len(options.labels) else f"{base}{numbers[base]}"
        numbers[base] += 1
        if label in taken:
            raise OptionError(f"-m {taken[label]} and -m {directory} have the label {label}; name others with --label")
        taken[label] = directory
        if of_text:
            lm = language_model.load(directory)
            summary.warnings += [f"{directory}: {warning}" for warning in language_model.warnings(lm)]
            yield TextFeature(label.encode(), NgramScorer(lm, options.device))
        elif sources is None:
            raise OptionError(f"-m {directory} scores phrase pairs; give the text that was decoded with --source")
        else:
            yield PairFeature(label.encode(), Scorer(checkpoint.load(directory), options.device), sources)


def _blocks(entries: Iterator[Entry]) -> Generator[list[Entry]]:
    """Cut the entries into blocks of whole segments."""
    block: list[Entry] = []
    for entry in entries:
        if len(block) >= AT_ONCE and entry.segment != block[-1].segment:
            yield block
            block = []
        block.append(entry)
    if block:
        yield block


def _with_feature(entries: list[Entry], scorer: EntryScorer, replace: bool, name: str) -> list[Entry]:
    values = iter(scorer.values(entries, name).tolist())
    return of_each(entries, name, lambda entry: entry.with_feature(scorer.label, next(values), replace))


def _with_features(
    entries: list[Entry], scorers: Sequence[EntryScorer], replace: bool,
    weights: Mapping[bytes, Sequence[float]] | None, name: str,
) -> list[Entry]:  # fmt: skip
    """Return the entries with all features added and totals recomputed. Raises InputError, with the line, for a bad one."""
    for scorer in scorers:
        entries = _with_feature(entries, scorer, replace, name)
    if weights is not None:
        entries = of_each(entries, name, lambda entry: entry.with_total(weighted_total(entry.features(), weights)))
    return entries


def _ranked(entries: Sequence[Entry], name: str) -> list[Entry]:
    """Return the entries of a segment by total, the best first, equal ones as they stood. Raises InputError for a bad total."""
    totals = of_each(entries, name, Entry.total)
    ranked = [entry for _, entry in sorted(zip(totals, entries, strict=True), key=lambda item: -item[0])]
    return [entry._replace(end=entry.end or b"\n") for entry in ranked]  # the last line of a file may lack it
