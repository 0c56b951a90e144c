"""Read a ``moses.ini``: its features, its phrase table and the weights.

As in Moses (``moses/Parameter.cpp``, ``moses/FF/FeatureFunction.cpp``) ``#`` begins a comment anywhere, and ``[section]`` names
the lines below it: in ``[feature]`` an implementation and ``key=value`` words, in ``[weight]`` ``NAME= w w …``.
"""

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from phrase_rescore.errors import InputError, counted, printable, shown
from phrase_rescore.files.inputs import display_name, open_input, open_plain
from phrase_rescore.moses.table import BLANKS_AND_CR, is_number, words

_LARGEST = 1 << 24  # bytes
TEXT_TABLES = (b"PhraseDictionaryMemory", b"PhraseDictionaryScope3", b"PhraseDictionarySCFG", b"RuleTable")
BINARIZED_TABLES = (b"PhraseDictionaryCompact", b"PhraseDictionaryOnDisk", b"PhraseDictionaryBinary", b"ProbingPT")
GROUP = b"PhraseDictionaryGroup"
_FALSE = (b"0", b"false", b"f", b"no", b"n")  # moses/Util.cpp
_OLD_STYLE = (b"ttable-file", b"lmodel-file", b"weight-t", b"weight-l", b"weight-d", b"weight-w")  # moses/Parameter.cpp
_SYNTAX = (b"6", b"7", b"8", b"9")  # search algorithms that take tables in memory for RuleTable (moses/StaticData.cpp)


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
    values: dict[bytes, bytes]  # of its ``key=value`` words, by key, as ``[feature-overwrite]`` leaves them
    places: dict[bytes, int]  # the numbers of the lines where ``[feature-overwrite]`` sets them
    weights: tuple[IniLine, ...] = ()  # the lines of its weights; ``find_table`` and ``groups_of`` set them

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

    @property
    def n_extra(self) -> int:
        """The number of scores that a group adds to those of its members (``PhraseDictionaryGroup::Load``)."""
        n = len(self.members)
        extra = {b"phrase-counts": n, b"word-counts": n, b"model-bitmap-counts": (1 << min(n, 64)) - 1}
        return sum(more for key, more in extra.items() if self.is_on(key))


def _arguments(line: IniLine, where: str) -> dict[bytes, bytes]:
    """Cut the words of a line, but for the first, into keys and values."""
    values = dict[bytes, bytes]()
    for word in line.words[1:]:
        key, sign, value = word.partition(b"=")
        if not sign:
            raise InputError(where, f"{shown(word)} in [{printable(line.section)}]", "Moses wants key=value there", line.number)
        if key in values:
            raise InputError(where, f"{printable(key)}= twice in a line", "Moses wants every key once", line.number)
        if key == b"num-features" and not re.fullmatch(rb"0*\d{1,9}", value):
            raise InputError(
                where, f"num-features={printable(value)}", "write the number of the table's score columns", line.number
            )
        values[key] = value
    return values


def _new_implementations(lines: Sequence[IniLine]) -> dict[bytes, bytes]:
    """Tell which implementations Moses takes in place of those in the ini (``StaticData::OverrideFeatureNames``)."""
    names = [word for line in lines if line.section == b"feature-name-overwrite" for word in line.words]
    new = dict(zip(names[::2], names[1::2], strict=False))
    if search_algorithm(lines) in _SYNTAX:
        new |= dict.fromkeys((b"PhraseDictionaryMemory", b"PhraseDictionaryScope3"), b"RuleTable")
    return new


def search_algorithm(lines: Sequence[IniLine]) -> bytes:
    return next((line.words[0] for line in lines if line.section == b"search-algorithm"), b"0")


