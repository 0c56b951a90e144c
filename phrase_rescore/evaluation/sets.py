"""The files of a set, read: outputs as text or as statistics, what does not go together, and what misleads."""

from collections.abc import Iterator, Mapping

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.evaluation.corpora import (
    USAGE,
    Segments,
    SetFiles,
    Text,
    check_lines,
    check_source,
    read_lines,
    segments_of,
)
from phrase_rescore.evaluation.counts import Basis, OutputStatistics, read_output
from phrase_rescore.evaluation.metrics import METRICS, EvaluationSettings, sacrebleu_version
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import printable
from phrase_rescore.moses.text import look, mismatch
from phrase_rescore.moses.tokenizer import detokenized, sacremoses_version

Output = Text | OutputStatistics


class ReadSet:
    """The files of a set, read. Raises OptionError and InputError for files that do not go together."""

    def __init__(self, files: SetFiles, settings: EvaluationSettings) -> None:
        self.files = files
        self.warnings = list[tuple[str, str]]()  # a file, and what about it
        self.outputs: dict[str, Output] = {path: read_output(path) for path in dict.fromkeys(files.paths())}
        self._check_kinds(settings)
        check_lines(self.outputs)
        self.warnings += _empty_lines(files, self._texts())
        if settings.detokenize:
            for path, text in self._texts().items():
                plain = detokenized(text.segments, settings.detokenize, display_name(path))
                self.outputs[path] = Text(plain, text.phrases)
        elif texts := self._texts():
            self.warnings += _misleading(texts, settings)
        texts = self._texts()
        self.references = tuple(texts[path].segments for path in files.references)  # none if all outputs are statistics
        first = next(iter(self.outputs.values()))
        self.basis = first.basis if isinstance(first, OutputStatistics) else Basis.of(self.references, settings)
        self._check_statistics(settings)

    def _texts(self) -> dict[str, Text]:
        return {path: output for path, output in self.outputs.items() if isinstance(output, Text)}

    def _statistics(self) -> dict[str, OutputStatistics]:
        return {path: output for path, output in self.outputs.items() if isinstance(output, OutputStatistics)}

    def _check_kinds(self, settings: EvaluationSettings) -> None:
        """Raise OptionError for statistics where text is needed, and for text without a reference."""
        texts, statistics = self._texts(), self._statistics()
        for path in self.files.references:
            if path in statistics:
                found = f"{display_name(path)} has statistics, but is the reference of set '{self.files.name}'"
                raise OptionError(f"{found}; leave it out, or name a reference")
        if texts and not self.files.references:
            found = f"{display_name(next(iter(texts)))} is text, not statistics"
            raise OptionError(f"set '{self.files.name}' has no reference, but {found}; {USAGE}")
        if statistics and settings.examples:
            found = f"{display_name(next(iter(statistics)))} has statistics"
            raise OptionError(f"--examples shows text, and {found}; give the output")

    def _check_statistics(self, settings: EvaluationSettings) -> None:
        """Warn of statistics by other programs. Raises InputError for other settings or references than those of this set."""
        against = ", ".join(map(display_name, self.files.references)) or f"those of {display_name(next(iter(self.outputs)))}"
        for path, statistics in self._statistics().items():
            name = display_name(path)
            _check_settings(statistics.basis, name, settings)
            self.warnings += [(path, warning) for warning in _other_programs(statistics.basis)]
            if statistics.basis.references_sha256 != self.basis.references_sha256:
                hint = "figures against different references cannot be compared"
                raise InputError(name, f"counted against other references than {against}", hint)

    def first_text(self, system: str) -> Text:
        """Return the first output of a system, which must be text."""
        return self._texts()[self.files.systems[system][0]]

    def read_source(self, path: str) -> Segments:
        """Read the source of the set. Raises InputError if it does not fit the references, or the phrases of an output."""
        source = segments_of(display_name(path), read_lines(path))
        check_lines({self.files.references[0]: self.references[0], path: source})
        for output, text in self._texts().items():
            if text.phrases:
                check_source(source, display_name(output), text.phrases)
        return source


def _check_settings(basis: Basis, name: str, settings: EvaluationSettings) -> None:
    """Raise InputError for statistics of text that was scored with other settings than these."""
    if basis.detokenize != settings.detokenize:
        if basis.detokenize is None:
            raise InputError(name, "counted on text that was not detokenized", "evaluate without --detokenize")
        language = printable(basis.detokenize)
        raise InputError(name, f"counted on text detokenized for {language}", f"evaluate with --detokenize {language}")
    for metric, here in settings.signatures(basis.references).items():
        there = basis.signatures.get(metric)
        if there is None:
            known = ",".join(option for option, score in METRICS.items() if score in basis.signatures)
            raise InputError(name, f"has no counts for {metric}", f"evaluate with --metrics {known}, or write it again")
        if there.rpartition("|version:")[0] != here.rpartition("|version:")[0]:
            found = f"{metric} is {printable(there, 200)} there and {here} here"
            raise InputError(name, found, "give the same --tokenize and --lowercase")


def _other_programs(basis: Basis) -> Iterator[str]:
    """Yield a warning for each other version of a program that made these statistics."""
    if basis.sacrebleu != (installed := sacrebleu_version()):
        yield f"made with sacrebleu {printable(basis.sacrebleu)}, but {installed} is installed; figures may differ"
    if basis.detokenize is not None and basis.sacremoses != (installed := sacremoses_version()):
        by = f"sacremoses {printable(str(basis.sacremoses))}"
        yield f"detokenized by {by}, but sacremoses {installed} is installed; figures may differ"


def _empty_lines(files: SetFiles, texts: Mapping[str, Text]) -> Iterator[tuple[str, str]]:
    """Yield a warning for outputs with empty lines where the reference has text. Raises InputError if they are over half."""
    references = [texts[path].segments for path in files.references]
    to_translate = [any(segments) for segments in zip(*references, strict=True)]
    total = sum(to_translate)
    for path, text in texts.items():
        if path in files.references:
            continue
        empty = sum(wanted and not segment for wanted, segment in zip(to_translate, text.segments, strict=True))
        found = f"{empty:,} of {total:,} lines are empty, but not in the reference"
        if 2 * empty > total:
            raise InputError(display_name(path), found, "translate the whole set again")
        if empty:
            yield path, f"{found}; they count as lost"


def _misleading(texts: Mapping[str, Text], settings: EvaluationSettings) -> Iterator[tuple[str, str]]:
    """Yield warnings of texts whose scores mislead: (file, warning). The first one is a reference."""
    looks = {path: look(text.segments) for path, text in texts.items()}
    first, reference = next(iter(looks.items()))
    for path, of_text in looks.items():
        if difference := mismatch(reference, of_text):
            yield path, f"{difference} ({display_name(first)}); --detokenize LANG makes both plain text"
    if reference.escaped and "chrf" in settings.metrics:
        found = "the text has Moses' escapes such as &apos;, and chrF counts their characters"
        yield first, f"{found}; undo them with --detokenize LANG"
    if "bleu" in settings.metrics and reference.tokenized and settings.tokenization in ("13a", "intl"):
        found = f"tokenized text, which BLEU tokenizes again ({settings.tokenization})"
        yield first, f"{found}; add --tokenize none or --detokenize LANG"
    if "bleu" in settings.metrics and reference.tokenized is False and settings.tokenization == "none":
        yield first, "not tokenized, but BLEU takes text between blanks for words; add --tokenize 13a"
