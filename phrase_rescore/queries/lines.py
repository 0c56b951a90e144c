"""Lines that a person or another program writes, of which each gets its answer, in order."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TypeVar

from phrase_rescore.files.inputs import read_rows
from phrase_rescore.moses.text import Prepare, TypedText, as_written, parsed_lines

T = TypeVar("T")


def answers_at_once(stream: io.BufferedReader, flush: bool) -> bool:
    """Tell whether every line is answered before the next one is read: with ``--flush``, and at a terminal."""
    return flush or stream.isatty()


def line_batches(stream: io.BufferedReader, parse: Callable[[bytes], T], most: int, flush: bool = False) -> Iterator[list[T]]:
    """Yield what ``parse`` makes of the lines of standard input: of ``most`` lines, or of one where each is answered at once.

    Raises InputError, with the line, where ``parse`` raises RowError; what comes of the lines before it comes first.
    """
    return parsed_lines(read_rows(stream), parse, "<stdin>", 1 if answers_at_once(stream, flush) else most)


def typed(language: str | None, lowercase: bool) -> Prepare:
    """Return what makes tokens of typed text in a language; without one the lines are tokenized already."""
    return as_written if language is None else TypedText(language, lowercase)