def read_features(lines: Sequence[IniLine], where: str) -> list[Feature]:
    """List all features, with the names and values that Moses gives them. Raises InputError for what Moses cannot read."""
    if old := next((line for line in lines if line.section in _OLD_STYLE), None):
        hint = "convert it with Moses' scripts/training/convert-moses-ini-to-v2.perl < OLD.ini > NEW.ini"
        raise InputError(where, f"[{printable(old.section)}], an ini of the old style", hint, old.number)
    features, unnamed, renamed = list[Feature](), list[bytes](), _new_implementations(lines)
    for section in (b"feature", b"feature-add"):
        for line in lines:
            if line.section != section:
                continue
            implementation, values = renamed.get(line.words[0], line.words[0]), _arguments(line, where)
            if not (name := values.get(b"name", b"")):  # numbered among those of its kind that have none
                name = implementation + b"%d" % unnamed.count(implementation)
                unnamed.append(implementation)
            features.append(Feature(name, implementation, line, values, {}))
    for line in lines:
        if line.section == b"feature-overwrite":
            again = _arguments(line, where)
            if fixed := again.keys() & {b"name", b"num-features"}:
                found = f"{printable(min(fixed))}= in [feature-overwrite]"
                raise InputError(where, found, "Moses stops there: write it in [feature]", line.number)
            for feature in features:
                if feature.name == line.words[0]:
                    feature.values.update(again)
                    feature.places.update(dict.fromkeys(again, line.number))
    return features


def _chosen(name: bytes | None, where: str, features: Sequence[Feature]) -> Feature:
    """Find the phrase table of that name, or else the only one."""
    if not features:
        raise InputError(where, "no feature in it", "pass the moses.ini that train-model.perl or mert-moses.pl wrote")
    tables = [feature for feature in features if feature.is_table]
    if not tables:
        others = ", ".join(dict.fromkeys(printable(feature.implementation) for feature in features))
        known = ", ".join(map(printable, TEXT_TABLES + BINARIZED_TABLES))
        raise InputError(
            where, f"no phrase table among its features ({others})", f"phrase tables are {known}, glue grammars apart"
        )
    choice = " or ".join(f"--feature {table}" for table in tables)
    if name is None and len(tables) > 1:
        listed = ", ".join(f"{table} (line {table.line.number}, path={printable(table.path)})" for table in tables)
        raise InputError(where, f"{len(tables)} phrase tables: {listed}", f"choose one with {choice}")
    named = [feature for feature in features if feature.name == (tables[0].name if name is None else name)]
    if not named:
        raise InputError(where, f"no feature is named {printable(name or b'')}", f"use {choice}")
    if len(named) > 1:
        raise InputError(where, f"two features are named {named[0]}", "give each another name=", named[1].line.number)
    if not named[0].is_table:
        found = f"{named[0]} is not a phrase table: {shown(named[0].line.text)}"
        raise InputError(where, found, f"use {choice}", named[0].line.number)
    return named[0]


def weight_lines(feature: Feature, where: str, lines: Sequence[IniLine]) -> tuple[IniLine, ...]:
    """Find the last line of a feature's weights, which Moses takes, and those of alternate settings. Raises InputError."""
    n = feature.n_columns
    example = f"'{feature}= w w …'" if n > 1 else f"'{feature}= w'"
    named = [line for line in lines if line.words[0][:-1] == feature.name]
    own = [line for section in (b"weight-add", b"weight") for line in named if line.section == section]
    for line in lines:
        if line.section == b"weight-overwrite" and feature.name + b"=" in line.words:
            hint = "move them into [weight]; Moses takes them in place of those"
            raise InputError(where, f"weights of {feature} in [weight-overwrite]", hint, line.number)
    if not own:
        for line in lines:
            if line.section == b"weight" and re.match(re.escape(feature.name) + rb"[ \t]*=", line.text):
                found = f"{shown(line.text)} is not a weight of {feature}"
                raise InputError(where, found, f"glue '=' to the name, with a blank after it: {example}", line.number)
        found = f"no weight of {feature} in [weight]"
        hint = f"Moses would take 1 for every column: write {example} with {counted(n, 'weight')} below [weight]"
        raise InputError(where, found, hint)
    taken = (own[-1], *(line for line in named if line.section == b"alternate-weight-setting"))
    for line in taken:
        if (n_weights := len(line.words) - 1) != n:
            found = f"{feature} has {counted(n_weights, 'weight')} but num-features={n} (line {feature.line.number})"
            hint = "set num-features back to the columns of the old table; moses-ini raises both"
            raise InputError(where, found, hint, line.number)
    return taken


