"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline.

A system has one output on a set, or one for each of several tuning runs. Scores are the sacrebleu command's, and so is the
p value of the paired bootstrap, which compares one output with one. ``significance`` compares any number of runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from phrase_rescore.errors import OptionError, shown
from phrase_rescore.evaluation.corpora import Look, Segments, SetFiles, check_length, check_sets, look, mismatch, read_segments
from phrase_rescore.evaluation.significance import Scorer, Statistics, randomization_p_values
from phrase_rescore.files.paths import Role, Use, check_paths
from phrase_rescore.files.streams import display_name
from phrase_rescore.moses.lines import check_language
from phrase_rescore.ranges import SAMPLES, TEST_SEEDS, Checked, ranged

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}  # and what sacrebleu calls their scores
TOKENIZATIONS = ("none", "13a", "intl", "char", "zh")  # of sacrebleu's, those that need neither a package nor a download
_UNSPACED = {"zh": "zh", "ja": "char"}  # 13a finds no words in them


@dataclass(frozen=True)
class Settings(Checked):
    """How texts are scored and compared. ``tokenize`` None: as fits the text."""

    metrics: tuple[str, ...] = tuple(METRICS)
    tokenize: str | None = None  # of TOKENIZATIONS, for BLEU
    detokenize: str | None = None  # a language code; None: texts are scored as they are
    lowercase: bool = False  # for BLEU and chrF; sacrebleu's TER never tells case
    baseline: str | None = None  # None: the first system
    resamples: int = ranged(1000, SAMPLES)
    shuffles: int = ranged(10_000, SAMPLES)
    seed: int = ranged(12345, TEST_SEEDS)  # not 0, which PairedTest takes for no seed

    @property
    def tokenization(self) -> str:
        """BLEU's tokenization: tokens of Moses stay what they are; detokenized text is cut as WMT's BLEU cuts it."""
        return self.tokenize or (_UNSPACED.get(self.detokenize, "13a") if self.detokenize else "none")

    def text(self) -> str:
        """What the scored text is."""
        if self.detokenize is None:
            return "as it is"
        return f"detokenized ({self.detokenize}), escapes undone, by sacremoses {version('sacremoses')}"

    def make_metrics(self, references: Sequence[Segments]) -> dict[str, Metric]:
        """Make sacrebleu's metrics, by the names it gives their scores. Each measures the same output only once."""
        made: dict[str, Callable[[], Metric]] = {
            # force: no message about points that stand apart; warnings are ours
            "bleu": lambda: BLEU(tokenize=self.tokenization, lowercase=self.lowercase, force=True, references=references),
            "chrf": lambda: CHRF(lowercase=self.lowercase, references=references),
            "ter": lambda: TER(references=references),
        }
        metrics = {}
        for name in self.metrics:
            metric = made[name]()
            extract = functools.cache(metric._extract_corpus_statistics)  # TER's take seconds, and tests ask for them again
            metric._extract_corpus_statistics = extract  # type: ignore[method-assign]
            metrics[METRICS[name]] = metric
        return metrics


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
    segments: int
    signatures: dict[str, str]
    cells: dict[str, dict[str, Cell]]


@dataclass(frozen=True)
class Evaluation:
    """The scores of all systems on all sets."""

    settings: Settings
    baseline: str
    systems: tuple[str, ...]  # in the order in which they were named
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Texts:
    """The text of a set, as it is scored; a warning is (file, what about it)."""

    files: SetFiles
    references: tuple[Segments, ...]
    outputs: dict[str, tuple[Segments, ...]]
    warnings: list[tuple[str, str]]


def _detokenizer(language: str) -> Callable[[Segments], Segments]:
    """Return what detokenizes as ``sacremoses -l LANGUAGE detokenize``: Moses' detokenizer.perl, escapes undone."""
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language).detokenize
    return lambda segments: tuple(detokenize(segment.split()) for segment in segments)


def _read(files: SetFiles, settings: Settings) -> _Texts:
    """Read and check the files of a set."""
    first = files.references[0]
    texts = {path: read_segments(path) for path in dict.fromkeys(files.paths())}
    for path, segments in texts.items():
        check_length(path, segments, first, len(texts[first]))
    warnings = list[tuple[str, str]]()
    if settings.detokenize:
        detokenize = _detokenizer(settings.detokenize)
        texts = {path: detokenize(segments) for path, segments in texts.items()}
    else:
        looks = {path: look(segments) for path, segments in texts.items()}
        warnings += _warnings(first, looks, settings)
    outputs = {system: tuple(texts[path] for path in paths) for system, paths in files.systems.items()}
    return _Texts(files, tuple(texts[path] for path in files.references), outputs, warnings)


