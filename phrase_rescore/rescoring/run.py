"""From an n-best list to the same list with more features, the whole of ``phrase-rescore rescore``."""

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice

from phrase_rescore.data.log_probs import check_finite
from phrase_rescore.errors import OptionError, RowError
from phrase_rescore.files.inputs import ScoreFiles, display_name, open_input, read_rows
from phrase_rescore.files.outputs import asks_for_gzip, gzip_member
from phrase_rescore.files.paths import check_apart
from phrase_rescore.files.row_outputs import RowOutput, row_output
from phrase_rescore.messages import Progress, Say, counted, printable, silent
from phrase_rescore.moses.hypotheses import Entry, check_label, map_entries, read_entries, weighted_total
from phrase_rescore.moses.ini import read_weights
from phrase_rescore.moses.parallel import Doubts
from phrase_rescore.rescoring.features import ITEMS, Feature, FileFeature, Values, labelled
from phrase_rescore.rescoring.sources import Decoded, Texts, read_source, word_counts

Numbers = Mapping[bytes, Sequence[float]]  # of labels


def total_by(features: Numbers, weights: Numbers, missing: Counter[bytes] | None = None) -> float:
    """Return Σ weight · value. Raises RowError for a feature without its weights, but counts sparse ones in ``missing``."""
    flat, of_flat, hint = list[float](), list[float](), "is this the file of weights of this list?"
    for label, values in features.items():
        if (given := weights.get(label)) is None:
            if missing is None or b"_" not in label or len(values) != 1:
                raise _no_weight(label)
            missing[label] += 1
            continue
        if len(given) != len(values):
            raise RowError(f"{counted(len(values), 'value')} of {printable(label)} and {counted(len(given), 'weight')}", hint)
        flat += values
        of_flat += given
    if not math.isfinite(total := weighted_total(flat, of_flat)):
        raise RowError("the total of its weights and values is not a finite number", hint)
    return total


def _no_weight(label: bytes) -> RowError:
    name = printable(label)
    return RowError(f"no weight of the feature {name}", f"name it in the file of --weights; '{name}= 0' leaves it out")


class Totals:
    """New totals by the weights of an ini, and which labels of the list and of the ini do not meet."""

    def __init__(self, path: str, doubts: Doubts) -> None:
        self._weights, self._name, self._doubts = read_weights(path), display_name(path), doubts
        self._has_sparse = any(b"_" in label for label in self._weights)
        self._missing, self._met = Counter[bytes](), set[bytes]()
        self._entries = 0

    def renewed(self, entries: list[Entry], name: str) -> list[Entry]:
        """Return the entries with new totals. Raises InputError for a feature without a weight that is not sparse.

        Dense is what has no underscore, several values, or stands in every entry of the first block. A list that lacks
        features with weights there is doubted.
        """

        def renew(entry: Entry) -> Entry:
            features = entry.features()
            self._met.update(features)
            return entry.with_total(total_by(features, self._weights, self._missing if self._has_sparse else None))

        renewed = map_entries(entries, name, renew)
        if not self._entries and (lacking := self._lacking()):
            found = f"the list lacks {_labels(lacking)}, which {self._name} has weights for"
            self._doubts.of(name, found, "add them as before tune, with -m or --scores")
        if not self._entries and entries[0].segment < entries[-1].segment:
            for label, n in self._missing.items():
                if n == len(entries):
                    raise _no_weight(label).at(name, entries[0].number)
        self._entries += len(entries)
        return renewed

    def warnings(self) -> list[str]:
        """Return a warning for labels that only the list has."""
        found = f"no weight for {_labels(self._missing)}, counted as 0 as sparse features are in Moses"
        return [found] if self._missing else []

    def _lacking(self) -> list[bytes]:
        """Return labels that only the ini has. A list may lack some of the sparse ones, and what Moses does not tune."""
        some_sparse = any(b"_" in label for label in self._met)
        unmet = [label for label, weights in self._weights.items() if label not in self._met and any(weights)]
        return [label for label in unmet if not ((b"_" in label and some_sparse) or label.startswith(b"UnknownWordPenalty"))]


