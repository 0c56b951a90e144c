"""From an n-best list to the same list with more features, the whole of ``phrase-rescore rescore``."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.vocabulary import UNK, misfits
from phrase_rescore.errors import InputError, OptionError, RowError, counted
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.files.outputs import gzip_member
from phrase_rescore.files.row_outputs import row_output
from phrase_rescore.lm import checkpoint as language_model
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.columns import MIN_LOG_P
from phrase_rescore.moses.hypotheses import Entry, check_cover, check_label, of_each, read_entries
from phrase_rescore.moses.table import check_factors, words
from phrase_rescore.moses.text import Sentences
from phrase_rescore.nn.storage import TEXT, Config
from phrase_rescore.rescoring.totals import Totals
from phrase_rescore.rnn import checkpoint
from phrase_rescore.rnn.scorer import Scorer

Pair = tuple[bytes, bytes]
T = TypeVar("T")
BLOCK_ENTRIES = 4096  # entries, and what is left of the last one's segment
GZIP_LEVEL = "fast"


def beyond(segment: int, sources: int) -> RowError:
    """Return the error of a segment that the source does not have."""
    return RowError(f"segment {segment}, and the source has {sources:,}", "give the text that was decoded with --source")


@dataclass
class ScorerTally:
    """What a scorer counts."""

    usual: float  # share of the words that were unknown in training
    asked: int = 0  # so many scores of n-grams or phrase pairs were needed,
    computed: int = 0  # and so many were computed
    words: int = 0
    unknown: int = 0  # words that the model does not know
    read: Sentences = field(default_factory=Sentences)

    def lines(self) -> tuple[str, list[str]]:
        """Return what is to be said, and warnings: of many unknown words, and of marks that were left out."""
        share, used = self.unknown / max(1, self.words), self.asked / max(1, self.computed)
        said = f"{share:.1%} of the words are unknown to the model; each score was computed once and used {used:.1f} times"
        return said, misfits(self.unknown, self.words, self.usual) + self.read.warnings()


class TextFeature:
    """log p of the hypothesis by a language model."""

    def __init__(self, scorer: NgramScorer) -> None:
        self._scorer = scorer
        self.tally = ScorerTally(scorer.lm.unk_share)

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return log p of the hypotheses: (entries, 1)."""
        tally = self.tally
        found = self._scorer.sentences(of_each(entries, name, lambda entry: tally.read.bare(entry.hypothesis())))
        tally.asked += len(found.log_probs)
        tally.computed = self._scorer.computed
        tally.words += len(found.log_probs) - len(entries)
        tally.unknown += int(found.unknown.sum())
        return found.sums()[:, None]


class PairFeature:
    """log p, at least -87.3 of a pair, and the number of unknown words, summed over the phrase pairs of the hypothesis."""

    def __init__(self, scorer: Scorer, sources: Sequence[Sequence[bytes]]) -> None:
        self._scorer, self._sources = scorer, sources
        self.tally = ScorerTally(scorer.checkpoint.unk_shares[0 if scorer.checkpoint.inverse else 1])

    def _pairs(self, entry: Entry) -> list[Pair]:
        """Return the phrase pairs of the hypothesis, those without a target left out."""
        if entry.segment >= len(self._sources):
            raise beyond(entry.segment, len(self._sources))
        source, derivation = self._sources[entry.segment], entry.derivation()
        check_cover(derivation, source)
        pairs = [(b" ".join(source[first : last + 1]), tgt) for first, last, tgt in derivation if tgt]
        for src, tgt in pairs:
            check_factors(src, tgt, self._scorer.checkpoint.factors)
        return pairs

    def values(self, entries: Sequence[Entry], name: str) -> NDArray[np.float64]:
        """Return the sums of log p and of unknown words: (entries, 2)."""
        places: dict[Pair, int] = {}
        which = [[places.setdefault(pair, len(places)) for pair in pairs] for pairs in of_each(entries, name, self._pairs)]
        of_pair = np.zeros((len(places), 2))
        if places:
            if not self.tally.computed:  # the first ones, before anything is written
                self._scorer.checkpoint.refuse_swapped(name, [src for src, _ in places], [tgt for _, tgt in places])
            encoded = self._scorer.encode_phrases([src for src, _ in places], [tgt for _, tgt in places])
            of_pair[:, 0] = np.maximum(self._scorer.log_probs(encoded), MIN_LOG_P)
            predicted = self._scorer.checkpoint.for_model(encoded).tgt
            of_pair[:, 1] = predicted.counts_of(UNK)
            self.tally.words += len(predicted.ids)
            self.tally.unknown += int(of_pair[:, 1].sum())
        self.tally.asked += sum(map(len, which))
        self.tally.computed += len(places)
        return np.stack([of_pair[pairs].sum(0) for pairs in which])


EntryScorer = TextFeature | PairFeature


