"""All of ``embed``: lines with phrases, or a table, in; vectors or nearest neighbours out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from phrase_rescore.data.sorting import SortedPairs, sorted_pairs
from phrase_rescore.errors import InputError, RowError, shown
from phrase_rescore.files.blocks import batches
from phrase_rescore.files.inputs import display_name
from phrase_rescore.moses.pairs import PairBlock, read_pair_blocks
from phrase_rescore.moses.table import words
from phrase_rescore.moses.text import PhraseReader, parsed_lines
from phrase_rescore.queries.nearest import Neighbours, PhraseIndex, nearest
from phrase_rescore.queries.vector_files import Vectors, vector_output
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.vectors import BATCH, PhraseEncoder, Side, embedded_words, word_embeddings

QUERIES = 1024  # at most, of one pass over all vectors
_MEMORY = 1 << 28  # bytes that sorting takes
_CLOSE = 1e-3  # numbers of an index may differ by so much from those of this machine: rounding is 1e-6

PhraseVectors = Iterator[tuple[Sequence[bytes], Vectors]]


def phrases_of_lines(lines: Iterable[bytes], encoder: PhraseEncoder, name: str, at_once: int) -> Iterator[list[bytes]]:
    """Yield the phrases of lines as the model reads them, ``at_once`` at a time.

    Raises InputError for a bad line (see ``PhraseReader``), after the phrases before it.
    """
    read = PhraseReader(encoder.side, hint="write a phrase a line, or name the phrase table ('-': a table on standard input)")
    return parsed_lines(lines, lambda line: encoder.as_read([read(line)])[0], name, at_once)


@contextlib.contextmanager
def phrases_of_table(
    table: str, checkpoint: Checkpoint, scratch: str, threads: int, on_read: Callable[[int], object] | None = None
) -> Iterator[SortedPairs]:
    """Sort the distinct phrases of the side of a table that the model reads, for as long as the ``with`` block lasts.

    They are the sources of the pairs yielded, whose targets are empty; in the order of their bytes, in files in ``scratch``.
    Raises InputError for a bad row and for a table without rows.
    """
    side, factors = checkpoint.sides[0], checkpoint.factors
    of_side = (factors[0], None) if side == "source" else (None, factors[1])
    blocks = read_pair_blocks(table, "table", on_read, factors=of_side)
    columns = (block.src if side == "source" else block.tgt for block in blocks)
    with sorted_pairs((PairBlock(phrases, [b""] * len(phrases)) for phrases in columns), scratch, _MEMORY, threads) as found:
        if not found:
            raise InputError(display_name(table), "is empty", "pass a phrase table")
        yield found


def vectors_of_lines(lines: Iterable[bytes], encoder: PhraseEncoder, name: str, at_once: int = BATCH) -> PhraseVectors:
    """Yield the phrases of lines, in their order, and their vectors. Raises InputError for a bad line."""
    for phrases in phrases_of_lines(lines, encoder, name, at_once):
        yield phrases, encoder.vectors_as_read(phrases)


def vectors_of_table(phrases: SortedPairs, encoder: PhraseEncoder) -> PhraseVectors:
    """Yield the phrases of a table and their vectors."""
    for some in batches(chain.from_iterable(block.src for block in phrases), BATCH):
        yield some, encoder.vectors_as_read(some)


@dataclass(frozen=True)
class Written:
    """What was written to a file of vectors."""

    vectors: int
    width: int
    repeated: int = 0  # phrases left out because they were there already

    def __str__(self) -> str:
        """``3 vectors of 500 numbers``."""
        repeated = f"; {self.repeated:,} repeated phrases left out" if self.repeated else ""
        return f"{self.vectors:,} vectors of {self.width} numbers{repeated}"


def write_words(checkpoint: Checkpoint, side: Side, out: str, form: str) -> Written:
    """Write the embeddings of a side's words to a file (``-``: standard output)."""
    vectors = word_embeddings(checkpoint, side)
    with vector_output(out, form, vectors.shape[1], len(vectors)) as writer:
        writer.write(embedded_words(checkpoint, side), vectors)
    return Written(*vectors.shape)