def _labels(labels: Collection[bytes]) -> str:
    return f"{counted(len(labels), 'feature')} ({', '.join(map(printable, islice(labels, 5)))}{', …' * (len(labels) > 5)})"


BLOCK_ENTRIES = 16384  # entries, and what is left of the last one's segment


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
    replace: bool = False
    sort: bool = False  # by total, the best entry of a segment first
    best: bool = False  # write the words of the best entry, a line for every segment, in place of the list
    force: bool = False  # only warn of files that hardly can belong together

    def __post_init__(self) -> None:
        """Raise OptionError for options that do not fit together, before anything heavy is loaded."""
        scores = [("--scores", path) for path in self.scores]
        reads = [("NBEST", self.nbest), ("--source", self.source), ("--weights", self.weights), *scores]
        check_apart(reads, [("-o", self.out)])
        asks_for_gzip(self.out, "Moses reads plain lists and .gz")
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


def rescore(options: RescoreOptions, device: str, threads: int, on_read: Progress | None, warn: Say = silent) -> RescoreSummary:
    """Add features to every entry, renew totals or choose. Raises InputError, with the line, ModelError, OptionError.

    Files are compared before the work, and ``warn`` hears at once of what was found.
    """
    doubts = Doubts(options.force, warn)
    totals = None if options.weights is None else Totals(options.weights, doubts)
    source = None if options.source is None else Decoded(options.source, read_source(options.source, warn), doubts)
    if source is not None:
        source.check_list(options.nbest)
    ScoreFiles(options.scores, options.nbest, ITEMS).check_lines()
    features = labelled(_features(options, None if source is None else source.sources, device, threads), options.labels)
    if source is not None:
        _check_source(features, word_counts(source.sources), display_name(source.path), warn)
    summary = _rescore_list(options, features, totals, source, on_read)
    for label, feature in features.items():
        summary.warnings += [f"{label}: {warning}" for warning in feature.warnings()]
    if totals is not None:
        summary.warnings += totals.warnings()
    return summary


def _rescore_list(
    options: RescoreOptions, features: Mapping[str, Feature], totals: Totals | None, source: Decoded | None,
    on_read: Progress | None,
) -> RescoreSummary:  # fmt: skip
    """Read the list, a block at a time, and write what is asked for."""
    name, summary, best, reads = display_name(options.nbest), RescoreSummary(), dict[int, bytes](), list[int]()
    files = [feature.file for feature in features.values() if isinstance(feature, FileFeature)]

    def choose(entry: Entry) -> None:
        best[entry.segment] = b" ".join(entry.hypothesis())

    with ExitStack() as opened:
        for file in files:
            opened.enter_context(file)
        stream = opened.enter_context(open_input(options.nbest, reads.append))
        output = opened.enter_context(row_output(options.out))
        for block in _blocks(read_entries(read_rows(stream), name)):
            if source is not None:
                source.check_block(_firsts(block), name)
            entries = _rescored(block, features, totals, options, name)
            firsts = _firsts(entries)
            summary.entries += len(entries)
            summary.segments += len(firsts)
            if options.best:
                map_entries(firsts, name, choose)
            else:
                _write(output, [entry.line() for entry in entries], options.out)
            if on_read:
                on_read(sum(reads))  # what is done, not what is read: to read takes no time
            reads.clear()
        for file in files:
            file.end()
        if options.best:
            summary.warnings += _lacking(best, source, name)
            _write_best(output, best, max(best) + 1 if source is None else len(source.sources), options.out)
    return summary


