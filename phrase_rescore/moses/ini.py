"""Read a ``moses.ini``: its features, its phrase table and the weights.

As in Moses (``moses/Parameter.cpp``, ``moses/FF/FeatureFunction.cpp``) ``#`` begins a comment anywhere, and ``[section]`` names
the lines below it: in ``[feature]`` an implementation and ``key=value`` words, in ``[weight]`` ``NAME= w w …``.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from phrase_rescore.errors import InputError, counted, printable, shown
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.table import BLANKS_AND_CR, is_number, words

_LARGEST = 1 << 24  # bytes
TEXT_TABLES = (b"PhraseDictionaryMemory", b"PhraseDictionaryScope3", b"PhraseDictionarySCFG", b"RuleTable")
BINARIZED_TABLES = (b"PhraseDictionaryCompact", b"PhraseDictionaryOnDisk", b"PhraseDictionaryBinary", b"ProbingPT")
_FALSE = (b"0", b"false", b"f", b"no", b"n")  # moses/Util.cpp


class IniLine(NamedTuple):
    """A line that holds values."""

    number: int  # from 1
    section: bytes
    text: bytes  # without comment and outer blanks
    words: list[bytes]  # at least one


def read_lines(ini: bytes) -> Iterator[IniLine]:
    """Read the lines that hold values, without comments and headers."""
    section = b""
    for number, row in enumerate(ini.split(b"\n"), 1):
        text = row.partition(b"#")[0].strip(BLANKS_AND_CR)
        if text.startswith(b"["):
            name, closed, _ = text[1:].partition(b"]")
            section = name if closed else section
        elif text:
            yield IniLine(number, section, text, words(text))


@dataclass(frozen=True)
class Feature:
    """A feature of an ini; a phrase table if ``is_table``."""

    name: bytes
    implementation: bytes
    line: IniLine
    values: dict[bytes, bytes]  # of its ``key=value`` words, by key
    weights_line: int = 0  # the number of the line of its weights; ``find_table`` sets it

    def __str__(self) -> str:
        return printable(self.name)

    def value(self, key: bytes) -> bytes:
        """Look up a key of its line; the value is empty where the line has no such key."""
        return self.values.get(key, b"")

    @property
    def path(self) -> bytes:
        return self.value(b"path")

    @property
    def is_table(self) -> bool:
        """Tell whether its scores come from a table of phrase pairs, text or binarized; a glue grammar's do not."""
        return self.implementation in TEXT_TABLES + BINARIZED_TABLES and b"glue-grammar" not in self.path

    @property
    def n_columns(self) -> int:
        """The value of ``num-features``; 1 where the line has none (``moses/FF/FeatureFunction.cpp``)."""
        return int(self.value(b"num-features") or 1)

    def is_tuneable(self, column: int) -> bool:
        """Tell whether tuning moves the weight of a column, counted from 0; it moves those of columns added."""
        tuneable = self.value(b"tuneable-components").split(b",")
        return column >= min(len(tuneable), self.n_columns) or tuneable[column].lower() not in _FALSE


def read_features(lines: Sequence[IniLine], where: str) -> list[Feature]:
    """List all features, under Moses' names. Raises InputError for a word that is not ``key=value``, and for a repeated key."""
    features, unnamed = list[Feature](), list[bytes]()
    for line in lines:
        if line.section != b"feature":
            continue
        implementation, values = line.words[0], dict[bytes, bytes]()
        for word in line.words[1:]:
            key, sign, value = word.partition(b"=")
            if not sign:
                raise InputError(where, f"{shown(word)} in [feature]", "Moses wants key=value there", line.number)
            if key in values:
                raise InputError(where, f"{printable(key)}= stands twice in a line", "Moses wants every key once", line.number)
            values[key] = value
        if not (name := values.get(b"name", b"")):  # numbered among those of its kind that have none
            name = implementation + b"%d" % unnamed.count(implementation)
            unnamed.append(implementation)
        features.append(Feature(name, implementation, line, values))
    return features


