"""The nearest vectors by cosine: exact, in blocks, among as many as a file holds."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.files.inputs import map_array, open_plain
from phrase_rescore.queries.vector_files import Vectors, index_of

_BLOCK = 1 << 25  # bytes of vectors read at a time
_CHUNK = 1 << 24  # bytes of an index read at a time
_TINY = np.finfo(np.float32).tiny
Rows = NDArray[np.int64]


class Neighbours(NamedTuple):
    """The neighbours of one query, the nearest first."""

    rows: Rows  # (n,), less where there are no more
    cosines: Vectors


def nearest(queries: Vectors, blocks: Iterable[Vectors], n: int, left_out: Sequence[Rows]) -> list[Neighbours]:
    """Find the ``n`` rows with the largest cosine to each of ``queries`` (q, W), without the rows ``left_out`` of each.

    The rows are those of all ``blocks`` (any number, W), numbered from 0 through all of them. Of equal cosines the first rows
    come first. A zero vector has cosine 0 to every other. Raises RowError for a vector whose length is not a finite number.
    """
    unit = queries / np.maximum(_lengths(queries), _TINY)[:, None]
    found = [Neighbours(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    start = 0
    for block in blocks:
        lengths = _lengths(block)
        if not np.isfinite(lengths).all():
            bad = start + int(np.argmin(np.isfinite(lengths))) + 1
            raise RowError(f"row {bad} has a number that is NaN, infinite or too large", "make the file again")
        cosines = unit @ block.T
        cosines /= np.maximum(lengths, _TINY)
        for i, out in enumerate(left_out):
            cosines[i, out[(out >= start) & (out < start + len(block))] - start] = -np.inf
            found[i] = _better(found[i], cosines[i], start, n)
        start += len(block)
    return found


def _lengths(vectors: Vectors) -> Vectors:
    lengths: Vectors = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


def _better(found: Neighbours, cosines: Vectors, start: int, n: int) -> Neighbours:
    """Return the ``n`` best of those found and of a block's, whose rows begin with number ``start``."""
    least = found.cosines[-1] if len(found.rows) == n else -np.inf
    new = np.flatnonzero(cosines > least)
    if not len(new):
        return found
    rows, of_rows = np.concatenate((found.rows, start + new)), np.concatenate((found.cosines, cosines[new]))
    best = np.argsort(-of_rows, kind="stable")[:n]
    return Neighbours(rows[best], of_rows[best])


class PhraseIndex:
    """Phrases and their vectors, ``c.npy`` and ``c.index``, read where they are needed: 8 bytes a phrase are in memory.

    Raises InputError for files that are missing, damaged, or not of one length. Nothing in them is executed.
    """

    def __init__(self, path: str) -> None:
        self.path, self.index_path = path, index_of(path)
        hint = "name a file that 'phrase-rescore embed -o FILE.npy' made"
        vectors = map_array(path, hint)
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.shape[1] or not vectors.flags.c_contiguous:
            raise InputError(path, f"holds {vectors.dtype} of shape {vectors.shape}, not rows of float32", hint)
        self.width, self._dtype, self._offset = vectors.shape[1], vectors.dtype, vectors.offset
        ends = [np.zeros(1, np.int64)]
        for start, chunk in self._chunks():
            ends.append(start + 1 + np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")))
        self._ends = np.concatenate(ends)  # where each line begins; the last one ends where none begins
        if len(self) != len(vectors):
            found = f"{len(self)} phrases where {path} has {len(vectors)} vectors"
            raise InputError(self.index_path, found, "make both again")
        if not len(self):
            raise InputError(path, "has no vectors", "make it of some phrases")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yield pieces of whole lines: where each begins, and its bytes."""
        start = 0
        with open_plain(self.index_path) as stream:
            while chunk := stream.read(_CHUNK):
                chunk += stream.readline()
                yield start, chunk
                start += len(chunk)

    def vectors(self, start: int, stop: int) -> Vectors:
        """Read the vectors of the rows from ``start`` to before ``stop``."""
        size = self.width * self._dtype.itemsize
        try:
            numbers = np.fromfile(self.path, self._dtype, (stop - start) * self.width, offset=self._offset + start * size)
            return numbers.reshape(stop - start, self.width).astype(np.float32, copy=False)
        except (OSError, ValueError) as error:
            raise InputError(self.path, f"cannot be read to its end ({error})", "make the file again") from None

    def blocks(self) -> Iterator[Vectors]:
        """Yield the vectors of all rows, some at a time."""
        step = max(1, _BLOCK // (self.width * self._dtype.itemsize))
        return (self.vectors(start, min(start + step, len(self))) for start in range(0, len(self), step))

    def phrases(self, rows: Rows) -> list[bytes]:
        """Read the phrases of some rows."""
        with open_plain(self.index_path) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return [text[self._ends[row] : self._ends[row + 1] - 1] for row in rows.tolist()]

    def rows_of(self, phrases: Collection[bytes]) -> dict[bytes, list[int]]:
        """Find the rows of some phrases; a phrase that stands in no row is not among them."""
        wanted, found, row = set(phrases), dict[bytes, list[int]](), 0
        for _, chunk in self._chunks():
            lines = chunk.removesuffix(b"\n").split(b"\n")
            if not wanted.isdisjoint(lines):
                for i, line in enumerate(lines):
                    if line in wanted:
                        found.setdefault(line, []).append(row + i)
            row += len(lines)
        return found