def _lacking(best: Mapping[int, bytes], source: Decoded | None, name: str) -> list[str]:
    """Return a warning if segments with words lack entries. If most lines of the source do, the list is doubted."""
    if source is None:
        to_translate, translated = max(best) + 1, len(best)
    else:
        to_translate = sum(map(bool, source.sources))
        translated = sum(1 for segment in best if source.sources[segment])
    lacking = to_translate - translated
    if source is not None and 2 * lacking > to_translate:
        found = f"entries for {translated:,} of {counted(to_translate, 'line')} of the source"
        source.doubts.of(name, found, "give the text that was decoded, cut to the segments of the list, with --source")
    found = f"no entry for {lacking:,} of {counted(to_translate, 'segment')}"
    numbers = "; the list begins with 1, and numbers begin at 0" if min(best) == 1 else ""
    return [f"{found}; the output has empty lines there{numbers}"] if lacking else []


def _write_best(output: RowOutput, best: Mapping[int, bytes], lines: int, out: str) -> None:
    """Write the best words of every segment, a line each, empty without entries."""
    for start in range(0, lines, BLOCK_ENTRIES):  # some at a time: a list may skip millions of segments
        segments = range(start, min(start + BLOCK_ENTRIES, lines))
        _write(output, [best.get(segment, b"") + b"\n" for segment in segments], out)


def _firsts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the first entry of every segment."""
    return [entry for i, entry in enumerate(entries) if not i or entry.segment != entries[i - 1].segment]


def _check_source(features: Mapping[str, Feature], seen: Counter[bytes], name: str, warn: Say) -> None:
    """Warn of models that do not know the words of the source. Raises InputError if these are words of the target."""
    for label, feature in features.items():
        for warning in feature.check_source(seen, name):
            warn(f"{name}: {label}: {warning}")


def _features(options: RescoreOptions, sources: Texts | None, device: str, threads: int) -> Iterator[Feature]:
    """Load what is to be added, in the order of its labels. Raises ModelError, OptionError."""
    if options.models:
        # here: torch takes a second, which a list without models need not wait for
        from phrase_rescore.rescoring.models import load_model
    for directory in options.models:
        yield load_model(directory, sources, device, threads)
    for path in options.scores:
        yield FileFeature(path, options.nbest, options.log)


def _blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries, BLOCK_ENTRIES or more at a time, those of a segment together."""
    block = list[Entry]()
    for entry in entries:
        if len(block) >= BLOCK_ENTRIES and entry.segment != block[-1].segment:
            yield block
            block = []
        block.append(entry)
    if block:
        yield block


def _rescored(
    entries: list[Entry], features: Mapping[str, Feature], totals: Totals | None, options: RescoreOptions, name: str
) -> list[Entry]:
    """Return the entries with their features and totals; those of a segment by total, if it is asked for."""
    for label, feature in features.items():
        values = feature.values(entries, name)
        check_finite(values.sum(1), name, [entry.number for entry in entries], label)
        entries = _with_feature(entries, label.encode(), values, options.replace, name)
    if totals is not None:
        entries = totals.renewed(entries, name)
    return _ranked(entries, name) if options.sort or options.best else entries


def _with_feature(entries: Sequence[Entry], label: bytes, values: Values, replace: bool, name: str) -> list[Entry]:
    rows = iter(values.tolist())
    return map_entries(entries, name, lambda entry: entry.with_feature(label, next(rows), replace))


def _ranked(entries: Sequence[Entry], name: str) -> list[Entry]:
    """Return the entries of each segment by total, the best first, equal ones as they stood. Raises InputError as ``total``."""
    totals = map_entries(entries, name, Entry.total)
    order = sorted(range(len(entries)), key=lambda i: (entries[i].segment, -totals[i]))
    return [entries[i]._replace(end=entries[i].end or b"\n") for i in order]  # the last line of a file may lack it


def _write(output: RowOutput, lines: Sequence[bytes], out: str) -> None:
    data = b"".join(lines)
    output.write(gzip_member(data, "fast") if out.endswith(".gz") else data, len(lines))