def _chosen(name: bytes | None, where: str, lines: Sequence[IniLine]) -> Feature:
    """Find the phrase table of that name, or else the only one."""
    if old := next((line for line in lines if line.section == b"ttable-file"), None):
        hint = "convert it with Moses' scripts/training/convert-moses-ini-to-v2.perl < OLD.ini > NEW.ini"
        raise InputError(where, "[ttable-file], an ini of the old style", hint, old.number)
    features = read_features(lines, where)
    if not features:
        raise InputError(where, "no feature in it", "pass the moses.ini that train-model.perl or mert-moses.pl wrote")
    tables = [feature for feature in features if feature.is_table]
    if not tables:
        others = ", ".join(dict.fromkeys(printable(feature.implementation) for feature in features))
        known = ", ".join(map(printable, TEXT_TABLES + BINARIZED_TABLES))
        raise InputError(where, f"no phrase table among its features ({others})", f"phrase tables are {known}")
    choice = " or ".join(f"--feature {table}" for table in tables)
    if name is None and len(tables) > 1:
        listed = ", ".join(f"{table} (line {table.line.number}, path={printable(table.path)})" for table in tables)
        raise InputError(where, f"{len(tables)} phrase tables: {listed}", f"choose one with {choice}")
    named = [feature for feature in features if feature.name == (tables[0].name if name is None else name)]
    if not named:
        raise InputError(where, f"no feature is named {printable(name or b'')}", f"use {choice}")
    if len(named) > 1:
        raise InputError(where, f"two features are named {named[0]}", "give each its own name=", named[1].line.number)
    if not named[0].is_table:
        found = f"{named[0]} is not a phrase table: {shown(named[0].line.text)}"
        raise InputError(where, found, f"use {choice}", named[0].line.number)
    return named[0]


def _weight_line(feature: Feature, where: str, lines: Sequence[IniLine]) -> int:
    """Find the number of the feature's line in ``[weight]``; of several, Moses takes the last one."""
    n = feature.n_columns
    example = f"'{feature}= w w …'" if n > 1 else f"'{feature}= w'"
    weights = [line for line in lines if line.section == b"weight"]
    own = [line for line in weights if line.words[0][:-1] == feature.name]
    if not own:
        for line in weights:
            if re.match(re.escape(feature.name) + rb"[ \t]*=", line.text):
                found = f"{shown(line.text)} is not a weight of {feature}"
                raise InputError(where, found, f"glue '=' to the name, with a blank after it: {example}", line.number)
        found = f"no weight of {feature} in [weight]"
        raise InputError(where, found, f"Moses would take 1 for every column: write {example} with {n} weights below [weight]")
    line, n_weights = own[-1], len(own[-1].words) - 1
    if n_weights != n:
        found = f"{counted(n_weights, 'weight')} of {feature}, of which num-features={n} (line {feature.line.number})"
        hint = "Moses stops there: make them as many as the columns of the table it had so far"
        raise InputError(where, found, hint, line.number)
    return line.number


def find_table(ini: bytes, name: bytes | None = None, where: str = "moses.ini") -> Feature:
    """Find the phrase table of that name, or the only one, with ``weights_line``. ``where`` is the file's name.

    Raises InputError for an ini of the old style, for no such table or several, and for weights that do not fit it.
    """
    lines = list(read_lines(ini))
    feature = _chosen(name, where, lines)
    number = feature.values.get(b"num-features")
    if number is not None and not re.fullmatch(rb"0*[1-9]\d{0,8}", number):
        found = f"num-features={printable(number)}"
        raise InputError(where, found, "write the number of the table's score columns", feature.line.number)
    return replace(feature, weights_line=_weight_line(feature, where, lines))


def read_ini(path: str) -> bytes:
    """Return the text of an ini (``-``: standard input). Raises InputError for a file that is too large for one."""
    with open_input(path) as stream:
        ini = stream.read(_LARGEST + 1)
    if len(ini) > _LARGEST:
        raise InputError(display_name(path), f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
    return ini


def read_weights(ini: bytes, where: str = "moses.ini") -> dict[bytes, list[float]]:
    """Return the weights of ``[weight]`` by name. Raises InputError for a line that is not ``NAME= w w …``, and without any."""
    weights = dict[bytes, list[float]]()
    for line in read_lines(ini):
        if line.section == b"weight":
            name, *numbers = line.words
            values = [float(number) if is_number(number) else math.nan for number in numbers]
            if not name.endswith(b"=") or not all(map(math.isfinite, values)):
                found = f"{shown(line.text)} in [weight]"
                raise InputError(where, found, "Moses wants NAME= and numbers there", line.number)
            weights[name[:-1]] = values
    if not weights:
        raise InputError(where, "no weights in it", "pass an ini with a section [weight]")
    return weights
