"""BLEU, chrF and TER of systems on sets, by sacrebleu, and whether systems differ from a baseline, the first one.

A system has one output on a set, or one for each of several tuning runs. Scores and bootstrap are the sacrebleu command's.
"""

import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain, product
from typing import Any

import numpy as np

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.evaluation.corpora import USAGE, Segments, SetFiles, read_lines, segments_of
from phrase_rescore.evaluation.counts import Basis, OutputStatistics, read_output, write_statistics
from phrase_rescore.evaluation.examples import Examples, make_examples
from phrase_rescore.evaluation.metrics import EvaluationSettings, Metric
from phrase_rescore.evaluation.significance import Noise, bootstrap_p_values, pooled, randomization_p_values
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.paths import Path, check_apart
from phrase_rescore.messages import Progress, Shares, printable, silent
from phrase_rescore.moses.parallel import (
    Doubts,
    check_bleu,
    check_lengths,
    check_lines,
    check_texts,
    check_translated,
    is_rewritten,
)
from phrase_rescore.moses.text import check_language, detokenized, look, marks, mismatch, sacremoses_version

_NEARLY_ALL = 0.95  # of lines: a reference that corrects text may leave most as they are
_SMALL = 500  # characters of a text that may be equal to its reference
Runs = Sequence[OutputStatistics]  # the outputs of a system


