"""Outputs and references to be compared: which files make up a set, and their segments."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.messages import printable, shown
from phrase_rescore.moses.hypotheses import parse_surface
from phrase_rescore.moses.table import split_fields, words
from phrase_rescore.moses.text import decoded, parsed_lines

Segments = tuple[str, ...]

USAGE = "a set is NAME REF SYSTEM=OUT …, say, --set dev dev.fr baseline=dev.out"


@dataclass(frozen=True)
class SetFiles:
    """The files of a set, dev or test: its references, and every system's outputs, one for each tuning run."""

    name: str
    references: tuple[str, ...]  # none if all outputs are statistics
    systems: dict[str, tuple[str, ...]]

    def paths(self) -> list[str]:
        """List its files, the references first."""
        return [*self.references, *(path for outputs in self.systems.values() for path in outputs)]

    @classmethod
    def parse(cls, words: Sequence[str]) -> SetFiles:
        """Read ``NAME [REF[,REF]] SYSTEM=OUT[,OUT] …``. Raises OptionError for anything else.

        >>> SetFiles.parse(["dev", "dev.fr", "baseline=dev.out", "rnn=run1,run2"]).systems
        {'baseline': ('dev.out',), 'rnn': ('run1', 'run2')}
        """
        if len(words) == 1:
            raise OptionError(f"set {_quoted(words[0])} has no reference; {USAGE}")
        name, *outputs = words
        of_set = f"set {_quoted(name)}"
        is_system = "=" in outputs[0] and not os.path.exists(outputs[0])
        references = () if is_system else _paths(outputs[0], outputs.pop(0), of_set)
        if not outputs:
            raise OptionError(f"{of_set} has no outputs; {USAGE}")
        systems: dict[str, tuple[str, ...]] = {}
        for output in outputs:
            system, equals, paths = output.partition("=")
            if not (system and equals):
                raise OptionError(f"{_quoted(output)} in {of_set} is not SYSTEM=OUT; several references are REF,REF")
            system = printable(os.fsencode(system), 1000)
            if system in systems:
                raise OptionError(f"{_quoted(system)} twice in {of_set}; outputs of several tuning runs are {system}=OUT,OUT")
            systems[system] = _paths(paths, output, of_set)
        return cls(printable(os.fsencode(name), 1000), references, systems)


def _quoted(text: str) -> str:
    return shown(os.fsencode(text), 1000)


def _paths(text: str, word: str, of_set: str) -> tuple[str, ...]:
    paths = text.split(",")
    if "" in paths:
        raise OptionError(f"{_quoted(word)} in {of_set} names an empty file name")
    if twice := [path for path, n in Counter(paths).items() if n > 1]:
        raise OptionError(f"{_quoted(word)} in {of_set} names {twice[0]} twice")
    return tuple(paths)


def read_lines(path: str) -> list[bytes]:
    """Read the lines of a file (``-``: standard input), cut at ``\\n`` alone. Raises InputError for an empty file."""
    with open_input(path) as stream:
        rows = list(read_rows(stream))
    if not rows:
        raise InputError(display_name(path), "an empty file", "a line for every segment is needed")
    return rows


def segments_of(name: str, rows: Sequence[bytes]) -> Segments:
    """Decode the lines of a file, without blanks at their ends, as sacrebleu does, and without the spans of ``moses -t``.

    Raises InputError for what is not UTF-8, and for words without a span in what ``-t`` wrote.
    """
    first = next((row for row in rows if words(_output_of(row))), b"")
    parse = _without_spans if _has_spans(first) else _decoded
    return tuple(chain.from_iterable(parsed_lines(rows, parse, name, len(rows))))


def _decoded(row: bytes) -> str:
    return decoded(row.removesuffix(b"\n")).rstrip()


def _output_of(row: bytes) -> bytes:
    """Return a line without the alignment that ``-print-alignment-info`` writes behind it."""
    return split_fields(row.rstrip(b"\r\n"), 1)[0]


def _without_spans(row: bytes) -> str:
    return decoded(b" ".join(phrase.tgt for phrase in parse_surface(_output_of(row)) if phrase.tgt))


def _has_spans(row: bytes) -> bool:
    """Tell whether a line is ``target phrase |first-last| …`` to its end. In plain text of Moses ``|`` is ``&#124;``."""
    try:
        return bool(parse_surface(_output_of(row)))
    except RowError:
        return False
