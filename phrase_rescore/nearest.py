"""The nearest vectors by cosine: exact, in blocks, among as many as a file holds."""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.fileio import open_plain
from phrase_rescore.vector_files import Vectors, index_of

_BLOCK = 1 << 25  # bytes of vectors taken at a time
_CHUNK = 1 << 24  # bytes of an index read at a time
_TINY = np.finfo(np.float32).tiny
Rows = NDArray[np.int64]


class Neighbours(NamedTuple):
    """Of one query, the nearest first."""

    rows: Rows  # (n,), less where there are no more
    cosines: Vectors


def nearest(queries: Vectors, vectors: Vectors, n: int, left_out: Sequence[Rows]) -> list[Neighbours]:
    """The ``n`` rows of ``vectors`` (N, W), which may be mapped from a file, with the largest cosine to each of ``queries``
    (q, W), but for the rows ``left_out`` of each. Of equal cosines the first rows come first. A zero vector has cosine 0.

    Raises RowError for a vector whose length is no number.
    """
    unit = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), _TINY)
    found = [Neighbours(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    step = max(1, _BLOCK // (4 * vectors.shape[1]))
    for start in range(0, len(vectors), step):
        block = np.asarray(vectors[start : start + step], np.float32)
        lengths = np.linalg.norm(block, axis=1)
        if not np.isfinite(lengths).all():
            bad = start + int(np.argmin(np.isfinite(lengths))) + 1
            raise RowError(f"row {bad} has a number that is NaN, infinite or too large", "make the file again")
        cosines = unit @ block.T
        cosines /= np.maximum(lengths, _TINY)
        for i, out in enumerate(left_out):
            cosines[i, out[(out >= start) & (out < start + len(block))] - start] = -np.inf
            found[i] = _better(found[i], cosines[i], start, n)
    return found


def _better(found: Neighbours, cosines: Vectors, start: int, n: int) -> Neighbours:
    """The ``n`` best of those found and of a block's, whose rows begin with number ``start``."""
    least = found.cosines[-1] if len(found.rows) == n else -np.inf
    new = np.flatnonzero(cosines > least)
    if not len(new):
        return found
    rows, of_rows = np.concatenate((found.rows, start + new)), np.concatenate((found.cosines, cosines[new]))
    best = np.argsort(-of_rows, kind="stable")[:n]
    return Neighbours(rows[best], of_rows[best])


class PhraseIndex:
    """Phrases and their vectors, ``c.npy`` and ``c.index``, both mapped: 8 bytes a phrase are in memory.

    Raises InputError for files that are missing, damaged, or not of one length. Nothing in them is executed.
    """

    def __init__(self, path: str) -> None:
        self.path, self.index_path = path, index_of(path)
        self.vectors = _mapped_vectors(path)
        ends = [np.zeros(1, np.int64)]
        for start, chunk in self._chunks():
            ends.append(start + 1 + np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")))
        self._ends = np.concatenate(ends)  # where each line begins; the last one ends where none begins
        if len(self) != len(self.vectors):
            found = f"{len(self)} phrases where {path} has {len(self.vectors)} vectors"
            raise InputError(self.index_path, found, "make both again")
        if not len(self):
            raise InputError(path, "has no vectors", "make it of some phrases")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """Where each piece of whole lines begins, and its bytes."""
        start = 0
        with open_plain(self.index_path) as stream:
            while chunk := stream.read(_CHUNK):
                chunk += stream.readline()
                yield start, chunk
                start += len(chunk)

    def phrases(self, rows: Rows) -> list[bytes]:
        """The phrases of some rows."""
        with open_plain(self.index_path) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return [text[self._ends[row] : self._ends[row + 1] - 1] for row in rows.tolist()]

    def rows_of(self, phrases: Collection[bytes]) -> dict[bytes, list[int]]:
        """Which rows each of some phrases has; those that stand in no row are not there."""
        wanted, found, row = set(phrases), dict[bytes, list[int]](), 0
        for _, chunk in self._chunks():
            lines = chunk.removesuffix(b"\n").split(b"\n")
            if not wanted.isdisjoint(lines):
                for i, line in enumerate(lines):
                    if line in wanted:
                        found.setdefault(line, []).append(row + i)
            row += len(lines)
        return found


def _mapped_vectors(path: str) -> Vectors:
    """The array of an ``.npy`` file. Objects in it, which numpy would unpickle, are refused."""
    open_plain(path).close()  # says what the system says
    hint = "name a file that 'phrase-rescore embed -o FILE.npy' made"
    if not os.path.isfile(path):
        raise InputError(path, "is no regular file", hint)
    try:
        vectors = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, OverflowError) as error:
        raise InputError(path, f"no array of numbers ({error})".splitlines()[0], hint) from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.shape[1]:
        raise InputError(path, f"holds {vectors.dtype} of shape {vectors.shape}, no rows of float32", hint)
    return vectors