class ReadSet:
    """The files of a set, read. Raises OptionError and InputError for files that do not go together."""

    def __init__(self, files: SetFiles, settings: EvaluationSettings, doubts: Doubts) -> None:
        self.files, self._doubts = files, doubts
        self.warnings = list[tuple[str, str]]()  # a file, and what about it
        read = {path: read_output(path, doubts if path in files.references else None) for path in dict.fromkeys(files.paths())}
        self._statistics = {path: output for path, output in read.items() if isinstance(output, OutputStatistics)}
        self.texts = {path: output for path, output in read.items() if not isinstance(output, OutputStatistics)}
        self._check_kinds(settings)
        check_lines(read)
        marked = [(path, mark) for path, text in self.texts.items() for mark in marks(text)]  # these are not judged
        if self.texts:
            self.warnings += [*self._empty_lines(), *marked, *self._copies()]
            if not marked:
                references = {path: self.texts[path] for path in files.references}
                check_texts({path: text for path, text in self.texts.items() if path not in references}, references, doubts)
        if self.texts and settings.detokenize is None:
            self.warnings += self._misleading(settings)
        elif settings.detokenize is not None:
            for path, text in self.texts.items():
                self.texts[path] = detokenized(text, settings.detokenize, display_name(path))
        self.references = tuple(self.texts[path] for path in files.references)  # none if all outputs are statistics
        if self.references:
            self.basis = Basis.of(self.references, settings)
        else:
            self.basis = next(iter(self._statistics.values())).basis
        for path, counts in self._statistics.items():
            self._check_basis(path, counts.basis, settings)
        self._metrics = settings.make_metrics(self.references)
        outputs = chain.from_iterable(files.systems.values())
        self._counts = {path: dict(self._statistics[path].counts) if path in self._statistics else {} for path in outputs}
        if "BLEU" in self._metrics:
            self._count_bleu(judge=not marked)

    def _check_kinds(self, settings: EvaluationSettings) -> None:
        """Raise OptionError for statistics where text is needed, and for text without a reference."""
        for path in self.files.references:
            if path in self._statistics:
                found = f"{display_name(path)} has statistics, but is the reference of set '{self.files.name}'"
                raise OptionError(f"{found}; leave it out, or name a reference")
        if self.texts and not self.files.references:
            found = f"{display_name(next(iter(self.texts)))} is text, not statistics"
            raise OptionError(f"set '{self.files.name}' has no reference, but {found}; {USAGE}")
        if self._statistics and settings.examples:
            found = f"{display_name(next(iter(self._statistics)))} has statistics"
            raise OptionError(f"--examples shows text, and {found}; give the output")

    def _copies(self) -> Iterator[tuple[str, str]]:
        """Yield a warning for outputs that are a reference."""
        references = {self.texts[path]: display_name(path) for path in self.files.references}
        for path in chain.from_iterable(self.files.systems.values()):
            text = self.texts.get(path, ())
            if text in references and sum(map(len, text)) > _SMALL:
                yield path, f"it is the text of the reference {references[text]}, not a translation"

    def _check_basis(self, path: str, basis: Basis, settings: EvaluationSettings) -> None:
        """Warn of statistics by other programs. Raises InputError for other settings or references than those of this set."""
        name = display_name(path)
        compared = {"--detokenize": (basis.detokenize, settings.detokenize)}
        for metric, signature in settings.signatures(basis.references).items():  # compared without the version at its end
            compared[metric] = basis.signatures.get(metric, "").rpartition("|")[0] or None, signature.rpartition("|")[0]
        for what, (there, here) in compared.items():
            if there != here:
                found = f"{what} is {printable(there or 'not used', 200)} there and {here or 'not used'} here"
                raise InputError(name, found, "give the same --metrics, --tokenize, --lowercase and --detokenize")
        if basis.references_sha256 != self.basis.references_sha256:
            hint = "figures against different references cannot be compared"
            raise InputError(name, f"counted against other references than {display_name(self.files.paths()[0])}", hint)
        versions = {"sacrebleu": version("sacrebleu"), "sacremoses": settings.detokenize and sacremoses_version()}
        for program, installed in versions.items():
            if (used := getattr(basis, program)) != installed:
                by = f"made with {program} {printable(str(used))}"
                self.warnings.append((path, f"{by}, but {installed} is installed; figures may differ"))

    def _empty_lines(self) -> Iterator[tuple[str, str]]:
        """Yield a warning for outputs with empty lines where the reference has text. Raises InputError if most are empty."""
        references = [self.texts[path] for path in self.files.references]
        to_translate = [any(segments) for segments in zip(*references, strict=True)]
        for path, text in self.texts.items():
            empty = sum(wanted and not segment for wanted, segment in zip(to_translate, text, strict=True))
            found = f"{empty:,} of {sum(to_translate):,} lines are empty, but not in the reference"
            if path in self.files.references:
                continue
            if 2 * empty > sum(to_translate):
                raise InputError(display_name(path), found, "translate the whole set again")
            if empty:
                yield path, f"{found}; they count as lost"

    def _misleading(self, settings: EvaluationSettings) -> Iterator[tuple[str, str]]:
        """Yield warnings of texts whose scores mislead: (file, warning). The first one is a reference."""
        looks = {path: look(text) for path, text in self.texts.items()}
        first, reference = next(iter(looks.items()))
        for path, of_text in looks.items():
            if {of_text.cased, reference.cased} == {True, False} and not settings.lowercase:
                case = "has capitals and the reference none" if of_text.cased else "has no capitals and the reference has"
                yield path, f"it {case} ({display_name(first)}); --lowercase ignores case"
            if difference := mismatch(reference, of_text):
                yield path, f"{difference} ({display_name(first)}); --detokenize LANG makes both plain text"
        if reference.escaped and "chrf" in settings.metrics:
            found = "the text has Moses' escapes such as &apos;, and chrF counts their characters"
            yield first, f"{found}; undo them with --detokenize LANG"
        if "bleu" in settings.metrics and reference.tokenized is False and settings.tokenization == "none":
            yield first, "not tokenized, but BLEU takes text between blanks for words; add --tokenize 13a"

    def _count_bleu(self, judge: bool) -> None:
        """Count what BLEU needs, which is soon done. To ``judge``, doubt a reference that no output translates."""
        metric, scores, words = self._metrics["BLEU"], list[float](), list[float]()
        for path, counts in self._counts.items():
            if path in self.texts:
                counts["BLEU"] = metric.counts(self.texts[path])
            scores.append(metric.score_of(counts["BLEU"]))
            words.append(counts["BLEU"][:, 1].sum())
        if judge:
            texts = product((self.texts[path] for path in self._counts if path in self.texts), self.references)
            check_bleu(self.files.paths()[0], scores, max(words), self._doubts, texts)

    def count(self, on_done: Progress) -> dict[str, Runs]:
        """Return the counts of every system's outputs, equal runs once. A file is counted once: TER takes seconds."""
        for path in chain.from_iterable(self.files.systems.values()):
            for name, metric in self._metrics.items():
                if name not in self._counts[path]:
                    self._counts[path][name] = metric.counts(self.texts[path])
            on_done(1)
        self.files = replace(self.files, systems={name: self._once(runs) for name, runs in self.files.systems.items()})
        done = {path: OutputStatistics(self.basis, counts) for path, counts in self._counts.items()} | self._statistics
        return {system: [done[path] for path in paths] for system, paths in self.files.systems.items()}

    def _once(self, runs: Sequence[str]) -> tuple[str, ...]:
        """Return the runs of a system without copies, which would count the same evidence twice, and warn of these."""
        kept, in_text = dict[object, str](), all(path in self.texts for path in runs)
        for path in runs:
            counts = tuple(self._counts[path][name].tobytes() for name in self._metrics)
            first = kept.setdefault(self.texts[path] if in_text else counts, path)
            if first != path:
                self.warnings.append((path, f"the same output as {display_name(first)}; both count as one run"))
        return tuple(kept.values())

    def read_source(self, path: str) -> Segments:
        """Read the source of the set, and doubt what is not its translation.

        Raises InputError if it has another number of lines than the references.
        """
        source = segments_of(display_name(path), read_lines(path))
        check_lines({self.files.references[0]: self.references[0], path: source})
        rewritten = is_rewritten(self.references[0], source)
        for of_set, text in self.texts.items():
            least = _NEARLY_ALL if of_set in self.files.references else 1.0 if rewritten else 0.5
            check_translated(of_set, text, path, source, self._doubts, least)
        lengths = [(len(line.split()), len(other.split())) for line, other in zip(source, self.references[0], strict=True)]
        check_lengths(path, lengths, self.files.references[0], self._doubts)
        return source


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
    systems: tuple[str, ...]  # in the order in which they were named, the baseline first
    metrics: tuple[str, ...]  # the names of sacrebleu's scores
    sets: tuple[SetScores, ...]
    warnings: tuple[str, ...]


