"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline.

A system has one output on a set, or one for each of several tuning runs. Scores are the sacrebleu command's, and so is the
p value of the paired bootstrap, which compares one output with one. ``significance`` compares any number of runs, and
``noise`` says how far runs lie apart. All figures are computed from counts of segments, whether these come from text or from
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
from phrase_rescore.evaluation.corpora import SetFiles, check_sets
from phrase_rescore.evaluation.metrics import Settings
from phrase_rescore.evaluation.noise import Noise, pooled
from phrase_rescore.evaluation.outputs import SetOutputs, by_message, read_set
from phrase_rescore.evaluation.significance import Scorer, bootstrap_p_values, randomization_p_values
from phrase_rescore.evaluation.statistics_files import Basis, OutputStatistics, count, write_statistics
from phrase_rescore.moses.text import check_language


@dataclass(frozen=True)
class Cell:
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
    """The scores on a set, ``cells[system][metric]``; a system without output on this set is not among them."""

    files: SetFiles
    basis: Basis
    signatures: dict[str, str]
    cells: dict[str, dict[str, Cell]]
    outputs: dict[str, list[OutputStatistics]]

    def noise(self) -> dict[str, Noise]:
        """Return the noise of tuning by metric; nothing if every system has one run."""
        found = {metric: pooled(of[metric].runs for of in self.cells.values()) for metric in self.signatures}
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

    settings: Settings
    baseline: str
    systems: tuple[str, ...]  # in the order in which they were named
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


def _scorer(metric: Metric) -> Scorer:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _compare(
    cells: dict[str, dict[str, Cell]],
    outputs: Mapping[str, Sequence[OutputStatistics]],
    metrics: Mapping[str, Metric],
    baseline: str,
    settings: Settings,
) -> dict[str, dict[str, Cell]]:
    """Add to the cells what there is to say against the baseline, which has outputs on this set."""
    single = {system: runs[0] for system, runs in outputs.items() if len(runs) == 1}
    pairs = {baseline: single[baseline], **single} if baseline in single else {}
    by_bootstrap = bootstrap_p_values(pairs, metrics, settings.resamples, settings.seed)
    by_system = {
        system: [np.array([run.counts[name] for run in runs], np.float64) for name in metrics]  # (runs, segments, width)
        for system, runs in outputs.items()
    }
    scorers = [_scorer(metric) for metric in metrics.values()]

    def compared(system: str) -> dict[str, Cell]:
        p_values = randomization_p_values(by_system[baseline], by_system[system], scorers, settings.shuffles, settings.seed)
        found = {}
        for (name, cell), p_randomization in zip(cells[system].items(), p_values, strict=True):
            difference = cell.mean - cells[baseline][name].mean
            p_bootstrap = by_bootstrap.get(system, {}).get(name)
            found[name] = replace(cell, difference=difference, p_bootstrap=p_bootstrap, p_randomization=p_randomization)
        return found

    return {system: by_metric if system == baseline else compared(system) for system, by_metric in cells.items()}


def _measure(of_set: SetOutputs, baseline: str, settings: Settings, on_output: Callable[[], object]) -> SetScores:
    """Score every output of a set, and compare the systems with the baseline."""
    metrics = settings.make_metrics(of_set.basis.references, of_set.references)
    count_once = functools.cache(lambda text: count(text, metrics, of_set.basis))  # TER takes seconds
    outputs: dict[str, list[OutputStatistics]] = {}
    cells: dict[str, dict[str, Cell]] = {}
    for system, runs in of_set.outputs.items():
        outputs[system], scores = [], {name: list[float]() for name in metrics}
        for run in runs:
            counted = run if isinstance(run, OutputStatistics) else count_once(run)
            outputs[system].append(counted)
            for name, metric in metrics.items():
                scores[name].append(metric._aggregate_and_compute(counted.counts[name]).score)
            on_output()
        cells[system] = {name: Cell(tuple(of_runs)) for name, of_runs in scores.items()}
    if baseline in cells:
        cells = _compare(cells, outputs, metrics, baseline, settings)
    return SetScores(of_set.files, of_set.basis, settings.signatures(of_set.basis.references), cells, outputs)


def _check_single(sets: Sequence[SetFiles]) -> None:
    """Raise OptionError unless there is one output."""
    if len(sets) != 1 or [len(runs) for runs in sets[0].systems.values()] != [1]:
        raise OptionError("--statistics has the counts of one output; give one set with one system and one output")


def evaluate(
    sets: Sequence[SetFiles],
    settings: Settings,
    on_output: Callable[[], object] = lambda: None,
    statistics_path: str | None = None,
) -> Evaluation:
    """Score every system on every set. ``on_output`` is called for each output that has been scored.

    ``statistics_path`` names a file to write the statistics of the only output to.

    Raises OptionError for options that do not fit, InputError for files that are missing, empty, not UTF-8, not as long as
    their reference, or statistics that are damaged or cannot be compared. All files are read before anything is scored.
    """
    check_sets(sets)
    if statistics_path is not None:
        _check_single(sets)
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    baseline = settings.baseline or systems[0]
    if baseline not in systems:
        raise OptionError(f"no system is called {shown(baseline)}; --baseline is one of: {', '.join(systems)}")
    outputs = [read_set(files, settings) for files in sets]
    scores = tuple(_measure(of_set, baseline, settings, on_output) for of_set in outputs)
    if statistics_path is not None:
        write_statistics(statistics_path, scores[0].outputs[systems[0]][0])
    warnings = by_message(chain.from_iterable(of_set.warnings for of_set in outputs))
    return Evaluation(settings, baseline, systems, tuple(scores[0].signatures), scores, warnings)
