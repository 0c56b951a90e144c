"""The files of a set, read: outputs as text or as statistics, what does not go together, and what misleads."""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.evaluation.corpora import USAGE, Segments, SetFiles, check_lines, read_lines, segments_of
from phrase_rescore.evaluation.counts import Basis, OutputStatistics, read_output
from phrase_rescore.evaluation.metrics import EvaluationSettings
from phrase_rescore.files.inputs import display_name
from phrase_rescore.messages import printable
from phrase_rescore.moses.text import look, mismatch
from phrase_rescore.moses.tokenizer import detokenized, sacremoses_version

Runs = Sequence[OutputStatistics]  # the outputs of a system


class ReadSet:
    """The files of a set, read. Raises OptionError and InputError for files that do not go together."""

    def __init__(self, files: SetFiles, settings: EvaluationSettings) -> None:
        self.files = files
        self.warnings = list[tuple[str, str]]()  # a file, and what about it
        read = {path: read_output(path) for path in dict.fromkeys(files.paths())}
        self._statistics = {path: output for path, output in read.items() if isinstance(output, OutputStatistics)}
        self.texts = {path: output for path, output in read.items() if not isinstance(output, OutputStatistics)}
        self._check_kinds(settings)
        check_lines(read)
        if self.texts:
            self.warnings += self._empty_lines()
            if settings.detokenize is None:
                self.warnings += self._misleading(settings)
        if settings.detokenize is not None:
            for path, text in self.texts.items():
                self.texts[path] = detokenized(text, settings.detokenize, display_name(path))
        self.references = tuple(self.texts[path] for path in files.references)  # none if all outputs are statistics
        if self.references:
            self.basis = Basis.of(self.references, settings)
        else:
            self.basis = next(iter(self._statistics.values())).basis
        for path, statistics in self._statistics.items():
            self._check_basis(path, statistics.basis, settings)

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
            if difference := mismatch(reference, of_text):
                yield path, f"{difference} ({display_name(first)}); --detokenize LANG makes both plain text"
        if reference.escaped and "chrf" in settings.metrics:
            found = "the text has Moses' escapes such as &apos;, and chrF counts their characters"
            yield first, f"{found}; undo them with --detokenize LANG"
        if "bleu" in settings.metrics and reference.tokenized is False and settings.tokenization == "none":
            yield first, "not tokenized, but BLEU takes text between blanks for words; add --tokenize 13a"

    def count(self, settings: EvaluationSettings, on_output: Callable[[], object]) -> dict[str, Runs]:
        """Return the counts of every system's outputs. A file that stands for several is counted once: TER takes seconds."""
        metrics, counted = settings.make_metrics(self.references), dict(self._statistics)
        for path in chain.from_iterable(self.files.systems.values()):
            on_output()
            if path not in counted:
                counted[path] = OutputStatistics(
                    self.basis, {name: metric.counts(self.texts[path]) for name, metric in metrics.items()}
                )
        return {system: [counted[path] for path in paths] for system, paths in self.files.systems.items()}

    def read_source(self, path: str) -> Segments:
        """Read the source of the set. Raises InputError if it has another number of lines than the references."""
        source = segments_of(display_name(path), read_lines(path))
        check_lines({self.files.references[0]: self.references[0], path: source})
        return source