def _score_set(
    read: ReadSet, outputs: Mapping[str, Runs], settings: EvaluationSettings, baseline: str, sources: Segments | None,
    on_done: Progress,
) -> SetScores:  # fmt: skip
    """Score every output of a set, and compare the systems with the baseline if it has outputs there."""
    metrics, base = settings.make_metrics(), outputs.get(baseline)
    scores, examples = dict[str, dict[str, SystemScore]](), dict[str, Examples]()
    for system, runs in outputs.items():
        of_runs = {name: tuple(metric.score_of(run.counts[name]) for run in runs) for name, metric in metrics.items()}
        scores[system] = {name: SystemScore(of_metric) for name, of_metric in of_runs.items()}
    for system, own in outputs.items() if base else ():
        if base and system != baseline:
            scores[system] = _compared(scores[baseline], scores[system], base, own, metrics, settings)
            on_done(1)
            if settings.examples:
                counts = base[0].counts["BLEU"], own[0].counts["BLEU"]
                texts = read.texts[read.files.systems[baseline][0]], read.texts[read.files.systems[system][0]]
                examples[system] = make_examples(settings.examples, counts, sources, read.references, texts)
    return SetScores(read.files, read.basis, settings.signatures(read.basis.references), scores, examples)


def _compared(
    of_base: Mapping[str, SystemScore], of_own: Mapping[str, SystemScore], base: Runs, own: Runs,
    metrics: Mapping[str, Metric], settings: EvaluationSettings,
) -> dict[str, SystemScore]:  # fmt: skip
    """Return the scores of a system with differences to the baseline and p values."""
    by_bootstrap = dict[str, float]()
    if len(base) == len(own) == 1:
        by_bootstrap = bootstrap_p_values(base[0].counts, own[0].counts, metrics, settings.resamples)
    a, b = ([np.array([run.counts[name] for run in runs]) for name in metrics] for runs in (base, own))
    scorers = [metric.score for metric in metrics.values()]
    by_randomization = randomization_p_values(a, b, scorers, settings.shuffles)
    compared = dict[str, SystemScore]()
    for (name, score), p in zip(of_own.items(), by_randomization, strict=True):
        compared[name] = SystemScore(score.runs, score.mean - of_base[name].mean, by_bootstrap.get(name), p)
    return compared


