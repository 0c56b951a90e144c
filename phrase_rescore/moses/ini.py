"""Read a ``moses.ini``: its features, its phrase table and the weights.

As in Moses (``moses/Parameter.cpp``, ``moses/FF/FeatureFunction.cpp``) ``#`` begins a comment anywhere, and ``[section]`` names
the lines below it: in ``[feature]`` an implementation and ``key=value`` words, in ``[weight]`` ``NAME= w w …``.
"""

import codecs
import math
import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from phrase_rescore.errors import InputError
from phrase_rescore.files.inputs import display_name, open_input, open_plain
from phrase_rescore.messages import counted, printable, shown
from phrase_rescore.moses.file_kinds import kind_of_file
from phrase_rescore.moses.table import BLANKS_AND_CR, is_number, words

_LARGEST = 1 << 24  # bytes
TEXT_TABLES = (b"PhraseDictionaryMemory", b"PhraseDictionaryScope3", b"PhraseDictionarySCFG", b"RuleTable")
BINARIZED_TABLES = (b"PhraseDictionaryCompact", b"PhraseDictionaryOnDisk", b"PhraseDictionaryBinary", b"ProbingPT")
READERS = (b"members", b"components", b"target-table", b"leave-one-out-from", b"use")  # keys of features that read tables
_IN_MAPPING = re.compile(rb"PhraseDictionary.*|ProbingPT|RuleTable|Mmsapt|ExamplePT", re.DOTALL)
_FALSE = (b"0", b"false", b"f", b"no", b"n")  # moses/Util.cpp
_OLD_STYLE = (b"ttable-file", b"lmodel-file", b"weight-t", b"weight-l", b"weight-d", b"weight-w")  # moses/Parameter.cpp
_OVERWRITES = (b"feature-overwrite", b"feature-name-overwrite", b"weight-overwrite", b"alternate-weight-setting")


class IniLine(NamedTuple):
    """A line that holds values."""

    number: int  # from 1
    section: bytes
    text: bytes  # without comment and outer blanks
    words: list[bytes]  # at least one


@dataclass(frozen=True)
class Feature:
    """A feature of an ini; a phrase table if ``is_table``."""

    name: bytes
    implementation: bytes
    line: IniLine
    values: dict[bytes, bytes]  # of its ``key=value`` words, by key

    def __str__(self) -> str:
        return printable(self.name)

    def value(self, key: bytes) -> bytes:
        """Return the value of a key of its line; empty if the line lacks the key."""
        return self.values.get(key, b"")

    def is_on(self, key: bytes) -> bool:
        """Return whether a key has a value that Moses takes for true (``moses/Util.cpp``)."""
        return self.value(key).lower() in (b"1", b"true", b"yes", b"y")

    @property
    def path(self) -> bytes:
        return self.value(b"path")

    @property
    def is_table(self) -> bool:
        """Whether its scores come from a table of phrase pairs, text or binarized, and not from a glue grammar."""
        return self.implementation in TEXT_TABLES + BINARIZED_TABLES and b"glue-grammar" not in self.path

    @property
    def n_columns(self) -> int:
        """The value of ``num-features``; 1 where the line has none (``moses/FF/FeatureFunction.cpp``)."""
        return int(self.value(b"num-features") or 1)

    @property
    def is_tuneable(self) -> bool:
        """Whether tuning moves weights of the feature."""
        return self.value(b"tuneable").lower() not in _FALSE

    @property
    def tuneable_columns(self) -> list[bool]:
        """Return for every column whether tuning moves its weight."""
        tuneable = [word.lower() not in _FALSE for word in self.value(b"tuneable-components").split(b",")]
        return (tuneable + [True] * self.n_columns)[: self.n_columns]


