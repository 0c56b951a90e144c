"""Describe a moses.ini: its features, and where it contradicts itself or the files that it names."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from phrase_rescore.errors import InputError, RescoreError
from phrase_rescore.files.inputs import open_input, open_plain, read_rows
from phrase_rescore.info.table import labelled
from phrase_rescore.messages import counted, printable
from phrase_rescore.moses.columns import check_compression
from phrase_rescore.moses.ini import READERS, TEXT_TABLES, Feature, Ini
from phrase_rescore.moses.table import split_fields, words

_SUFFIXES = {  # that Moses tries after the path of a feature; none after other ones
    b"PhraseDictionaryBinary": (".binphr.idx",),
    b"PhraseDictionaryCompact": ("", ".minphr"),
    b"LexicalReordering": ("", ".gz", ".minlexr", ".binlexr.idx"),
}
_PREFIXES = (b"Mmsapt", b"PhraseDictionaryBitextSampling", b"PhraseDictionaryTransliteration")  # whose path is part of names
_HEADERS = {b"PhraseDictionaryOnDisk": "Misc.dat", b"ProbingPT": "config"}  # files that have the number of scores
_HEADER = re.compile(rb"^[ \t]*(?:NumScores|num_scores)[ \t]+(\d+)[ \t]*$", re.MULTILINE)


class Problem(NamedTuple):
    """A line at which Moses or one of its scripts fails."""

    line: int
    what: str


@dataclass(frozen=True)
class IniInfo:
    """An ini, its features and its problems."""

    ini: Ini
    problems: list[Problem]

    @classmethod
    def read(cls, path: str) -> "IniInfo":
        """Read an ini, and the beginnings of the tables that it names. Raises InputError for what Moses cannot read."""
        ini = Ini.read(path)
        return cls(ini, sorted(_problems(ini), key=lambda problem: problem.line))

    def check(self) -> None:
        """Raise RescoreError if there are problems."""
        if self.problems:
            raise RescoreError(f"{self.ini.where}: {counted(len(self.problems), 'problem')} (--strict)")

    @property
    def _weights(self) -> int:
        """How many features have weights in a file that names no features, as tune writes it; 0 for a moses.ini."""
        return 0 if self.ini.features else len(self.ini.lines_in(b"weight"))

    def as_object(self) -> dict[str, Any]:
        """Return the description as JSON has it."""
        return {
            "file": self.ini.where,
            "kind": "weights" if self._weights else "moses.ini",
            "features": [
                {"name": str(feature), "implementation": printable(feature.implementation), "line": feature.line.number,
                 "scores": _n_scores(feature), "path": os.fsdecode(feature.path) or None}
                for feature in self.ini.features
            ],
            "problems": [problem._asdict() for problem in self.problems],
        }  # fmt: skip

    def lines(self) -> list[str]:
        """Return the description line by line."""
        of_files = [feature for feature in self.ini.features if feature.path]
        if self._weights:
            return [f"{self.ini.where}: weights, as tune writes them; no moses.ini", labelled("features", str(self._weights))]
        counts = f"{len(self.ini.features)}, {len(of_files)} with a file"
        lines = [f"{self.ini.where}: a moses.ini", labelled("features", counts)]
        for feature in of_files:
            scores = counted(_n_scores(feature), "score")
            lines.append(f"  {feature}: {printable(feature.implementation)}, {scores}, {printable(feature.path, 1000)}")
        lines.append("problems" if self.problems else labelled("problems", "none found"))
        return lines + [f"  line {problem.line}: {problem.what}" for problem in self.problems]


def _is_lm(feature: Feature) -> bool:
    return b"LM" in feature.implementation and feature.implementation != b"RDLM"


def _n_scores(feature: Feature) -> int:
    """Return a feature's number of scores; a language model's is not its num-features (``moses/LM/Base.cpp``)."""
    return 1 + feature.is_on(b"oov-feature") if _is_lm(feature) else feature.n_columns


def _problems(ini: Ini) -> Iterator[Problem]:
    for feature in ini.features:
        n = _n_scores(feature)
        if n and (b"num-features" in feature.values or _is_lm(feature) or feature.is_table):
            yield from _weight_problems(ini, replace(feature, values={**feature.values, b"num-features": b"%d" % n}))
        if feature.path and feature.implementation not in _PREFIXES:
            yield from _file_problems(feature)
    read = {name for feature in ini.features for key in READERS for name in feature.value(key).split(b",")}
    for feature in ini.features:
        if ini.mapped is not None and feature.is_table and feature.name not in ini.mapped | read:
            yield Problem(feature.line.number, f"no line of [mapping] uses {feature}")


def _weight_problems(ini: Ini, feature: Feature) -> Iterator[Problem]:
    try:
        ini.weight_line(feature)
    except InputError as error:
        yield Problem(error.line or feature.line.number, f"{error.found}; {error.hint}")


def _file_problems(feature: Feature) -> Iterator[Problem]:
    path, line = os.fsdecode(feature.path), feature.line.number
    if not os.path.isabs(path):
        found = f"{feature} has the relative path {printable(path, 1000)}"
        yield Problem(line, f"{found}; mert-moses.pl starts Moses in another folder")
    if not any(os.path.exists(path + suffix) for suffix in _SUFFIXES.get(feature.implementation, ("",))):
        yield Problem(line, f"{feature}: {printable(path, 1000)} does not exist")
        return
    try:
        n = _n_columns(path, feature)
    except InputError as error:
        yield Problem(line, str(error))
        return
    if n is not None and n != feature.n_columns:
        found = f"{feature} has num-features={feature.n_columns}, but its table has {counted(n, 'score column')}"
        yield Problem(line, f"{found}; Moses needs the same number")


def _n_columns(path: str, feature: Feature) -> int | None:
    """Read the number of scores of a table, text or binarized; None if it is not known."""
    if feature.implementation in TEXT_TABLES:
        check_compression(path)
        with open_input(path) as stream:
            fields = split_fields(next(read_rows(stream), b""))
        if len(fields) < 3:
            raise InputError(path, "does not begin like a phrase table", "pass the table that train-model.perl wrote")
        return len(words(fields[2]))
    header = os.path.join(path, _HEADERS.get(feature.implementation, ""))
    if feature.implementation in _HEADERS and os.path.isfile(header):
        with open_plain(header) as stream:
            found = _HEADER.search(stream.read(1 << 16))
        return int(found[1]) if found else None
    return None
