"""Outputs and references to be compared: which files make up a set, and their segments."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from phrase_rescore.errors import InputError, OptionError, RowError
from phrase_rescore.files.inputs import display_name, open_input, read_rows
from phrase_rescore.messages import printable, shown
from phrase_rescore.moses.file_kinds import JUDGED, SEGMENTS, check_kind
from phrase_rescore.moses.hypotheses import parse_surface
from phrase_rescore.moses.table import split_fields, words
from phrase_rescore.moses.text import decoded, parsed_lines

if TYPE_CHECKING:  # it imports numpy, and --help need not wait for that
    from phrase_rescore.moses.parallel import Doubts

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
    """Read the lines of a file (``-``: standard input), cut at ``\n`` alone. Raises InputError for an empty file."""
    if not os.path.lexists(path) and (numbered := [name for n in range(10) if os.path.exists(name := f"{path}{n}")]):
        hint = f"{', '.join(numbered)} {'are' if len(numbered) > 1 else 'is'} there: write {','.join(numbered)}"
        raise InputError(display_name(path), "no file of this name", hint)
    with open_input(path) as stream:
        rows = list(read_rows(stream))
    if not rows:
        raise InputError(display_name(path), "an empty file", "a line for every segment is needed")
    return [rows[0].removeprefix(codecs.BOM_UTF8), *rows[1:]]


def segments_of(name: str, rows: Sequence[bytes]) -> Segments:
    """Decode the lines of a file, without blanks at their ends, as sacrebleu does, and without the spans of ``moses -t``.

    Nor with the alignment of ``-print-alignment-info``. Raises InputError for what is not text or not UTF-8, and for words
    without a span in what ``-t`` wrote.
    """
    parse: Callable[[bytes], str] = _decoded
    if has_spans(rows):
        parse = _without_spans
    elif _most(rows, _is_aligned):
        parse = _without_alignment
    else:
        check_kind(name, [row.strip() for row in rows[:JUDGED]], SEGMENTS)
    return tuple(chain.from_iterable(parsed_lines(rows, parse, name, len(rows))))


def reference_of(path: str, rows: Sequence[bytes], doubts: Doubts) -> Segments:
    """Decode a reference as ``segments_of`` does. A decoder's output is doubted."""
    if has_spans(rows):
        found = "what moses -t wrote (|first-last|) is an output, not a reference"
        doubts.of(path, found, "give the text of a human translator")
    return segments_of(display_name(path), rows)


def has_spans(rows: Sequence[bytes]) -> bool:
    """Return whether most lines are ``target phrase |first-last| …`` to the end. In plain text of Moses ``|`` is ``&#124;``."""
    return _most(rows, _is_surface)


def _most(rows: Sequence[bytes], test: Callable[[bytes], bool]) -> bool:
    """Return whether most of the first lines with words pass a test."""
    passed = [test(row) for row in islice((row for row in rows if words(_output_of(row))), JUDGED)]
    return 2 * sum(passed) > len(passed)


def _is_surface(row: bytes) -> bool:
    try:
        return bool(parse_surface(_output_of(row)))
    except RowError:
        return False


def _is_aligned(row: bytes) -> bool:
    return re.search(rb" \|\|\|(?: \d+-\d+)* *\r?\n?\Z", row) is not None


def _output_of(row: bytes) -> bytes:
    """Return a line without the alignment that ``-print-alignment-info`` writes behind it."""
    return split_fields(row.rstrip(b"\r\n"), 1)[0]


def _decoded(row: bytes) -> str:
    return decoded(row.removesuffix(b"\n")).rstrip()


def _without_alignment(row: bytes) -> str:
    return decoded(_output_of(row)).rstrip()


def _without_spans(row: bytes) -> str:
    return decoded(b" ".join(phrase.tgt for phrase in parse_surface(_output_of(row)) if phrase.tgt))
