"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline.

A system has one output on a set, or one for each of several tuning runs. Scores are the sacrebleu command's, and so is the
p value of the paired bootstrap, which compares one output with one. ``significance`` compares any number of runs, and
says how far they lie apart. All figures are computed from counts of segments, whether these come from text or from
a file of statistics.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from sacrebleu.metrics.base import Metric

from phrase_rescore.errors import OptionError, shown
from phrase_rescore.evaluation.corpora import Segments, SetFiles, check_sets
from phrase_rescore.evaluation.counts import Basis, EvaluationSettings, OutputStatistics, count, write_statistics
from phrase_rescore.evaluation.outputs import SetOutputs, by_message, read_set
from phrase_rescore.evaluation.significance import Noise, Scorer, bootstrap_p_values, pooled, randomization_p_values
from phrase_rescore.moses.text import check_language


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

    def noise(self) -> dict[str, Noise]:
        """Return the noise of tuning by metric; nothing if every system has one run."""
        found = {metric: pooled(of[metric].runs for of in self.systems.values()) for metric in self.signatures}
        return {metric: noise for metric, noise in found.items() if noise}

    def comparisons(self, baseline: str) -> list[tuple[int, int]]:
        """Return how many runs of a system are compared with how many of the baseline.

        Where nothing is compared, systems with several runs are taken to be compared with as many.
        """
        runs = {system: len(paths) for system, paths in self.files.systems.items()}
        pairs = {(n, runs[baseline]) for system, n in runs.items() if system != baseline} if baseline in runs else set()
        return sorted(pairs or {(n, n) for n in runs.values() if n > 1})


@dataclass(frozen=True)
class Evaluation:
    """The scores of all systems on all sets."""

    settings: EvaluationSettings
    baseline: str
    systems: tuple[str, ...]  # in the order in which they were named
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


def _scorer(metric: Metric) -> Scorer:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _compared(
    scores: dict[str, SystemScore], base: dict[str, SystemScore], outputs: tuple[Sequence[OutputStatistics], ...],
    metrics: Mapping[str, Metric], settings: EvaluationSettings,
) -> dict[str, SystemScore]:  # fmt: skip
    """Add to a system's scores what there is to say against the baseline; ``outputs``: those of the baseline and its own."""
    by_bootstrap: Mapping[str, float] = {}
    if [len(runs) for runs in outputs] == [1, 1]:
        (ours,), (its,) = outputs
        by_bootstrap = bootstrap_p_values(ours.counts, its.counts, metrics, settings.resamples, settings.seed)
    a, b = ([np.array([run.counts[name] for run in runs]) for name in metrics] for runs in outputs)
    scorers = [_scorer(metric) for metric in metrics.values()]
    by_randomization = randomization_p_values(a, b, scorers, settings.shuffles, settings.seed)
    return {
        name: replace(score, difference=score.mean - base[name].mean, p_bootstrap=by_bootstrap.get(name), p_randomization=p)
        for (name, score), p in zip(scores.items(), by_randomization, strict=True)
    }


def _measure(
    of_set: SetOutputs, baseline: str, settings: EvaluationSettings, on_output: Callable[[], object], statistics: str | None
) -> SetScores:
    """Score every output of a set, and compare the systems with the baseline; write the statistics of the only output."""
    metrics = settings.make_metrics(of_set.basis.references, of_set.references)
    count_once = functools.cache(lambda text: count(text, metrics, of_set.basis))  # TER takes seconds

    def counted(run: Segments | OutputStatistics) -> OutputStatistics:
        on_output()
        return run if isinstance(run, OutputStatistics) else count_once(run)

    def score(name: str, run: OutputStatistics) -> float:
        return float(metrics[name]._aggregate_and_compute(run.counts[name].tolist()).score)

    outputs = {system: [counted(run) for run in runs] for system, runs in of_set.outputs.items()}
    if statistics is not None:
        write_statistics(statistics, next(iter(outputs.values()))[0])
    systems = {
        system: {name: SystemScore(tuple(score(name, run) for run in runs)) for name in metrics}
        for system, runs in outputs.items()
    }
    if base := systems.get(baseline):
        for system in systems.keys() - {baseline}:
            both = outputs[baseline], outputs[system]
            systems[system] = _compared(systems[system], base, both, metrics, settings)
    return SetScores(of_set.files, of_set.basis, settings.signatures(of_set.basis.references), systems)


def evaluate(
    sets: Sequence[SetFiles],
    settings: EvaluationSettings,
    on_output: Callable[[], object] = lambda: None,
    statistics_path: str | None = None,
) -> Evaluation:
    """Score every system on every set. ``on_output`` is called for each output that has been scored.

    ``statistics_path`` names a file to write the statistics of the only output to.

    Raises OptionError for options that do not fit, InputError for files that are missing, empty, not UTF-8, not as long as
    their reference, or statistics that are damaged or cannot be compared. All files are read before anything is scored.
    """
    check_sets(sets)
    if statistics_path == "-":
        raise OptionError("--statistics - is standard output, where the table goes; name a file")
    if statistics_path is not None and [len(runs) for files in sets for runs in files.systems.values()] != [1]:
        raise OptionError("--statistics has the counts of one output; give one set with one system and one output")
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    baseline = settings.baseline or systems[0]
    if baseline not in systems:
        raise OptionError(f"no system is called {shown(baseline)}; --baseline is one of: {', '.join(systems)}")
    outputs = [read_set(files, settings) for files in sets]
    scores = tuple(_measure(of_set, baseline, settings, on_output, statistics_path) for of_set in outputs)
    warnings = by_message(chain.from_iterable(of_set.warnings for of_set in outputs))
    return Evaluation(settings, baseline, systems, tuple(scores[0].signatures), scores, warnings)
