"""Phrase pairs are read from phrase tables, extract files and two-column TSV, which are recognized by their content."""

import contextlib
import math
from collections.abc import Callable, Generator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.inputs import Block, display_name, open_input, read_blocks
from phrase_rescore.messages import Progress, counted, shown
from phrase_rescore.moses import table
from phrase_rescore.moses.file_kinds import PAIRS, POINT, check_kind, check_name
from phrase_rescore.moses.table import WHOLE, BadRow, Factors, parse_block, phrase_pair, split_fields, words
from phrase_rescore.moses.text import Sentences

RowReader = Callable[[bytes, Sentences], tuple[bytes, bytes]]  # from a row to its source and target fields


class PairBlock(NamedTuple):
    """The pairs of consecutive rows, as columns of one length."""

    src: Sequence[bytes]  # words joined by single blanks
    tgt: Sequence[bytes]
    counts: Sequence[float] | None = None  # how often each pair was extracted: whole numbers, unless Moses weighted them


def _extract_pair(row: bytes, sentences: Sentences) -> tuple[bytes, bytes]:
    """Parse ``source ||| target ||| alignment [||| …]``, one row an occurrence (``phrase-extract/extract-main.cpp``)."""
    fields = split_fields(row)
    if len(fields) < 3:
        found = f"{counted(len(fields), 'field')} in {shown(row)}"
        raise RowError(found, "an extract row is 'source ||| target ||| 0-0 1-1 …'")
    if not all(map(POINT.fullmatch, words(fields[2].rstrip(b"\r")))):
        raise RowError(f"alignment {shown(fields[2].strip())}", "points are such as 0-0")
    return fields[0], fields[1]


def _tsv_pair(row: bytes, sentences: Sentences) -> tuple[bytes, bytes]:
    columns = row.removesuffix(b"\r").split(b"\t")
    if len(columns) != 2:
        raise RowError(f"{counted(len(columns), 'column')} in {shown(row)}", "write source, tab, target")
    src, tgt = (b" ".join(sentences.bare(words(column))) for column in columns)
    return src, tgt


_ROW_READERS: dict[str, RowReader] = {"extract": _extract_pair, "tsv": _tsv_pair}
FORMATS = ("table", *_ROW_READERS)


def detect_format(path: str, first_rows: list[bytes]) -> str:
    """Choose the format that most of the first rows have. Raises InputError if it is not one of FORMATS."""
    kind = check_kind(path, first_rows, PAIRS)
    if kind is None:
        row = shown(first_rows[0].rstrip(b"\r\n"))
        raise InputError(path, f"{row} does not look like {PAIRS.what}", "name its format with --format", 1)
    return kind


def _read_table(block: Block, n_scores: int, counts: bool, factors: Factors) -> tuple[PairBlock, list[BadRow]]:
    parsed = parse_block(block, n_scores, factors=(factors,))
    if not counts:
        return PairBlock(parsed.src, parsed.tgt), parsed.bad
    kept, bad, found = list[int](), parsed.bad, parsed.occurrences()[:, 1].tolist()
    for i, count in enumerate(found):
        if not math.isnan(count):
            kept.append(i)
            continue
        hint = "--min-count needs the counts, '||| n_target n_source n_joint'"
        bad.append((parsed.lines[i], parsed.row(i), RowError(f"no joint count in {shown(parsed.row(i))}", hint)))
    src, tgt = ([phrases[i] for i in kept] for phrases in (parsed.src, parsed.tgt))
    return PairBlock(src, tgt, [found[i] for i in kept]), sorted(bad, key=lambda b: b[0])


def _read_occurrences(
    block: Block, reader: RowReader, counts: bool, factors: Factors, sentences: Sentences
) -> tuple[PairBlock, list[BadRow]]:
    pairs, bad = list[tuple[bytes, bytes]](), list[BadRow]()
    for line, row in enumerate(block.rows(), block.first_row):
        try:
            pairs.append(phrase_pair(*reader(sentences.unmarked(row), sentences), factors))
        except RowError as error:
            bad.append((line, row, error))
    return PairBlock([src for src, _ in pairs], [tgt for _, tgt in pairs], [1] * len(pairs) if counts else None), bad


def read_pair_blocks(
    path: str, form: str | None = None, on_read: Progress | None = None,
    on_bad_row: Callable[[int, bytes, RowError], None] | None = None, counts: bool = False, factors: Factors = WHOLE,
    sentences: Sentences | None = None,
) -> Generator[PairBlock, None, None]:  # fmt: skip
    """Read the pairs of a file some thousands at a time, as columns; of words with factors, the one chosen for their side.

    ``form`` is one of FORMATS, or None to look at the first rows. ``on_bad_row`` is called with line number, row and error for
    each bad row of a block, before its pairs; without it, the row raises InputError. ``counts`` adds how often each pair was
    extracted: a table's joint count (a row without one is a bad row), else 1 for every row. ``sentences`` counts the marks that
    TSV may have around them.
    """
    check_name(path, PAIRS)
    sentences = sentences or Sentences()
    name, n_scores = display_name(path), None
    with open_input(path, on_read) as stream:
        blocks = read_blocks(stream, 4096)
        first = list(islice(blocks, 1))
        form = form or detect_format(name, first[0].rows() if first else [])
        for block in chain(first, blocks):
            if form == "table":
                if n_scores is None:
                    with contextlib.suppress(InputError):  # without any good row, all are bad whatever the number
                        n_scores = table.first_row(name, block.rows(), drops=True).n_scores
                pairs, bad = _read_table(block, n_scores or 1, counts, factors)
            else:
                pairs, bad = _read_occurrences(block, _ROW_READERS[form], counts, factors, sentences)
            for line, row, error in bad:
                if on_bad_row is None:
                    raise error.at(name, line) from None
                on_bad_row(line, row, error)
            if pairs.src:
                src = table.select_factor(pairs.src, factors[0], "source")
                tgt = table.select_factor(pairs.tgt, factors[1], "target")
                yield PairBlock(src, tgt, pairs.counts)