@dataclass(frozen=True)
class RescoreOptions:
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

    def check(self) -> None:
        """Raise OptionError for options that do not fit together."""
        if [self.nbest, self.source, self.weights].count("-") > 1:
            raise OptionError("standard input is named twice; give a name to one of the files")
        if self.out.endswith((".bz2", ".xz", ".zst", ".zip", ".lz4")):
            raise OptionError(f"cannot write {self.out}: Moses reads plain lists and .gz")
        if not (self.models or self.weights or self.sort or self.best):
            raise OptionError("nothing to do; name a model with -m, or ask for --weights, --sort or --best")
        if self.sort and self.best:
            raise OptionError("--sort writes the list, --best one hypothesis a segment; choose one of them")
        if self.best and self.models and not self.weights:
            hint = "give --weights, or leave -m out"
            raise OptionError(f"--best goes by the totals of the list, in which -m does not count; {hint}")
        if len(self.labels) > len(self.models):
            raise OptionError(f"{len(self.labels)} labels for {len(self.models)} models; --label names those of -m, in order")
        for label in self.labels:
            check_label(os.fsencode(label))


@dataclass
class RescoreSummary:
    """What was done."""

    segments: int = 0
    entries: int = 0
    warnings: list[str] = field(default_factory=list)
    features: dict[str, str] = field(default_factory=dict)  # what is said of each, by label


def rescore(options: RescoreOptions, device: str = "cpu", on_read: Callable[[int], object] | None = None) -> RescoreSummary:
    """Add the features of models to every entry of an n-best list, and recompute totals or choose, as asked.

    Raises InputError, with the line, for a bad list, ModelError for a bad model, OptionError for options that do not fit.
    """
    options.check()
    totals = None if options.weights is None else Totals(options.weights)
    sources = None if options.source is None else _read_sources(options.source)
    summary = RescoreSummary()
    features = dict(_features(options, sources, device, summary))
    with open_input(options.nbest, on_read) as stream, row_output(options.out) as output:
        entries = read_entries(read_rows(stream), display_name(options.nbest))
        for lines in _gathered(_lines(options, entries, features, totals, sources, summary)):
            data = b"".join(lines)
            output.write(gzip_member(data, GZIP_LEVEL) if options.out.endswith(".gz") else data, len(lines))
        if not summary.entries:
            raise InputError(display_name(options.nbest), "is empty", "pass an n-best list")
    for label, scorer in features.items():
        summary.features[label], warnings = scorer.tally.lines()
        summary.warnings += [f"{label}: {warning}" for warning in warnings]
    summary.warnings += [] if totals is None else totals.warnings()
    return summary


def _read_sources(path: str) -> list[list[bytes]]:
    with open_input(path) as stream:
        return [words(line.rstrip(b"\r\n")) for line in read_rows(stream)]


def _features(
    options: RescoreOptions, sources: Sequence[Sequence[bytes]] | None, device: str, summary: RescoreSummary
) -> Iterator[tuple[str, EntryScorer]]:  # fmt: skip
    """Load the models: the scorer of every feature, by label. Raises OptionError if two have the same label."""
    taken, numbers = dict[str, str](), {"CSLM": 0, "RNN": 0}
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
            yield label, TextFeature(NgramScorer(lm, device))
        elif sources is None:
            raise OptionError(f"-m {directory} scores phrase pairs; give the text that was decoded with --source")
        else:
            yield label, PairFeature(Scorer(checkpoint.load(directory), device), sources)


def _lines(
    options: RescoreOptions, entries: Iterable[Entry], features: Mapping[str, EntryScorer],
    totals: Totals | None, sources: Sequence[Sequence[bytes]] | None, summary: RescoreSummary,
) -> Iterator[list[bytes]]:  # fmt: skip
    """Yield the lines of every segment: its entries, or the words of the best one, none for a segment without entries."""
    name, written, lacking = display_name(options.nbest), 0, 0

    def without(first: int, end: int) -> int:
        """Return how many segments that are not empty there are, none of which has an entry."""
        return end - first if sources is None else sum(map(bool, sources[first:end]))

    for block in _gathered(list(group) for _, group in groupby(entries, key=lambda entry: entry.segment)):
        for label, scorer in features.items():
            block = _with_feature(block, label.encode(), scorer.values(block, name).tolist(), options.replace, name)
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
            if sources is not None and segment >= len(sources):
                raise beyond(segment, len(sources)).at(name, ranked[0].number)
            lacking += without(written, segment)
            for start in range(written, segment, BLOCK_ENTRIES):
                yield [b"\n"] * min(BLOCK_ENTRIES, segment - start)
            yield [b" ".join(of_each(ranked[:1], name, Entry.hypothesis)[0]) + b"\n"]
            written = segment + 1
    if options.best and sources is not None:
        yield [b"\n"] * (len(sources) - written)
        lacking, n = lacking + without(written, len(sources)), without(0, len(sources))
        of = f"of {counted(n, 'non-empty line')} of {display_name(options.source or '')}"
        if 2 * lacking > n:
            hint = "give the text that was decoded, cut to the segments of the list, with --source"
            raise InputError(name, f"entries for {n - lacking:,} {of}", hint)
    else:
        of = f"segment{'s' * (lacking > 1)} before the last"
    if lacking:
        summary.warnings.append(f"no entry for {lacking:,} {of}; the output has empty lines there")


def _with_feature(entries: list[Entry], label: bytes, values: list[list[float]], replace: bool, name: str) -> list[Entry]:
    of_each_entry = iter(values)
    return of_each(entries, name, lambda entry: entry.with_feature(label, next(of_each_entry), replace))


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
