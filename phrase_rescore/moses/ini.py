"""Read a ``moses.ini``: its features, its phrase table and the weights.

As in Moses (``moses/Parameter.cpp``, ``moses/FF/FeatureFunction.cpp``) ``#`` begins a comment anywhere, and ``[section]`` names
the lines below it: in ``[feature]`` an implementation and ``key=value`` words, in ``[weight]`` ``NAME= w w …``.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
GROUP = b"PhraseDictionaryGroup"
_FALSE = (b"0", b"false", b"f", b"no", b"n")  # moses/Util.cpp
_OLD_STYLE = (b"ttable-file", b"lmodel-file", b"weight-t", b"weight-l", b"weight-d", b"weight-w")  # moses/Parameter.cpp
_COUNT_COLUMNS = "write the number of the table's score columns"


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
    values: dict[bytes, bytes]  # of its ``key=value`` words, by key, as ``[feature-overwrite]`` leaves them
    places: dict[bytes, int]  # the numbers of the lines where ``[feature-overwrite]`` sets them
    weights: tuple[IniLine, ...] = ()  # the lines of its weights; ``find_table`` and ``uses_of`` set them

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

    @property
    def members(self) -> list[bytes]:
        """The names of a group's members."""
        return [name for name in self.value(b"members").split(b",") if name]


@dataclass
class Ini:
    """An ini, which is parsed when it is asked for something."""

    text: bytes
    where: str = "moses.ini"  # the name of the file in errors

    @classmethod
    def read(cls, path: str) -> "Ini":
        """Read an ini (``-``: standard input). Raises InputError for a file that is too large for one."""
        with open_input(path) as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise InputError(display_name(path), f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
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

    @property
    def search_algorithm(self) -> bytes:
        return next((line.words[0] for line in self.lines_in(b"search-algorithm")), b"0")

    @cached_property
    def features(self) -> list[Feature]:
        """All features, with the names and values that Moses gives them. Raises InputError for what Moses cannot read."""
        if old := next((line for line in self.lines if line.section in _OLD_STYLE), None):
            hint = "convert it with Moses' scripts/training/convert-moses-ini-to-v2.perl < OLD.ini > NEW.ini"
            raise self.error(f"[{printable(old.section)}], an ini of the old style", hint, old)
        names = [word for line in self.lines_in(b"feature-name-overwrite") for word in line.words]
        renamed = dict(zip(names[::2], names[1::2], strict=False))  # StaticData::OverrideFeatureNames
        if self.search_algorithm in (b"6", b"7", b"8", b"9"):  # moses/StaticData.cpp
            renamed |= dict.fromkeys((b"PhraseDictionaryMemory", b"PhraseDictionaryScope3"), b"RuleTable")
        features, unnamed = list[Feature](), list[bytes]()
        for line in self.lines_in(b"feature", b"feature-add"):
            implementation, values = renamed.get(line.words[0], line.words[0]), self._arguments(line)
            if not (name := values.get(b"name", b"")):  # numbered among those of its kind that have none
                name = implementation + b"%d" % unnamed.count(implementation)
                unnamed.append(implementation)
            features.append(Feature(name, implementation, line, values, {}))
        self._overwrite(features)
        return features

    def _overwrite(self, features: Sequence[Feature]) -> None:
        """Give features the values of ``[feature-overwrite]``."""
        for line in self.lines_in(b"feature-overwrite"):
            values = self._arguments(line)
            if fixed := values.keys() & {b"name", b"num-features"}:
                hint = "Moses stops there: write it in [feature]"
                raise self.error(f"{printable(min(fixed))}= in [feature-overwrite]", hint, line)
            for feature in features:
                if feature.name == line.words[0]:
                    feature.values.update(values)
                    feature.places.update(dict.fromkeys(values, line.number))

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
                raise self.error(f"num-features={printable(value)}", _COUNT_COLUMNS, line)
            values[key] = value
        return values

    def find_table(self, name: bytes | None = None) -> Feature:
        """Find the phrase table of that name, or the only one, with ``weights``. Raises InputError."""
        if not self.features:
            raise self.error("no feature in it", "pass the moses.ini that train-model.perl or mert-moses.pl wrote")
        tables = [feature for feature in self.features if feature.is_table]
        if not tables:
            others = ", ".join(dict.fromkeys(printable(feature.implementation) for feature in self.features))
            hint = f"phrase tables are {', '.join(map(printable, TEXT_TABLES + BINARIZED_TABLES))}, glue grammars apart"
            raise self.error(f"no phrase table among its features ({others})", hint)
        choice = " or ".join(f"--feature {table}" for table in tables)
        if name is None and len(tables) > 1:
            listed = ", ".join(f"{table} (line {table.line.number}, path={printable(table.path)})" for table in tables)
            raise self.error(f"{len(tables)} phrase tables: {listed}", f"choose one with {choice}")
        named = [feature for feature in self.features if feature.name == (tables[0].name if name is None else name)]
        if not named:
            raise self.error(f"no feature is named {printable(name or b'')}", f"use {choice}")
        if len(named) > 1:
            raise self.error(f"two features are named {named[0]}", "give each another name=", named[1].line)
        table, line = named[0], named[0].line
        if not table.is_table:
            raise self.error(f"{table} is not a phrase table: {shown(line.text)}", f"use {choice}", line)
        if table.value(b"num-features") and not table.n_columns:
            raise self.error(f"num-features={printable(table.value(b'num-features'))}", _COUNT_COLUMNS, line)
        return replace(table, weights=self.weight_lines(table))

    def weight_lines(self, feature: Feature) -> tuple[IniLine, ...]:
        """Find the last line of a feature's weights, which Moses takes, and those of alternate settings. Raises InputError."""
        n, name = feature.n_columns, feature.name
        own = [line for line in self.lines_in(b"weight-add", b"weight") if line.words[0][:-1] == name]
        for line in self.lines_in(b"weight-overwrite"):
            if name + b"=" in line.words:
                hint = "move them into [weight]; Moses takes them in place of those"
                raise self.error(f"weights of {feature} in [weight-overwrite]", hint, line)
        if not own:
            example = f"'{feature}= w w …'" if n > 1 else f"'{feature}= w'"
            for line in self.lines_in(b"weight"):
                if re.match(re.escape(name) + rb"[ \t]*=", line.text):
                    hint = f"glue '=' to the name, with a blank after it: {example}"
                    raise self.error(f"{shown(line.text)} is not a weight of {feature}", hint, line)
            hint = f"Moses would take 1 for every column: write {example} with {counted(n, 'weight')} below [weight]"
            raise self.error(f"no weight of {feature} in [weight]", hint)
        taken = (own[-1], *(line for line in self.lines_in(b"alternate-weight-setting") if line.words[0][:-1] == name))
        for line in taken:
            if (n_weights := len(line.words) - 1) != n:
                found = f"{feature} has {counted(n_weights, 'weight')} but num-features={n} (line {feature.line.number})"
                raise self.error(found, "set num-features back to the columns of the old table; moses-ini raises both", line)
        return taken


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
    files = ini.lines_in(b"weight-file")
    if files[1:]:
        raise ini.error("a second file in [weight-file]", "Moses reads the first alone: leave one", files[1])
    weights = dict[bytes, list[float]]()
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
    for line in ini.lines:
        if line.section in (b"weight-overwrite", b"alternate-weight-setting"):
            raise ini.error(f"weights in [{printable(line.section)}]", "move them into [weight]", line)
    if not weights:
        raise ini.error("no weights in it", "pass an ini with a section [weight]")
    return weights