@dataclass
class Ini:
    """An ini, which is parsed when it is asked for something."""

    text: bytes
    where: str = "moses.ini"  # the name of the file in errors

    @classmethod
    def read(cls, path: str) -> "Ini":
        """Read an ini (``-``: standard input). Raises InputError for a file too large for one, a byte order mark."""
        with open_input(path) as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise InputError(display_name(path), f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
        if text.startswith(codecs.BOM_UTF8):
            found = "a byte order mark, which hides the line from Moses"
            raise InputError(display_name(path), found, r"delete it: sed -i '1s/^\xef\xbb\xbf//'", 1)
        return cls(text, display_name(path))

    def error(self, found: str, hint: str, line: IniLine | None = None) -> InputError:
        """Return an error of the file, or of a line."""
        return InputError(self.where, found, hint, line.number if line else None)

    @cached_property
    def lines(self) -> list[IniLine]:
        """The lines that hold values, without comments and headers."""
        lines, section = list[IniLine](), b""
        for number, row in enumerate(self.text.split(b"\n"), 1):
            value = row.partition(b"#")[0].strip(BLANKS_AND_CR)
            if value.startswith(b"["):
                name, closed, _ = value[1:].partition(b"]")
                section = name if closed else section
            elif value:
                lines.append(IniLine(number, section, value, words(value)))
        return lines

    def lines_in(self, *sections: bytes) -> list[IniLine]:
        """Return the lines of sections, section after section."""
        return [line for section in sections for line in self.lines if line.section == section]

    def check_sections(self) -> None:
        """Raise InputError for an ini of the old style, and for sections that change what [feature] and [weight] say."""
        for line in self.lines:
            if line.section in _OLD_STYLE:
                hint = "convert it with Moses' scripts/training/convert-moses-ini-to-v2.perl < OLD.ini > NEW.ini"
                raise self.error(f"[{printable(line.section)}], an ini of the old style", hint, line)
            if line.section in _OVERWRITES:
                hint = "move its values into [feature] or [weight], or take it out"
                raise self.error(f"[{printable(line.section)}] in place of other sections", hint, line)

    @cached_property
    def features(self) -> list[Feature]:
        """All features, with the names that Moses gives them. Raises InputError for what Moses, or this module, cannot read."""
        self.check_sections()
        features, unnamed = list[Feature](), list[bytes]()
        for line in self.lines_in(b"feature", b"feature-add"):
            implementation, values = line.words[0], self._arguments(line)
            if not (name := values.get(b"name", b"")):  # numbered among those of its kind that have none
                name = implementation + b"%d" % unnamed.count(implementation)
                unnamed.append(implementation)
            features.append(Feature(name, implementation, line, values))
        return features

    def _arguments(self, line: IniLine) -> dict[bytes, bytes]:
        """Cut the words of a line, but for the first, into keys and values."""
        values = dict[bytes, bytes]()
        for word in line.words[1:]:
            key, sign, value = word.partition(b"=")
            if not sign:
                raise self.error(f"{shown(word)} in [{printable(line.section)}]", "Moses wants key=value there", line)
            if key in values:
                raise self.error(f"{printable(key)}= twice in a line", "Moses wants every key once", line)
            if key == b"num-features" and not re.fullmatch(rb"0*\d{1,9}", value):
                raise self.error(f"num-features={printable(value)}", "write the number of the table's score columns", line)
            values[key] = value
        return values

    def find_table(self, name: bytes | None = None) -> Feature:
        """Find the phrase table of that name, or the only one. Raises InputError."""
        tables = [feature for feature in self.features if feature.is_table]
        if not tables:
            kinds = ", ".join(map(printable, TEXT_TABLES + BINARIZED_TABLES))
            raise self.error("no phrase table among its features", f"pass the ini of a phrase table ({kinds})")
        named = [table for table in tables if name in (None, table.name)]
        if len(named) != 1:
            found = counted(len(named), "phrase table") + (f" of the name {printable(name)}" if name else "")
            choice = (f"--feature {table} (line {table.line.number}, path={printable(table.path)})" for table in tables)
            raise self.error(found, f"choose one with {' or '.join(choice)}")
        return named[0]

    def check_used(self, table: Feature) -> None:
        """Raise InputError if new columns of a table would have no effect or do harm.

        That is so if ``[mapping]`` does not use it, or another feature reads its scores: a group or a mixture of tables, or a
        classifier that was trained without them (``PhraseDictionaryGroup``, ``PhraseDictionaryMultiModel``, ``VW``).
        """
        for other in self.features:
            reads_all = other.implementation == b"VWFeatureTargetPhraseScores" and not other.value(b"use")
            if reads_all or any(table.name in other.value(key).split(b",") for key in READERS):
                hint = "it knows nothing of new columns; change it, its weights and the table by hand, or take it out"
                raise self.error(f"{other} reads the scores of {table}", hint, other.line)
        if self.mapped is not None and table.name not in self.mapped:
            raise self.error(f"no line of [mapping] uses {table}", "add one, or name another table with --feature", table.line)

    @property
    def mapped(self) -> set[bytes] | None:
        """The names of the tables that ``[mapping]`` uses; None without steps as phrase-based Moses has them."""
        steps = [line.words for line in self.lines_in(b"mapping")]
        known = all(len(step) in (2, 3) and step[-2] in (b"T", b"G") and re.fullmatch(rb"\d{1,9}", step[-1]) for step in steps)
        if not (steps and known):
            return None
        chosen = {int(step[-1]) for step in steps if step[-2] == b"T"}
        numbered = (feature for feature in self.features if _IN_MAPPING.fullmatch(feature.implementation))
        return {table.name for number, table in enumerate(numbered) if number in chosen}

    def weight_line(self, feature: Feature) -> IniLine:
        """Find the last line of a feature's weights, which Moses takes. Raises InputError without one weight for each score."""
        n = feature.n_columns
        own = [line for line in self.lines_in(b"weight-add", b"weight") if line.words[0][:-1] == feature.name]
        if not own:
            hint = f"Moses would take 1 for every column: write '{feature}= w …' with {counted(n, 'weight')} below [weight]"
            raise self.error(f"no weight of {feature} in [weight]", hint)
        if (n_weights := len(own[-1].words) - 1) != n:
            found = f"{feature} has {counted(n_weights, 'weight')} but num-features={n} (line {feature.line.number})"
            raise self.error(found, "set num-features back to the columns of the old table; moses-ini raises both", own[-1])
        return own[-1]


def is_ini(path: str) -> bool:
    """Return whether a file looks like an ini."""
    if not os.path.isfile(path):
        return False
    with open_plain(path) as stream:
        rows = stream.read(1 << 20).split(b"\n")
    return kind_of_file([row for row in rows if row.partition(b"#")[0].strip(BLANKS_AND_CR)]) == "ini"


def _line_of_weights(line: IniLine, where: str) -> tuple[bytes, list[float]]:
    """Read ``NAME= w w …``, or ``NAME w`` of a file of sparse weights. Raises InputError."""
    name, *numbers = line.words
    values = [float(number) if is_number(number) else math.nan for number in numbers]
    is_sparse = line.section == b"weight-file"
    fits = not name.endswith(b"=") and len(values) == 1 if is_sparse else name.endswith(b"=")
    if not fits or not all(map(math.isfinite, values)):
        section, form = ("", "NAME and a number") if is_sparse else (f" in [{printable(line.section)}]", "NAME= and numbers")
        raise InputError(where, f"{shown(line.text)}{section}", f"Moses wants {form} there", line.number)
    return name.removesuffix(b"="), values


def read_weights(path: str) -> dict[bytes, list[float]]:
    """Return the weights of an ini by name: those of ``[weight]``, and sparse ones of the file that ``[weight-file]`` names.

    Of that file labels with an underscore count. Raises InputError for a bad weight, a section for tuning, and no weight.
    """
    ini = Ini.read(path)
    ini.check_sections()
    weights = dict[bytes, list[float]]()
    files = ini.lines_in(b"weight-file")
    if files[1:]:
        raise ini.error("a second file in [weight-file]", "Moses reads the first alone: leave one", files[1])
    for line in files:
        named = os.fsdecode(line.text)
        path = next(filter(os.path.exists, (named, os.path.join(os.path.dirname(ini.where), named))), "")
        if not path:
            hint = "write its whole path (Moses looks in the working directory, rescore beside the ini too)"
            raise ini.error(f"no file {printable(line.text)}, which [weight-file] names", hint, line)
        for number, row in enumerate(Ini.read(path).text.split(b"\n"), 1):  # moses/FeatureVector.cpp, FVector::load
            if row[:1] != b"#" and (parts := words(text := row.strip(BLANKS_AND_CR))):
                name, values = _line_of_weights(IniLine(number, line.section, text, parts), path)
                if b"_" in name:
                    weights[name] = values
    # the later one is taken (moses/Parameter.cpp)
    weights.update(_line_of_weights(line, ini.where) for line in ini.lines_in(b"weight-add", b"weight"))
    if not weights:
        raise ini.error("no weights in it", "pass an ini with a section [weight]")
    return weights