def write_phrases(
    vectors: PhraseVectors, width: int, count: int | None, out: str, form: str, on_phrases: Callable[[int], object]
) -> Written:
    """Write phrases and their vectors to a file (``-``: standard output).

    ``count`` is their number, if that is known. ``on_phrases`` is told how many more were written.
    """
    with vector_output(out, form, width, count) as writer:
        for phrases, of_phrases in vectors:
            writer.write(phrases, of_phrases)
            on_phrases(len(phrases))
    return Written(writer.rows, width, writer.repeated)


def _tsv(query: bytes, found: Neighbours, names: Sequence[bytes]) -> list[bytes]:
    neighbours = zip(names, found.cosines.tolist(), strict=True)
    return [b"%b\t%b\t%.4f\n" % (query, name, cosine) for name, cosine in neighbours]


def neighbours_of_words(
    lines: Iterable[bytes], checkpoint: Checkpoint, side: Side, n: int, name: str, at_once: int, warn: Callable[[str], object]
) -> Iterator[list[bytes]]:
    """Yield lines of query, neighbour and cosine with tabs between, for words of a side, one a line, among its words.

    ``warn`` is told of words that the model does not know; they have no vector of their own and no neighbours.
    """
    names, vectors = embedded_words(checkpoint, side), word_embeddings(checkpoint, side)
    row_of = {word: row for row, word in enumerate(names)}
    number = 0
    for some in batches(lines, at_once):
        rows = []
        for line in some:
            number += 1
            query = b" ".join(words(line.rstrip(b"\r\n")))
            if query in row_of:
                rows.append(row_of[query])
            else:
                warn(f"{name}:{number}: {shown(query)} is not one of the model's {side} words")
        found = nearest(vectors[rows], [vectors], n, [np.array([row]) for row in rows])
        yield [
            line
            for row, near in zip(rows, found, strict=True)
            for line in _tsv(names[row], near, [names[i] for i in near.rows])
        ]


def check_index(index: PhraseIndex, encoder: PhraseEncoder) -> None:
    """Raise InputError if the vectors of an index are not those that the model gives; the first and the last are compared."""
    hint = "name the model that made it with -m"
    if index.width != encoder.width:
        found = f"vectors of {index.width} numbers where the model's have {encoder.width}"
        raise InputError(index.path, found, hint)
    rows = np.unique([0, len(index) - 1])
    for row, phrase in zip(rows.tolist(), index.phrases(rows), strict=True):
        if not np.allclose(encoder.vectors_as_read([phrase])[0], index.vectors(row, row + 1)[0], rtol=0, atol=_CLOSE):
            raise InputError(index.path, f"row {row + 1} is not what this model makes of {shown(phrase)}", hint)


def neighbours_of_phrases(
    lines: Iterable[bytes], encoder: PhraseEncoder, index: PhraseIndex, n: int, name: str, at_once: int
) -> Iterator[list[bytes]]:
    """Yield lines of query, neighbour and cosine with tabs between, for phrases, one a line, among those of an index.

    The query itself is left out. Raises InputError for a bad line and for an index of another model.
    """
    check_index(index, encoder)
    for phrases in phrases_of_lines(lines, encoder, name, at_once):
        own = index.rows_of(phrases)
        try:
            vectors = encoder.vectors_as_read(phrases)
            found = nearest(vectors, index.blocks(), n, [np.array(own.get(phrase, []), np.int64) for phrase in phrases])
        except RowError as error:
            raise InputError(index.path, error.found, error.hint) from None
        names = index.phrases(np.concatenate([near.rows for near in found]))
        ends = np.cumsum([len(near.rows) for near in found]).tolist()
        queries = zip(phrases, found, ends, strict=True)
        yield [line for query, near, end in queries for line in _tsv(query, near, names[end - len(near.rows) : end])]
