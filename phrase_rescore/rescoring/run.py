"""From an n-best list to the same list with more features, the whole of ``phrase-rescore rescore``."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import TypeVar

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.outputs import gzip_member
from phrase_rescore.files.paths import check_one_stream
from phrase_rescore.files.row_outputs import row_output
from phrase_rescore.messages import counted
from phrase_rescore.moses.hypotheses import Entry, check_label, of_each, read_entries
from phrase_rescore.moses.table import words
from phrase_rescore.nn.storage import PAIRS, Config
from phrase_rescore.progress import Progress
from phrase_rescore.rescoring.features import EntryScorer, FileFeature, Texts, load_models, source_of
from phrase_rescore.rescoring.totals import Totals

T = TypeVar("T")
BLOCK_ENTRIES = 4096  # entries, and what is left of the last one's segment


@dataclass(frozen=True)
class RescoreOptions:
    """The options. Without ``models`` and ``scores`` nothing is added to the list."""

    nbest: str
    out: str
    models: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # of models and files, in this order; those that are missing are CSLM0, RNN0, SCORE0, …
    source: str | None = None
    weights: str | None = None  # recompute the totals by this ini
    scores: tuple[str, ...] = ()  # files of a number an entry
    log: bool = False  # which are natural logarithms
    whole: bool = False  # models of pairs score source and hypothesis as one pair
    replace: bool = False
    sort: bool = False  # by total, the best entry of a segment first
    best: bool = False  # write the words of the best entry, a line for every segment, in place of the list

    def check(self) -> None:
        """Raise OptionError for options that do not fit together."""
        check_one_stream(self.nbest, self.source, self.weights, *self.scores)
        if self.out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
            raise OptionError(f"cannot write {self.out}: Moses reads plain lists and .gz")
        if not (self.models or self.scores or self.weights or self.sort or self.best):
            raise OptionError("nothing to do; name a model with -m, or ask for --weights, --sort or --best")
        if self.log and not self.scores:
            raise OptionError("--log says that --scores has logarithms; add --scores, or leave --log out")
        if self.sort and self.best:
            raise OptionError("--sort writes the list, --best one hypothesis a segment; choose one of them")
        if self.best and (self.models or self.scores) and not self.weights:
            option = "-m" if self.models else "--scores"
            hint = f"give --weights, or leave {option} out"
            raise OptionError(f"--best needs --weights: the scores of {option} have no weight in the totals; {hint}")
        if len(self.labels) > (new := len(self.models) + len(self.scores)):
            found = f"{len(self.labels)} labels for {counted(new, 'feature')}"
            raise OptionError(f"{found}; --label names those of -m, then those of --scores, in order")
        for label in self.labels:
            check_label(os.fsencode(label))


@dataclass
class RescoreSummary:
    """Counts of what was rescored."""

    segments: int = 0
    entries: int = 0
    warnings: list[str] = field(default_factory=list)
    features: dict[str, str] = field(default_factory=dict)  # a line of the report for each, by label


def rescore(options: RescoreOptions, device: str, on_read: Progress | None) -> RescoreSummary:
    """Add features to every entry, renew totals or choose. Raises InputError, with the line, ModelError, OptionError."""
    options.check()
    totals = None if options.weights is None else Totals(options.weights)
    sources = None if options.source is None else _read_sources(options.source)
    summary = RescoreSummary()
    features = _features(options, sources, device, summary.warnings)
    files = [feature.file for feature in features.values() if isinstance(feature, FileFeature)]
    with ExitStack() as opened:
        for file in files:
            opened.enter_context(file)
        stream, output = opened.enter_context(open_input(options.nbest, on_read)), opened.enter_context(row_output(options.out))
        entries = read_entries(read_rows(stream), display_name(options.nbest))
        for lines in _gathered(_lines(options, entries, features, totals, sources, summary)):
            data = b"".join(lines)
            output.write(gzip_member(data, "fast") if options.out.endswith(".gz") else data, len(lines))
        if not summary.entries:
            raise InputError(display_name(options.nbest), "is empty", "pass an n-best list")
        for file in files:
            file.end()
    for label, scorer in features.items():
        if scorer.tally is not None:
            summary.features[label], warnings = scorer.tally.lines()
            summary.warnings += [f"{label}: {warning}" for warning in warnings]
    summary.warnings += [] if totals is None else totals.warnings()
    return summary


def _read_sources(path: str) -> list[list[bytes]]:
    with open_input(path) as stream:
        return [words(line.rstrip(b"\r\n")) for line in read_rows(stream)]


def _features(options: RescoreOptions, sources: Texts | None, device: str, warnings: list[str]) -> dict[str, EntryScorer]:
    """Return the scorer of every feature, by label. Raises OptionError if two have the same label."""
    if options.whole and all(Config(directory).model_of() != PAIRS for directory in options.models):
        raise OptionError("--whole is for models of pairs, and -m names none; leave it out")
    found, origins, numbers, labels = dict[str, EntryScorer](), dict[str, str](), Counter[str](), iter(options.labels)
    of_models = load_models(options.models, sources, options.whole, device, warnings)
    of_files = ((f"--scores {path}", "SCORE", FileFeature(path, options.nbest, options.log)) for path in options.scores)
    for origin, usual, scorer in chain(of_models, of_files):
        label = next(labels, f"{usual}{numbers[usual]}")
        if label in found:
            raise OptionError(f"{origins[label]} and {origin} have the label {label}; name others with --label")
        found[label], origins[label] = scorer, origin
        numbers[usual] += 1
    return found


def _lines(
    options: RescoreOptions, entries: Iterable[Entry], features: Mapping[str, EntryScorer], totals: Totals | None,
    sources: Texts | None, summary: RescoreSummary,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Yield the lines of every segment: its entries, or the words of the best one, none for a segment without entries."""
    name, written, found = display_name(options.nbest), 0, 0  # found: segments that are not empty
    for block in _gathered(list(group) for _, group in groupby(entries, key=lambda entry: entry.segment)):
        for label, scorer in features.items():
            block = _with_feature(block, label.encode(), iter(scorer.values(block, name).tolist()), options.replace, name)
        if totals is not None:
            block = totals.renewed(block, name)
        summary.entries += len(block)
        for segment, group in groupby(block, key=lambda entry: entry.segment):
            summary.segments += 1
            ranked = list(group)
            if options.sort or options.best:
                ranked = _ranked(ranked, name)
            if not options.best:
                yield [entry.line() for entry in ranked]
                continue
            if sources is None or of_each(ranked[:1], name, lambda entry: source_of(entry, sources))[0]:
                found += 1
            for start in range(written, segment, BLOCK_ENTRIES):
                yield [b"\n"] * min(BLOCK_ENTRIES, segment - start)
            yield [b" ".join(of_each(ranked[:1], name, Entry.hypothesis)[0]) + b"\n"]
            written = segment + 1
    if not options.best:
        return
    n = written if sources is None else sum(map(bool, sources))
    lacking, of = n - found, f"segment{'s' * (n - found > 1)} before the last"
    if sources is not None:
        yield [b"\n"] * (len(sources) - written)
        of = f"of {counted(n, 'non-empty line')} of {display_name(options.source or '')}"
        if 2 * lacking > n:
            hint = "give the text that was decoded, cut to the segments of the list, with --source"
            raise InputError(name, f"entries for {found:,} {of}", hint)
    if lacking:
        summary.warnings.append(f"no entry for {lacking:,} {of}; the output has empty lines there")


def _with_feature(entries: list[Entry], label: bytes, values: Iterator[list[float]], replace: bool, name: str) -> list[Entry]:
    return of_each(entries, name, lambda entry: entry.with_feature(label, next(values), replace))


def _gathered(groups: Iterable[list[T]]) -> Iterator[list[T]]:
    """Yield the items of the groups, whole groups of BLOCK_ENTRIES items or more at a time."""
    gathered: list[T] = []
    for group in groups:
        gathered += group
        if len(gathered) >= BLOCK_ENTRIES:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _ranked(entries: Sequence[Entry], name: str) -> list[Entry]:
    """Return the entries of a segment by total, the best first, equal ones as they stood. Raises InputError for a bad total."""
    totals = of_each(entries, name, Entry.total)
    ranked = [entry for _, entry in sorted(zip(totals, entries, strict=True), key=lambda item: -item[0])]
    return [entry._replace(end=entry.end or b"\n") for entry in ranked]  # the last line of a file may lack it
