"""A ``moses.ini`` is made for a phrase table with more columns: bytes in, bytes out, and what else must know their number.

It is read as Moses reads it (``moses/Parameter.cpp``, ``moses/FF/FeatureFunction.cpp``): ``#`` begins a comment anywhere,
blanks, tabs and CR around a line are ignored, and a line ``[section]`` names the lines below it. A line of ``[feature]`` is an
implementation and ``key=value`` words. A line of ``[weight]`` is ``NAME= w w …``, with ``=`` glued to the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from phrase_rescore.errors import InputError, OptionError, counted, printable, shown
from phrase_rescore.files.inputs import display_name, open_input
from phrase_rescore.moses.columns import ScoreColumn
from phrase_rescore.moses.table import BLANKS_AND_CR, NUMBER
from phrase_rescore.ranges import Decimal

_LARGEST = 1 << 24  # bytes
TEXT_TABLES = (b"PhraseDictionaryMemory", b"PhraseDictionaryScope3", b"PhraseDictionarySCFG", b"RuleTable")
BINARIZED_TABLES = (b"PhraseDictionaryCompact", b"PhraseDictionaryOnDisk", b"PhraseDictionaryBinary", b"ProbingPT")
_UNFILTERED = (b"PhraseDictionaryCompact", b"ProbingPT")  # filter-model-given-input.pl passes their lines through
_FALSE = (b"0", b"false", b"f", b"no", b"n")  # moses/Util.cpp


_NUMBER = re.compile(NUMBER)


class _Word(NamedTuple):
    text: bytes
    start: int  # of its first byte, in the ini
    end: int  # after its last byte


class _Line(NamedTuple):
    number: int  # from 1
    section: bytes
    text: bytes  # without comment and outer blanks
    words: list[_Word]  # at least one


def _lines(ini: bytes) -> Iterator[_Line]:
    """Read the lines that hold values, without comments and headers."""
    section, start = b"", 0
    for number, row in enumerate(ini.split(b"\n"), 1):
        text = row.partition(b"#")[0].strip(BLANKS_AND_CR)
        if text.startswith(b"["):
            name, closed, _ = text[1:].partition(b"]")
            section = name if closed else section
        elif text:
            place = start + row.index(text)
            found = re.finditer(rb"[^ \t]+", text)
            yield _Line(number, section, text, [_Word(m[0], place + m.start(), place + m.end()) for m in found])
        start += len(row) + 1


@dataclass(frozen=True)
class Feature:
    """A feature of an ini; a phrase table if ``is_table``."""

    name: bytes
    implementation: bytes
    line: _Line
    values: dict[bytes, _Word]  # of its ``key=value`` words, by key
    weights_end: int = -1  # where its weights end in the ini, in bytes; ``find_table`` sets it

    def __str__(self) -> str:
        return printable(self.name)

    def value(self, key: bytes) -> bytes:
        """Look up a key of its line; the value is empty where the line has no such key."""
        return self.values[key].text if key in self.values else b""

    @property
    def path(self) -> bytes:
        return self.value(b"path")

    @property
    def is_table(self) -> bool:
        """Tell whether its scores come from a table of phrase pairs, text or binarized; a glue grammar's do not."""
        return self.implementation in TEXT_TABLES + BINARIZED_TABLES and b"glue-grammar" not in self.path

    @property
    def is_binarized(self) -> bool:
        return self.implementation in BINARIZED_TABLES

    @property
    def n_columns(self) -> int:
        """The value of ``num-features``; 1 where the line has none (``moses/FF/FeatureFunction.cpp``)."""
        return int(self.value(b"num-features") or 1)

    def is_tuneable(self, column: int) -> bool:
        """Tell whether tuning moves the weight of a column, counted from 0; it moves those of columns added."""
        tuneable = self.value(b"tuneable-components").split(b",")
        return column >= min(len(tuneable), self.n_columns) or tuneable[column].lower() not in _FALSE


