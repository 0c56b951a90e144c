"""Phrase pairs from files: phrase tables, extract files and two-column TSV, told apart by their content."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice

from phrase_rescore.errors import InputError, RowError, shown
from phrase_rescore.fields import SEPARATOR, split_fields, words
from phrase_rescore.fileio import display_name, open_input
from phrase_rescore.phrase_table import NUMBER, parse_row, phrase_words

Phrase = list[bytes]
RowReader = Callable[[bytes], tuple[Phrase, Phrase]]

_POINT = re.compile(rb"\d+-\d+")
_SCORE = re.compile(NUMBER)
_SNIFFED_ROWS = 100

# Files that stand beside the right one in a Moses model folder, and what to pass instead.
_REFUSED_NAMES = (
    (re.compile(r"\bhalf\.(f2e|e2f)\b|\.half\b"), "a half table", "pass the consolidated phrase-table.gz"),
    (re.compile(r"extract.*\.o(\.|$)"), "a reordering extract file", "pass extract.sorted.gz"),
    (re.compile(r"\.inv\b"), "an inverted file (target first)", "pass the file without '.inv' in its name"),
)


def _table_reader() -> RowReader:
    n_scores: int | None = None

    def pair(row: bytes) -> tuple[Phrase, Phrase]:
        nonlocal n_scores
        parsed = parse_row(row, n_scores)
        n_scores = parsed.n_scores
        return parsed.src, parsed.tgt

    return pair


def _extract_pair(row: bytes) -> tuple[Phrase, Phrase]:
    """``source ||| target ||| alignment [||| …]``, one line an occurrence (``phrase-extract/extract-main.cpp``)."""
    fields = split_fields(row)
    if len(fields) < 3:
        raise RowError(f"{len(fields)} fields in {shown(row)}", "an extract row is 'source ||| target ||| 0-0 1-1 …'")
    if not all(_POINT.fullmatch(point) for point in words(fields[2].rstrip(b"\r"))):
        raise RowError(f"alignment {shown(fields[2].strip())}", "points are such as 0-0")
    return phrase_words(fields[0], "source"), phrase_words(fields[1], "target")


def _tsv_pair(row: bytes) -> tuple[Phrase, Phrase]:
    columns = row.removesuffix(b"\r").split(b"\t")
    if len(columns) != 2:
        raise RowError(f"{len(columns)} column{'s' * (len(columns) != 1)} in {shown(row)}", "write source, tab, target")
    return phrase_words(columns[0], "source"), phrase_words(columns[1], "target")


# What makes a reader of one file's rows
READERS: dict[str, Callable[[], RowReader]] = {
    "table": _table_reader,
    "extract": lambda: _extract_pair,
    "tsv": lambda: _tsv_pair,
}


def _row_format(row: bytes) -> str | None:
    """What a row looks like: table, extract, tsv, half (a half table), or None."""
    fields = split_fields(row.rstrip(b"\r\n"))
    if len(fields) < 3:
        return "tsv" if SEPARATOR not in row and row.count(b"\t") == 1 else None
    third = words(fields[2])
    if third and all(_POINT.fullmatch(word) for word in third):
        fourth = words(fields[3]) if len(fields) > 3 else []
        return "half" if len(fourth) > 1 and _SCORE.fullmatch(fourth[1]) else "extract"
    return "table" if third and all(_SCORE.fullmatch(word) for word in third) else None


def detect_format(path: str, first_rows: list[bytes]) -> str:
    """The format that most of the first rows have.

    Raises InputError when none fits, or when they are those of a half table.
    """
    votes = [form for form in map(_row_format, first_rows) if form]
    if not votes:
        found = shown(first_rows[0].rstrip(b"\r\n")) if first_rows else "an empty file"
        raise InputError(path, f"{found} begins no phrase table, extract file or two-column TSV", "say which by --format", 1)
    best = max(sorted(set(votes)), key=votes.count)
    if best == "half":
        raise InputError(path, "looks like a half table (alignment before the scores)", "pass the consolidated phrase-table.gz")
    return best


def refuse_by_name(path: str) -> None:
    """Raises InputError for names that Moses gives to files whose pairs are turned round, incomplete or no pairs."""
    for pattern, what, hint in _REFUSED_NAMES:
        if pattern.search(os.path.basename(path)):
            raise InputError(path, f"is by its name {what}", hint)


def read_pairs(
    path: str,
    form: str | None = None,
    on_read: Callable[[int], object] | None = None,
    on_bad_row: Callable[[int, bytes, RowError], None] | None = None,
) -> Iterator[tuple[Phrase, Phrase]]:
    """The (source, target) phrases of a file, row by row, as lists of words.

    ``form`` is a key of READERS, or None to look at the first rows. ``on_bad_row`` is called with line number, row and
    error for a row that cannot be used, which is then left out; without it such a row raises InputError.
    """
    refuse_by_name(path)
    name = display_name(path)
    with open_input(path, on_read) as stream:
        first = list(islice(stream, _SNIFFED_ROWS))
        reader = READERS[form or detect_format(name, first)]()
        line = 0
        for rows in (first, stream):
            for row in rows:
                line += 1
                row = row.removesuffix(b"\n")
                try:
                    yield reader(row)
                except RowError as error:
                    if on_bad_row is None:
                        raise error.at(name, line) from None
                    on_bad_row(line, row, error)