def evaluate(
    sets: Sequence[SetFiles], *, statistics: Path | None = None, source: Path | None = None, force: bool = False,
    on_done: Callable[[float], object] = silent, **asked: Any,
) -> Evaluation:  # fmt: skip
    """Score every system on every set and compare it with the first one, as ``phrase-rescore evaluate`` does.

    ``asked`` are fields of ``EvaluationSettings``. ``statistics`` names a file to write the counts of the only output to.
    ``source`` is the text that was translated, for examples. With ``force`` a doubt, such as of a reference that no output
    translates, is a warning. ``on_done`` hears which share of the outputs and comparisons is done, after each one. All
    files are read before. Raises TypeError for an unknown setting, OptionError for options that do not fit, InputError for
    files that cannot be used or compared.
    """
    settings = EvaluationSettings(**asked)
    source, out = (None if path is None else os.fspath(path) for path in (source, statistics))
    systems = tuple(dict.fromkeys(chain.from_iterable(files.systems for files in sets)))
    read_paths = [("--set", path) for files in sets for path in files.paths()]
    check_apart([*read_paths, ("--source", source)], [("--statistics", out)])
    _check(sets, settings, out)
    if source is not None and not (settings.examples and len(sets) == 1):
        raise OptionError("--source is for the examples of one set; give --examples N and one --set, or leave --source out")
    doubted = list[str]()
    read = [ReadSet(files, settings, Doubts(force, doubted.append)) for files in sets]
    sources = None if source is None else read[0].read_source(source)
    compared = sum(len(files.systems) - 1 for files in sets if systems[0] in files.systems)
    shares = Shares(sum(map(len, chain.from_iterable(files.systems.values() for files in sets))) + compared, on_done)
    outputs = [of_set.count(shares.add) for of_set in read]
    if out is not None:
        write_statistics(out, outputs[0][systems[0]][0])
    pairs = zip(read, outputs, strict=True)
    scores = tuple(_score_set(of_set, counted, settings, systems[0], sources, shares.add) for of_set, counted in pairs)
    return Evaluation(settings, systems, tuple(scores[0].signatures), scores, (*doubted, *_warnings(read)))


def _check(sets: Sequence[SetFiles], settings: EvaluationSettings, statistics: str | None) -> None:
    """Raise OptionError for sets and settings that do not fit together."""
    for name, n in Counter(files.name for files in sets).items():
        if n > 1:
            raise OptionError(f"two sets are called '{name}'; give each another name")
    if settings.examples and ("bleu" not in settings.metrics or not any(len(files.systems) > 1 for files in sets)):
        raise OptionError("--examples compares the BLEU of systems; name two systems of a set, and bleu in --metrics")
    if settings.detokenize is not None:
        check_language("--detokenize", settings.detokenize)
    if statistics == "-":
        raise OptionError("--statistics - is standard output, which gets the table; name a file")
    if statistics and [len(runs) for files in sets for runs in files.systems.values()] != [1]:
        raise OptionError("--statistics is for one output; give one set with one system and one output")


def _warnings(read: Iterable[ReadSet]) -> tuple[str, ...]:
    """Return the warnings of all sets, one for all files that it is true of."""
    names: dict[str, dict[str, None]] = {}  # of files, by warning
    for of_set in read:
        for path, warning in of_set.warnings:
            names.setdefault(warning, {})[display_name(path)] = None
    return tuple(f"{', '.join(of_files)}: {warning}" for warning, of_files in names.items())