def _features(lines: Sequence[_Line], where: str) -> list[Feature]:
    """List all features, under the names that Moses gives them.

    Raises InputError, where Moses refuses the ini too, for a word that is not ``key=value`` and a key that stands twice in a
    line.
    """
    features, unnamed = list[Feature](), list[bytes]()
    for line in lines:
        if line.section != b"feature":
            continue
        implementation, values = line.words[0].text, dict[bytes, _Word]()
        for word in line.words[1:]:
            key, sign, value = word.text.partition(b"=")
            if not sign:
                raise InputError(where, f"{shown(word.text)} in [feature]", "Moses wants key=value there", line.number)
            if key in values:
                raise InputError(where, f"{printable(key)}= stands twice in a line", "Moses wants every key once", line.number)
            values[key] = _Word(value, word.start + len(key + sign), word.end)
        name = values[b"name"].text if b"name" in values else b""
        if not name:  # numbered among those of its kind that have none
            name = implementation + b"%d" % unnamed.count(implementation)
            unnamed.append(implementation)
        features.append(Feature(name, implementation, line, values))
    return features


def _chosen(name: bytes | None, where: str, lines: Sequence[_Line]) -> Feature:
    """Find the phrase table of that name, or else the only one."""
    if old := next((line for line in lines if line.section == b"ttable-file"), None):
        hint = "convert it with Moses' scripts/training/convert-moses-ini-to-v2.perl < OLD.ini > NEW.ini"
        raise InputError(where, "[ttable-file], an ini of the old style", hint, old.number)
    features = _features(lines, where)
    if not features:
        raise InputError(where, "no feature in it", "pass the moses.ini that train-model.perl or mert-moses.pl wrote")
    tables = [feature for feature in features if feature.is_table]
    if not tables:
        others = ", ".join(dict.fromkeys(printable(feature.implementation) for feature in features))
        known = ", ".join(map(printable, TEXT_TABLES + BINARIZED_TABLES))
        raise InputError(where, f"no phrase table among its features ({others})", f"phrase tables are {known}")
    choice = " or ".join(f"--feature {table}" for table in tables)
    if name is None and len(tables) > 1:
        told = ", ".join(f"{table} (line {table.line.number}, path={printable(table.path)})" for table in tables)
        raise InputError(where, f"{len(tables)} phrase tables: {told}", f"choose one with {choice}")
    if name is None:
        name = tables[0].name
    named = [feature for feature in features if feature.name == name]
    if not named:
        raise InputError(where, f"no feature is named {printable(name)}", f"use {choice}")
    if len(named) > 1:
        raise InputError(where, f"two features are named {named[0]}", "give each its own name=", named[1].line.number)
    if not named[0].is_table:
        found = f"{named[0]} is not a phrase table: {shown(named[0].line.text)}"
        raise InputError(where, found, f"use {choice}", named[0].line.number)
    return named[0]


def _weights(feature: Feature, where: str, lines: Sequence[_Line]) -> _Line:
    """Find the feature's line in ``[weight]``; of several, Moses takes the last one."""
    n = feature.n_columns
    example = f"'{feature}= w w …'" if n > 1 else f"'{feature}= w'"
    weights = [line for line in lines if line.section == b"weight"]
    own = [line for line in weights if line.words[0].text[:-1] == feature.name]
    if not own:
        for line in weights:
            if re.match(re.escape(feature.name) + rb"[ \t]*=", line.text):
                found = f"{shown(line.text)} is not a weight of {feature}"
                raise InputError(where, found, f"glue '=' to the name, with a blank after it: {example}", line.number)
        found = f"no weight of {feature} in [weight]"
        raise InputError(where, found, f"Moses would take 1 for every column: write {example} with {n} weights below [weight]")
    line = own[-1]
    if len(line.words) - 1 != n:
        weights_found = counted(len(line.words) - 1, "weight")
        found = f"{weights_found} of {feature}, of which num-features={n} (line {feature.line.number})"
        hint = "Moses stops there: make them as many as the columns of the table it had so far"
        raise InputError(where, found, hint, line.number)
    return line


def read_ini(path: str) -> bytes:
    """Return the text of an ini (``-``: standard input). Raises InputError for a file that is too large for one."""
    with open_input(path) as stream:
        ini = stream.read(_LARGEST + 1)
    if len(ini) > _LARGEST:
        raise InputError(display_name(path), f"more than {_LARGEST >> 20} MiB", "is this a moses.ini?")
    return ini