def _warnings(reference: str, looks: Mapping[str, Look], settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what makes scores of texts as they are other than they seem: (file, what about it)."""
    its, tokenization = looks[reference], settings.tokenization
    for path, of_path in looks.items():
        if why := mismatch(its, of_path):
            yield path, f"{why} ({display_name(reference)}); --detokenize LANG makes both plain text"
    if its.escaped and "chrf" in settings.metrics:
        found = "Moses' escapes stand in the text and chrF counts six characters for &apos;"
        yield reference, f"{found}; --detokenize LANG undoes them"
    if "bleu" in settings.metrics and its.tokenized and tokenization in ("13a", "intl"):
        found = f"tokenized text, which BLEU tokenizes again ({tokenization})"
        yield reference, f"{found}; write --tokenize none or --detokenize LANG"
    if "bleu" in settings.metrics and its.tokenized is False and tokenization == "none":
        yield reference, "not tokenized, and BLEU takes what stands between blanks for words; write --tokenize 13a"


def _by_message(warnings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Make a line of every message, after the names of its files."""
    files: dict[str, dict[str, None]] = {}
    for path, message in warnings:
        files.setdefault(message, {})[display_name(path)] = None
    return tuple(f"{', '.join(names)}: {message}" for message, names in files.items())


@contextlib.contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Give PairedTest its seed, which it takes from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def _bootstrap(
    systems: Mapping[str, Segments], metrics: Mapping[str, Metric], settings: Settings
) -> dict[str, dict[str, float]]:
    """Return p[system][metric] of one output against the first system's, as ``sacrebleu --paired-bs`` does."""
    if len(systems) < 2:
        return {}
    with _sacrebleu_seed(settings.seed):
        _, results = PairedTest(list(systems.items()), metrics, None, "bs", settings.resamples)()
    by_metric: dict[str, Any] = {name: results[name] for name in metrics}
    numbered = list(enumerate(systems))[1:]
    return {system: {name: result[number].p_value for name, result in by_metric.items()} for number, system in numbered}


def _statistics(metric: Metric, runs: Sequence[Segments]) -> Statistics:
    """Return sufficient statistics, (runs, segments, width)."""
    return np.array([metric._extract_corpus_statistics(run, None) for run in runs], np.float64)


def _scorer(metric: Metric) -> Scorer:
    return lambda sums: float(metric._compute_score_from_stats(sums).score)


def _compare(
    cells: dict[str, dict[str, Cell]], texts: _Texts, metrics: Mapping[str, Metric], baseline: str, settings: Settings
) -> dict[str, dict[str, Cell]]:
    """Add to the cells what there is to say against the baseline, which has outputs on this set."""
    single = {system: runs[0] for system, runs in texts.outputs.items() if len(runs) == 1}
    pairs = {baseline: single[baseline], **single} if baseline in single else {}
    by_bootstrap = _bootstrap(pairs, metrics, settings)
    by_system = {system: [_statistics(metric, runs) for metric in metrics.values()] for system, runs in texts.outputs.items()}
    scorers = [_scorer(metric) for metric in metrics.values()]

    def compared(system: str) -> dict[str, Cell]:
        p_values = randomization_p_values(by_system[baseline], by_system[system], scorers, settings.shuffles, settings.seed)
        found = {}
        for (name, cell), p_randomization in zip(cells[system].items(), p_values, strict=True):
            difference = cell.mean - cells[baseline][name].mean
            p_bootstrap = by_bootstrap.get(system, {}).get(name)
            if p_bootstrap is not None and difference == 0:
                p_bootstrap = 1.0  # PairedTest counts only what is larger, and gives a system its smallest p against itself
            found[name] = replace(cell, difference=difference, p_bootstrap=p_bootstrap, p_randomization=p_randomization)
        return found

    return {system: by_metric if system == baseline else compared(system) for system, by_metric in cells.items()}


def _measure(texts: _Texts, baseline: str, settings: Settings, on_output: Callable[[], object]) -> SetScores:
    """Score every output of a set, and compare the systems with the baseline."""
    metrics = settings.make_metrics(texts.references)
    cells: dict[str, dict[str, Cell]] = {}
    for system, runs in texts.outputs.items():
        scores: dict[str, list[float]] = {name: [] for name in metrics}
        for run in runs:
            for name, metric in metrics.items():
                scores[name].append(metric.corpus_score(run, None).score)
            on_output()
        cells[system] = {name: Cell(tuple(of_runs)) for name, of_runs in scores.items()}
    if baseline in cells:
        cells = _compare(cells, texts, metrics, baseline, settings)
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return SetScores(texts.files, len(texts.references[0]), signatures, cells)


def evaluate(sets: Sequence[SetFiles], settings: Settings, on_output: Callable[[], object] = lambda: None) -> Evaluation:
    """Score every system on every set. ``on_output`` is called for each output that has been scored.

    Raises OptionError for options that do not fit, InputError for files that are missing, empty, not UTF-8, or not as long
    as their reference. All files are read before anything is scored.
    """
    check_sets(sets)
    check_paths(Use("--set", path, Role.READ) for files in sets for path in files.paths())
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    baseline = settings.baseline or systems[0]
    if baseline not in systems:
        raise OptionError(f"no system is called {shown(baseline)}; --baseline is one of: {', '.join(systems)}")
    texts = [_read(files, settings) for files in sets]
    scores = tuple(_measure(of_set, baseline, settings, on_output) for of_set in texts)
    warnings = _by_message(chain.from_iterable(of_set.warnings for of_set in texts))
    return Evaluation(settings, baseline, systems, tuple(scores[0].signatures), scores, warnings)
