"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline.

A system has one output on a set, or one for each of several tuning runs. Scores and bootstrap are the sacrebleu command's.
"""

import functools
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.evaluation.corpora import USAGE, SetFiles, Text, check_lines, check_source, read_lines, segments_of
from phrase_rescore.evaluation.counts import Basis, EvaluationSettings, OutputStatistics, read_output, write_statistics
from phrase_rescore.evaluation.examples import Examples, make_examples
from phrase_rescore.evaluation.metrics import METRICS, Metric, Segments, sacrebleu_version
from phrase_rescore.evaluation.significance import Noise, bootstrap_p_values, pooled, randomization_p_values
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import Path, check_apart, check_one_stream
from phrase_rescore.messages import printable, shown
from phrase_rescore.moses.text import Look, look, mismatch
from phrase_rescore.moses.tokenizer import check_language, detokenized, sacremoses_version


@dataclass(frozen=True)
class SystemScore:
    """A system on a set under a metric: the score of every run; against the baseline, difference of means and p values."""

    runs: tuple[float, ...]
    difference: float | None = None
    p_bootstrap: float | None = None  # None: not one output against one
    p_randomization: float | None = None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.runs)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the runs; None of a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


@dataclass(frozen=True)
class SetScores:
    """The scores on a set, ``systems[name][metric]``; a system without output on this set is not among them."""

    files: SetFiles
    basis: Basis
    signatures: dict[str, str]
    systems: dict[str, dict[str, SystemScore]]
    examples: dict[str, Examples]  # of the systems that are compared with the baseline, if they were asked for

    def noise(self) -> dict[str, Noise]:
        """Return the noise of tuning by metric; nothing if every system has one run."""
        found = {metric: pooled(of[metric].runs for of in self.systems.values()) for metric in self.signatures}
        return {metric: noise for metric, noise in found.items() if noise}


@dataclass(frozen=True)
class Evaluation:
    """The scores of all systems on all sets."""

    settings: EvaluationSettings
    baseline: str
    systems: tuple[str, ...]  # in the order in which they were named
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


class _Set:
    """The files of a set, read. Raises OptionError and InputError for files that do not go together."""

    def __init__(self, files: SetFiles, settings: EvaluationSettings) -> None:
        self.files, self.settings = files, settings
        read = {path: read_output(path) for path in dict.fromkeys(files.paths())}
        texts = {path: output.segments for path, output in read.items() if isinstance(output, Text)}
        phrases = {path: output.phrases for path, output in read.items() if isinstance(output, Text)}
        counts = {path: output for path, output in read.items() if isinstance(output, OutputStatistics)}
        if not_text := [display_name(path) for path in files.references if path in counts]:
            found = f"{not_text[0]} has statistics, but is the reference of set '{files.name}'"
            raise OptionError(f"{found}; leave it out, or name a reference")
        if texts and not files.references:
            found = f"set '{files.name}' has no reference, but {display_name(next(iter(texts)))} is text, not statistics"
            raise OptionError(f"{found}; {USAGE}")
        if settings.examples and counts:
            raise OptionError(f"--examples shows text, and {display_name(next(iter(counts)))} has statistics; give the output")
        first = next(iter(read))  # a reference, if there is one
        check_lines(read)
        self.warnings = list(_empty_lines(files, texts))  # (file, what about it)
        if settings.detokenize:
            language = settings.detokenize
            texts = {path: detokenized(segments, language, display_name(path)) for path, segments in texts.items()}
        elif texts:
            self.warnings += _warnings(first, {path: look(segments) for path, segments in texts.items()}, settings)
        self.texts = {path: Text(segments, phrases[path]) for path, segments in texts.items()}
        self.references = tuple(texts[path] for path in files.references)  # none where all outputs are statistics
        self.basis = Basis.of(self.references, settings) if files.references else counts[first].basis
        against = ", ".join(map(display_name, files.references)) or f"those of {display_name(first)}"
        for path, counted in counts.items():
            self.warnings += [(path, warning) for warning in _check_scoring(counted.basis, display_name(path), settings)]
            if counted.basis.references_sha256 != self.basis.references_sha256:
                hint = "figures against different references cannot be compared"
                raise InputError(display_name(path), f"counted against other references than {against}", hint)
        every = texts | counts
        self.outputs = {system: [every[path] for path in paths] for system, paths in files.systems.items()}

    def scores(self, baseline: str, on_output: Callable[[], object], path: Path | None, sources: Segments | None) -> SetScores:
        """Score every output, and compare the systems with the baseline; write the statistics of the only output."""
        settings, metrics = self.settings, self.settings.make_metrics(self.references)
        count_once = functools.cache(lambda text: OutputStatistics.of(text, metrics, self.basis))  # TER takes seconds

        def counted(run: Segments | OutputStatistics) -> OutputStatistics:
            on_output()
            return run if isinstance(run, OutputStatistics) else count_once(run)

        def score(name: str, runs: Sequence[OutputStatistics]) -> SystemScore:
            return SystemScore(tuple(metrics[name].score_of(run.counts[name]) for run in runs))

        outputs = {system: [counted(run) for run in runs] for system, runs in self.outputs.items()}
        if path is not None:
            write_statistics(os.fspath(path), next(iter(outputs.values()))[0])
        systems = {system: {name: score(name, runs) for name in metrics} for system, runs in outputs.items()}
        base, scorers, seed = outputs.pop(baseline, []), [metric.score for metric in metrics.values()], settings.seed
        for system, own in outputs.items() if base else ():
            by_bootstrap = dict[str, float]()
            if len(base) == len(own) == 1:
                by_bootstrap = bootstrap_p_values(base[0].counts, own[0].counts, metrics, settings.resamples, seed)
            a, b = ([np.array([run.counts[name] for run in runs]) for name in metrics] for runs in (base, own))
            for name, p in zip(metrics, randomization_p_values(a, b, scorers, settings.shuffles, seed), strict=True):
                one = systems[system][name]
                difference = one.mean - systems[baseline][name].mean
                systems[system][name] = SystemScore(one.runs, difference, by_bootstrap.get(name), p)
        examples = dict[str, Examples]()
        if settings.examples and base:
            examples = {system: self._examples(baseline, system, base[0], own[0], sources) for system, own in outputs.items()}
        return SetScores(self.files, self.basis, settings.signatures(self.basis.references), systems, examples)

    def _examples(
        self, baseline: str, system: str, base: OutputStatistics, own: OutputStatistics, sources: Segments | None
    ) -> Examples:
        """Return examples of the first runs of both systems, whose counts these are."""
        metric = Metric("bleu", effective_order=True)
        bleu = [list(map(metric.score, counted.counts["BLEU"].tolist())) for counted in (base, own)]
        one, other = (self.texts[self.files.systems[name][0]] for name in (baseline, system))
        return make_examples(self.settings.examples, list(zip(*bleu, strict=True)), sources, self.references, (one, other))

    def read_source(self, path: str) -> Segments:
        """Read the source of the set. Raises InputError if it does not fit the references, or the phrases of an output."""
        source = segments_of(display_name(path), read_lines(path))
        check_lines({self.files.references[0]: self.references[0], path: source})
        for output, text in self.texts.items():
            if text.phrases:
                check_source(source, display_name(output), text.phrases)
        return source


def _check_scoring(basis: Basis, name: str, settings: EvaluationSettings) -> Iterator[str]:
    """Yield warnings of statistics by other programs. Raises InputError for text scored with other settings than these."""
    if basis.detokenize != settings.detokenize:
        if basis.detokenize is None:
            raise InputError(name, "counted on text that was not detokenized", "evaluate without --detokenize")
        language = printable(basis.detokenize)
        raise InputError(name, f"counted on text detokenized for {language}", f"evaluate with --detokenize {language}")
    for metric, signature in settings.signatures(basis.references).items():
        if metric not in basis.signatures:
            known = ",".join(option for option, known in METRICS.items() if known in basis.signatures)
            raise InputError(name, f"has no counts for {metric}", f"evaluate with --metrics {known}, or write it again")
        if basis.signatures[metric].rpartition("|version:")[0] != signature.rpartition("|version:")[0]:
            found = f"{metric} is {printable(basis.signatures[metric], 200)} there and {signature} here"
            raise InputError(name, found, "give the same --tokenize and --lowercase")
    if basis.sacrebleu != (installed := sacrebleu_version()):
        yield f"made with sacrebleu {printable(basis.sacrebleu)}, but {installed} is installed; figures may differ"
    if basis.detokenize is not None and basis.sacremoses != (installed := sacremoses_version()):
        by = "Moses' rules" if basis.sacremoses is None else f"sacremoses {printable(basis.sacremoses)}"
        yield f"detokenized by {by}, but sacremoses {installed} is installed; figures may differ"


def _empty_lines(files: SetFiles, texts: Mapping[str, Segments]) -> Iterator[tuple[str, str]]:
    """Yield a warning for outputs with empty lines where the reference has text. Raises InputError if they are over half."""
    whole = [any(segments) for segments in zip(*(texts[path] for path in files.references), strict=True)]
    for path in [path for path in texts if path not in files.references]:
        n = sum(full and not segment for full, segment in zip(whole, texts[path], strict=True))
        found = f"{n:,} of {sum(whole):,} lines are empty, but not in the reference"
        if 2 * n > sum(whole):
            raise InputError(display_name(path), found, "translate the whole set again")
        if n:
            yield path, f"{found}; they count as lost"


def _warnings(reference: str, looks: Mapping[str, Look], settings: EvaluationSettings) -> Iterator[tuple[str, str]]:
    """Yield warnings of texts whose scores mislead: (file, warning)."""
    its, tokenization = looks[reference], settings.tokenization
    for path, of_path in looks.items():
        if why := mismatch(its, of_path):
            yield path, f"{why} ({display_name(reference)}); --detokenize LANG makes both plain text"
    if its.escaped and "chrf" in settings.metrics:
        found = "the text has Moses' escapes such as &apos;, and chrF counts their characters"
        yield reference, f"{found}; undo them with --detokenize LANG"
    if "bleu" in settings.metrics and its.tokenized and tokenization in ("13a", "intl"):
        found = f"tokenized text, which BLEU tokenizes again ({tokenization})"
        yield reference, f"{found}; add --tokenize none or --detokenize LANG"
    if "bleu" in settings.metrics and its.tokenized is False and tokenization == "none":
        yield reference, "not tokenized, but BLEU takes text between blanks for words; add --tokenize 13a"


def evaluate(
    sets: Sequence[SetFiles], *, statistics: Path | None = None, source: Path | None = None,
    on_output: Callable[[], object] = lambda: None, **asked: Any,
) -> Evaluation:  # fmt: skip
    """Score every system on every set and compare it with the baseline, as ``phrase-rescore evaluate`` does.

    ``asked`` are fields of ``EvaluationSettings``. ``statistics`` names a file to write the counts of the only output to.
    ``source`` is the text that was translated, for examples. ``on_output`` is called for each output that has been scored. All
    files are read before. Raises TypeError for an unknown setting, OptionError for options that do not fit, InputError for
    files that cannot be used or compared.
    """
    settings = EvaluationSettings(**asked)
    for name, n in Counter(files.name for files in sets).items():
        if n > 1:
            raise OptionError(f"two sets are called '{name}'; give each another name")
    source = None if source is None else os.fspath(source)
    check_one_stream(*(path for files in sets for path in files.paths()), source)
    if statistics == "-":
        raise OptionError("--statistics - is standard output, which gets the table; name a file")
    if statistics is not None and [len(runs) for files in sets for runs in files.systems.values()] != [1]:
        raise OptionError("--statistics is for one output; give one set with one system and one output")
    if statistics is not None:
        check_apart([("--set", path) for path in sets[0].paths()], [("--statistics", os.fspath(statistics))])
    if settings.examples and "bleu" not in settings.metrics:
        raise OptionError("--examples takes segments by their BLEU; add bleu to --metrics")
    if source is not None and not (settings.examples and len(sets) == 1):
        raise OptionError("--source is for the examples of one set; give --examples N and one --set, or leave --source out")
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    baseline = settings.baseline or systems[0]
    if baseline not in systems:
        raise OptionError(f"no system is called {shown(baseline)}; --baseline is one of: {', '.join(systems)}")
    if settings.examples and len(systems) < 2:
        raise OptionError("--examples compares systems with a baseline; name two systems")
    read = [_Set(files, settings) for files in sets]
    sources = None if source is None else read[0].read_source(source)
    scores = tuple(of_set.scores(baseline, on_output, statistics, sources) for of_set in read)
    files: dict[str, dict[str, None]] = {}  # by what is to be said of them
    for path, message in chain.from_iterable(of_set.warnings for of_set in read):
        files.setdefault(message, {})[display_name(path)] = None
    warnings = tuple(f"{', '.join(names)}: {message}" for message, names in files.items())
    return Evaluation(settings, baseline, systems, tuple(scores[0].signatures), scores, warnings)