def read_weights(ini: bytes, where: str = "moses.ini") -> dict[bytes, list[float]]:
    """Return the weights of all features by name, as ``[weight]`` has them.

    Raises InputError, with the line, for a line that is not ``NAME= w w …``, and for an ini without any.
    """
    found = dict[bytes, list[float]]()
    for line in _lines(ini):
        if line.section != b"weight":
            continue
        name, *numbers = (word.text for word in line.words)
        try:
            if not name.endswith(b"="):
                raise ValueError
            if not all(map(_NUMBER.fullmatch, numbers)):
                raise ValueError
            found[name[:-1]] = list(map(float, numbers))
            if not all(map(math.isfinite, found[name[:-1]])):
                raise ValueError
        except ValueError:
            raise InputError(
                where, f"{shown(line.text)} in [weight]", "Moses wants NAME= and numbers there", line.number
            ) from None
    if not found:
        raise InputError(where, "no weights in it", "pass an ini with a section [weight]")
    return found


def find_table(ini: bytes, name: bytes | None = None, where: str = "moses.ini") -> Feature:
    """Find the phrase table of that name, or the only one, with ``weights_end``.

    Raises InputError, with ``where`` as the file's name, for an ini of the old style, one without features or phrase tables,
    several tables and no name, a name that none of them has, and weights that are missing or not ``num-features`` many.
    """
    lines = list(_lines(ini))
    feature = _chosen(name, where, lines)
    number = feature.values.get(b"num-features")
    if number and not re.fullmatch(rb"0*[1-9]\d{0,8}", number.text):
        found = f"num-features={printable(number.text)}"
        raise InputError(where, found, "write the number of the table's score columns", feature.line.number)
    return replace(feature, weights_end=_weights(feature, where, lines).words[-1].end)


_WEIGHTS = Decimal(-1e6, 1e6)


def check_weights(how: str) -> list[str]:
    """Return the numbers of ``--weights``, none for ``small`` and ``zero``. Raises OptionError for anything else."""
    if how in ("small", "zero"):
        return []
    for number in (numbers := how.split(",")):
        try:
            _WEIGHTS.read(number)
        except OptionError as error:
            raise OptionError(f"{error}; write small, zero or numbers such as 0.05,-0.1") from None
    return numbers


def new_weights(how: str, added: Sequence[ScoreColumn]) -> list[bytes]:
    """Choose a weight for each added column: ``small``, ``zero``, or numbers between commas, taken as they are.

    Small weights are 0.01, and -0.01 for counts. They leave a tuned system nearly where it was, with log p counting for a
    hypothesis and unknown words against it.

    Raises OptionError for anything else.
    """
    if how == "small":
        return [b"-0.01" if column.is_count(added=True) else b"0.01" for column in added]
    if how == "zero":
        return [b"0" for _ in added]
    numbers = check_weights(how)
    if len(numbers) != len(added):
        raise OptionError(f"--weights {how}: the number of weights is {len(numbers)}, that of added columns {len(added)}")
    return [number.encode() for number in numbers]


def _check_path(option: str, path: bytes) -> None:
    if not path or re.search(rb"[\s#]", path):
        raise OptionError(f"{option} {shown(path)}: no blank and no '#' can stand in an ini; name the file without")


def with_table(ini: bytes, feature: Feature, path: bytes, n_columns: int, weights: Sequence[bytes]) -> bytes:
    """Write the ini with another table, of ``n_columns`` columns, and ``weights`` for those added; every other byte stays.

    ``tuneable-components``, where the line has it, gets a 1 for each of them, as Moses wants one word for every column.

    Raises OptionError for a path that cannot stand in an ini.
    """
    _check_path("--table or --path", path)
    line_end, added, edits = feature.line.words[-1].end, b"", list[tuple[int, int, bytes]]()

    def put(key: bytes, value: bytes) -> None:
        nonlocal added
        if key in feature.values:
            edits.append((feature.values[key].start, feature.values[key].end, value))
        else:
            added += b" " + key + b"=" + value

    if n_columns != feature.n_columns:
        put(b"num-features", b"%d" % n_columns)
    if path != feature.path:
        put(b"path", path)
    if components := feature.value(b"tuneable-components"):
        put(b"tuneable-components", components + b",1" * len(weights))
    edits.append((feature.weights_end, feature.weights_end, b"".join(b" " + weight for weight in weights)))
    edits.insert(0, (line_end, line_end, added))  # first in edits, and so after a value that ends there (an empty "path=")
    for start, end, value in sorted(edits, key=lambda edit: edit[0], reverse=True):
        ini = ini[:start] + value + ini[end:]
    return ini


