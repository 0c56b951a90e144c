"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline.

A system has one output on a set, or one for each of several tuning runs. Scores and bootstrap are the sacrebleu command's.
"""

import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from phrase_rescore.errors import OptionError
from phrase_rescore.evaluation.corpora import Segments, SetFiles
from phrase_rescore.evaluation.counts import Basis, OutputStatistics, write_statistics
from phrase_rescore.evaluation.examples import Examples, make_examples
from phrase_rescore.evaluation.metrics import EvaluationSettings, Metric
from phrase_rescore.evaluation.sets import ReadSet
from phrase_rescore.evaluation.significance import Noise, bootstrap_p_values, pooled, randomization_p_values
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import Path, check_apart
from phrase_rescore.messages import shown
from phrase_rescore.moses.tokenizer import check_language


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
        by_metric = {metric: pooled(scores[metric].runs for scores in self.systems.values()) for metric in self.signatures}
        return {metric: noise for metric, noise in by_metric.items() if noise}


@dataclass(frozen=True)
class Evaluation:
    """The scores of all systems on all sets."""

    settings: EvaluationSettings
    baseline: str
    systems: tuple[str, ...]  # in the order in which they were named
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


Runs = Sequence[OutputStatistics]  # the outputs of a system


def _score_set(
    read: ReadSet, settings: EvaluationSettings, baseline: str, sources: Segments | None, on_output: Callable[[], object]
) -> tuple[SetScores, dict[str, Runs]]:
    """Score every output of a set, and compare the systems with the baseline. Return the counts of the outputs, too."""
    metrics = settings.make_metrics(read.references)
    outputs = _count(read, metrics, on_output)
    scores = {
        system: {name: _score(metric, name, runs) for name, metric in metrics.items()} for system, runs in outputs.items()
    }
    examples = dict[str, Examples]()
    for system in outputs if baseline in outputs else ():
        if system == baseline:
            continue
        scores[system] = _compared(scores, outputs, baseline, system, metrics, settings)
        if settings.examples:
            examples[system] = _examples(read, outputs, baseline, system, settings.examples, sources)
    return SetScores(read.files, read.basis, settings.signatures(read.basis.references), scores, examples), outputs


def _count(read: ReadSet, metrics: Mapping[str, Metric], on_output: Callable[[], object]) -> dict[str, Runs]:
    """Return the counts of every system's outputs. A file that stands for several is counted once: TER takes seconds."""
    by_path = dict[str, OutputStatistics]()
    for path in chain.from_iterable(read.files.systems.values()):
        on_output()
        output = read.outputs[path]
        if isinstance(output, OutputStatistics):
            by_path[path] = output
        elif path not in by_path:
            by_path[path] = OutputStatistics.of(output.segments, metrics, read.basis)
    return {system: [by_path[path] for path in paths] for system, paths in read.files.systems.items()}


def _score(metric: Metric, name: str, runs: Runs) -> SystemScore:
    return SystemScore(tuple(metric.score_of(run.counts[name]) for run in runs))


def _compared(
    scores: Mapping[str, Mapping[str, SystemScore]], outputs: Mapping[str, Runs], baseline: str, system: str,
    metrics: Mapping[str, Metric], settings: EvaluationSettings,
) -> dict[str, SystemScore]:  # fmt: skip
    """Return the scores of a system with differences to the baseline and p values."""
    base, own = outputs[baseline], outputs[system]
    by_bootstrap = dict[str, float]()
    if len(base) == len(own) == 1:
        by_bootstrap = bootstrap_p_values(base[0].counts, own[0].counts, metrics, settings.resamples, settings.seed)
    a, b = ([np.array([run.counts[name] for run in runs]) for name in metrics] for runs in (base, own))
    scorers = [metric.score for metric in metrics.values()]
    by_randomization = randomization_p_values(a, b, scorers, settings.shuffles, settings.seed)
    compared = dict[str, SystemScore]()
    for name, p in zip(metrics, by_randomization, strict=True):
        score = scores[system][name]
        difference = score.mean - scores[baseline][name].mean
        compared[name] = SystemScore(score.runs, difference, by_bootstrap.get(name), p)
    return compared


def _examples(
    read: ReadSet, outputs: Mapping[str, Runs], baseline: str, system: str, n: int, sources: Segments | None
) -> Examples:
    """Return examples of the first runs of both systems."""
    metric = Metric("bleu", effective_order=True)
    one, other = (list(map(metric.score, outputs[name][0].counts["BLEU"].tolist())) for name in (baseline, system))
    texts = read.first_text(baseline), read.first_text(system)
    return make_examples(n, list(zip(one, other, strict=True)), sources, read.references, texts)


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
    source = None if source is None else os.fspath(source)
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    baseline = settings.baseline or systems[0]
    read_paths = [("--set", path) for files in sets for path in files.paths()]
    check_apart([*read_paths, ("--source", source)], [("--statistics", None if statistics is None else os.fspath(statistics))])
    _check(sets, settings, systems, baseline)
    if statistics is not None:
        _check_statistics(sets, os.fspath(statistics))
    if source is not None and not (settings.examples and len(sets) == 1):
        raise OptionError("--source is for the examples of one set; give --examples N and one --set, or leave --source out")
    read = [ReadSet(files, settings) for files in sets]
    sources = None if source is None else read[0].read_source(source)
    scored = [_score_set(of_set, settings, baseline, sources, on_output) for of_set in read]
    if statistics is not None:
        ((_, outputs),) = scored
        write_statistics(os.fspath(statistics), outputs[baseline][0])
    scores = tuple(of_set for of_set, _ in scored)
    return Evaluation(settings, baseline, systems, tuple(scores[0].signatures), scores, _warnings(read))


def _check(sets: Sequence[SetFiles], settings: EvaluationSettings, systems: Sequence[str], baseline: str) -> None:
    """Raise OptionError for sets and settings that do not fit together."""
    for name, n in Counter(files.name for files in sets).items():
        if n > 1:
            raise OptionError(f"two sets are called '{name}'; give each another name")
    if baseline not in systems:
        raise OptionError(f"no system is called {shown(baseline)}; --baseline is one of: {', '.join(systems)}")
    if settings.examples and "bleu" not in settings.metrics:
        raise OptionError("--examples takes segments by their BLEU; add bleu to --metrics")
    if settings.examples and len(systems) < 2:
        raise OptionError("--examples compares systems with a baseline; name two systems")
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)


def _check_statistics(sets: Sequence[SetFiles], statistics: str) -> None:
    """Raise OptionError if this file cannot have the statistics of the only output."""
    if statistics == "-":
        raise OptionError("--statistics - is standard output, which gets the table; name a file")
    if [len(runs) for files in sets for runs in files.systems.values()] != [1]:
        raise OptionError("--statistics is for one output; give one set with one system and one output")


def _warnings(read: Iterable[ReadSet]) -> tuple[str, ...]:
    """Return the warnings of all sets, one for all files that it is true of."""
    names: dict[str, dict[str, None]] = {}  # of files, by warning
    for of_set in read:
        for path, warning in of_set.warnings:
            names.setdefault(warning, {})[display_name(path)] = None
    return tuple(f"{', '.join(of_files)}: {warning}" for warning, of_files in names.items())
