"""The outputs and references of a set, read and checked against each other; an output is text or its statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from phrase_rescore.errors import InputError, OptionError, printable
from phrase_rescore.evaluation.corpora import USAGE, Segments, SetFiles, read_lines, segments_of
from phrase_rescore.evaluation.counts import BEGINNING, METRICS, Basis, EvaluationSettings, OutputStatistics, parse_statistics
from phrase_rescore.files.inputs import display_name
from phrase_rescore.moses.text import Look, look, mismatch

Output = Segments | OutputStatistics


@dataclass(frozen=True)
class SetOutputs:
    """The outputs of a set, text as it is scored; a warning is (file, what about it)."""

    files: SetFiles
    basis: Basis
    references: tuple[Segments, ...]  # none where all outputs are statistics
    outputs: dict[str, tuple[Output, ...]]
    warnings: list[tuple[str, str]]


def _detokenizer(language: str) -> Callable[[Segments], Segments]:
    """Return what detokenizes as ``sacremoses -l LANGUAGE detokenize``: Moses' detokenizer.perl, escapes undone."""
    from sacremoses import MosesDetokenizer

    detokenize = MosesDetokenizer(language).detokenize
    return lambda segments: tuple(detokenize(segment.split()) for segment in segments)


def _read_output(path: str) -> Output:
    rows, name = read_lines(path), display_name(path)
    return parse_statistics(name, rows) if rows[0].startswith(BEGINNING) else segments_of(name, rows)


def read_set(files: SetFiles, settings: EvaluationSettings) -> SetOutputs:
    """Read and check the files of a set.

    Raises OptionError for statistics in place of a reference, and for text without one; InputError as the readers do, and
    for outputs that cannot be compared.
    """
    read = {path: _read_output(path) for path in dict.fromkeys(files.paths())}
    texts = {path: output for path, output in read.items() if not isinstance(output, OutputStatistics)}
    statistics = {path: output for path, output in read.items() if isinstance(output, OutputStatistics)}
    _check_references(files, texts)
    first = next(iter(read))  # a reference, if there is one
    for path, output in read.items():
        if len(output) != len(read[first]):
            found = f"{len(output):,} lines where {display_name(first)} has {len(read[first]):,}"
            hint = "outputs and references have a line for every segment, in the same order"
            raise InputError(display_name(path), found, hint)
    warnings = list[tuple[str, str]]()
    if settings.detokenize:
        detokenize = _detokenizer(settings.detokenize)
        texts = {path: detokenize(segments) for path, segments in texts.items()}
    elif texts:
        warnings += _warnings(first, {path: look(segments) for path, segments in texts.items()}, settings)
    references = tuple(texts[path] for path in files.references)
    basis = Basis.of(references, settings) if references else statistics[first].basis
    against = ", ".join(map(display_name, files.references)) or f"those of {display_name(first)}"
    for path, output in statistics.items():
        _check_scoring(output.basis, display_name(path), settings)
        if output.basis.references_sha256 != basis.references_sha256:
            hint = "figures against different references cannot be compared"
            raise InputError(display_name(path), f"counted against other references than {against}", hint)
        warnings += [(path, warning) for warning in _other_versions(output.basis, settings)]
    every: dict[str, Output] = {**texts, **statistics}
    outputs = {system: tuple(every[path] for path in paths) for system, paths in files.systems.items()}
    return SetOutputs(files, basis, references, outputs, warnings)


def _check_references(files: SetFiles, texts: Mapping[str, Segments]) -> None:
    """Raise OptionError if a reference is not text, and if there is text without a reference."""
    for path in files.references:
        if path not in texts:
            found = f"{display_name(path)} has statistics and stands where the reference of set '{files.name}' should"
            raise OptionError(f"{found}; leave it out, or name a reference")
    if texts and not files.references:
        found = f"set '{files.name}' has no reference, and {display_name(next(iter(texts)))} is text, not statistics"
        raise OptionError(f"{found}; {USAGE}")


def _check_scoring(basis: Basis, name: str, settings: EvaluationSettings) -> None:
    """Raise InputError for statistics of text that was scored in another way than this evaluation scores it."""
    if basis.detokenize != settings.detokenize:
        if basis.detokenize is None:
            raise InputError(name, "counted on text that was not detokenized", "evaluate without --detokenize")
        language = printable(basis.detokenize)
        raise InputError(name, f"counted on text detokenized for {language}", f"evaluate with --detokenize {language}")
    for metric, signature in settings.signatures(basis.references).items():
        if metric not in basis.signatures:
            known = ",".join(option for option, known in METRICS.items() if known in basis.signatures)
            raise InputError(name, f"has no counts for {metric}", f"evaluate with --metrics {known}, or write it again")
        if _without_version(basis.signatures[metric]) != _without_version(signature):
            found = f"{metric} is {printable(basis.signatures[metric], 200)} there and {signature} here"
            raise InputError(name, found, "give the same --tokenize and --lowercase")


def _without_version(signature: str) -> str:
    return signature.rpartition("|version:")[0]


def _other_versions(basis: Basis, settings: EvaluationSettings) -> Iterator[str]:
    """Yield which programs counted in other versions than those that are installed: allowed, and said."""
    installed = {"sacrebleu": version("sacrebleu"), "sacremoses": settings.sacremoses}
    for program, ours in installed.items():
        theirs = getattr(basis, program)
        if theirs != ours:
            yield f"made with {program} {printable(str(theirs))}, and {ours} is installed; figures may differ"


def _warnings(reference: str, looks: Mapping[str, Look], settings: EvaluationSettings) -> Iterator[tuple[str, str]]:
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


def by_message(warnings: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Make a line of every message, after the names of its files."""
    files: dict[str, dict[str, None]] = {}
    for path, message in warnings:
        files.setdefault(message, {})[display_name(path)] = None
    return tuple(f"{', '.join(names)}: {message}" for message, names in files.items())