def with_neural_lm(ini: bytes, path: bytes, order: int, weight: bytes, where: str = "moses.ini") -> tuple[bytes, bytes]:
    """Return the ini with a feature NeuralLM more, which loads a model in NPLM's format, and the name of the feature.

    Its line follows the last feature, its weight the last weight. Raises InputError for an ini without either, OptionError
    for a path that cannot stand in an ini.
    """
    _check_path("--lm", path)
    lines = list(_lines(ini))
    taken = {feature.name for feature in _features(lines, where)}
    name = next(name for n in count() if (name := b"CSLM%d" % n) not in taken)
    added = {
        b"feature": b"NeuralLM factor=0 name=%b order=%d path=%b" % (name, order, path),
        b"weight": b"%b= %b" % (name, weight),
    }
    for section, text in added.items():
        last = next((line for line in reversed(list(_lines(ini))) if line.section == section), None)
        if last is None:
            raise InputError(
                where, f"no [{printable(section)}] in it", "pass the moses.ini of train-model.perl or mert-moses.pl"
            )
        end = ini.find(b"\n", last.words[-1].end)
        row_end = b"\r\n" if end > 0 and ini[end - 1 : end] == b"\r" else b"\n"
        ini = ini + row_end + text + row_end if end < 0 else ini[: end + 1] + text + row_end + ini[end + 1 :]
    return ini, name


def warnings(ini: bytes, feature: Feature, path: bytes) -> list[str]:
    """Name what Moses loads, but its scripts misread."""
    found = []
    if not re.fullmatch(rb"[A-Za-z][A-Za-z0-9]*", feature.name):
        found.append(
            f"the name {feature} is not a letter, then letters and digits: mert-moses.pl fails at it in n-best lists; "
            "rename it in [feature] and [weight]"
        )
    if feature.implementation not in _UNFILTERED:
        line, script = f"line {feature.line.number}", "filter-model-given-input.pl"
        row = ini[: feature.line.words[0].start].rpartition(b"\n")[2] + feature.line.text
        if b"\t" in row or b"  " in row or row.startswith(b" "):
            found.append(f"{line}: {script} splits it at single blanks; take out tabs, doubled and leading blanks")
        if b"=" in path:
            found.append(f"{line}: {script} cuts the path {printable(path)} at '='; give the table another name")
    return found


def hints(feature: Feature, columns: Sequence[ScoreColumn]) -> list[str]:
    """Tell what else must know the number of columns, as the options of Moses' programs.

    ``--range`` has bounds for each tuneable column, 0..1 without it (``scripts/training/mert-moses.pl``). The binarizers rank
    by p(target | source), which train-model.perl writes as the third column.
    """
    n, n_old = len(columns), feature.n_columns
    ranges = ",".join(
        "-1..1" if column.is_count(added=i >= n_old) else "0..1" for i, column in enumerate(columns) if feature.is_tuneable(i)
    )
    rank = min(2, n_old - 1)
    src_factors, tgt_factors = (feature.value(key).count(b",") + 1 for key in (b"input-factor", b"output-factor"))
    on_disk = f"CreateOnDiskPt {src_factors} {tgt_factors} {n} 100 {rank}"
    return [
        f"mert-moses.pl: --range={feature}:{ranges} (it bounds where random restarts begin, not the weights)",
        "mert-moses.pl: delete features.list from its working directory, or it ends with 'Mismatched lambdas'",
        f"processPhraseTableMin: -nscores {n} -rankscore {rank}; "
        "-quantize N if it grows too large, as it keeps every distinct value",
        f"CreateProbingPT: --num-scores {n}; it takes 4 without, and checks nothing",
        f"{on_disk} TABLE DIRECTORY; it checks nothing",
        f"filter-model-given-input.pl: -Binarizer '{on_disk}' or 'CreateProbingPT --num-scores {n}'; it passes them no number",
    ]