def find_table(ini: bytes, name: bytes | None = None, where: str = "moses.ini") -> Feature:
    """Find the phrase table of that name, or the only one, with ``weights``. ``where``: the file's name. Raises InputError."""
    lines = list(read_lines(ini))
    feature = _chosen(name, where, read_features(lines, where))
    if feature.value(b"num-features") and not feature.n_columns:
        found = f"num-features={printable(feature.value(b'num-features'))}"
        raise InputError(where, found, "write the number of the table's score columns", feature.line.number)
    return replace(feature, weights=weight_lines(feature, where, lines))


def read_ini(path: str) -> bytes:
    """Return the text of an ini (``-``: standard input). Raises InputError for a file that is too large for one."""
    with open_input(path) as stream:
        ini = stream.read(_LARGEST + 1)
    if len(ini) > _LARGEST:
        raise InputError(display_name(path), f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
    return ini


def is_ini(path: str) -> bool:
    """Return whether a file looks like an ini: its first line with a value is a header, and it has a section of Moses."""
    if not os.path.isfile(path):
        return False
    with open_plain(path) as stream:
        rows = [row.partition(b"#")[0].strip(BLANKS_AND_CR) for row in stream.read(1 << 20).split(b"\n")]
    first = next(filter(None, rows), b"")
    return first[:1] == b"[" and first[-1:] == b"]" and not {b"[feature]", b"[weight]", b"[ttable-file]"}.isdisjoint(rows)


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


def _sparse_weights(line: IniLine, ini: str) -> Iterator[tuple[bytes, list[float]]]:
    """Yield the weights of the file that a line of ``[weight-file]`` names, of labels with an underscore."""
    named = os.fsdecode(line.text)
    path = next(filter(os.path.exists, (named, os.path.join(os.path.dirname(ini), named))), None)
    if path is None:
        hint = "write its whole path (Moses looks in the working directory, rescore beside the ini too)"
        raise InputError(display_name(ini), f"no file {printable(line.text)}, which [weight-file] names", hint, line.number)
    for number, row in enumerate(read_ini(path).split(b"\n"), 1):  # moses/FeatureVector.cpp, FVector::load
        if row[:1] != b"#" and (parts := words(text := row.strip(BLANKS_AND_CR))):
            name, values = _line_of_weights(IniLine(number, line.section, text, parts), path)
            if b"_" in name:
                yield name, values


def read_weights(path: str) -> dict[bytes, list[float]]:
    """Return the weights of an ini by name: those of ``[weight]``, and sparse ones of the file that ``[weight-file]`` names.

    Raises InputError for a bad weight, for sections of weights that Moses has for tuning, and without any weight.
    """
    where, lines = display_name(path), list(read_lines(read_ini(path)))
    files = [line for line in lines if line.section == b"weight-file"]
    if files[1:]:
        raise InputError(where, "a second file in [weight-file]", "Moses reads the first alone: leave one", files[1].number)
    weights = dict(_sparse_weights(files[0], path)) if files else {}
    for section in (b"weight-add", b"weight"):  # the later one is taken (moses/Parameter.cpp)
        weights.update(_line_of_weights(line, where) for line in lines if line.section == section)
    for line in lines:
        if line.section in (b"weight-overwrite", b"alternate-weight-setting"):
            raise InputError(where, f"weights in [{printable(line.section)}]", "move them into [weight]", line.number)
    if not weights:
        raise InputError(where, "no weights in it", "pass an ini with a section [weight]")
    return weights
