"""The nearest vectors are those of brute force, from files that are what they should be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.queries import nearest as module
from phrase_rescore.queries.nearest import PhraseIndex, nearest

NONE = np.empty(0, np.int64)


def made(folder: Path, phrases: list[bytes], vectors: object) -> str:
    (folder / "c.index").write_bytes(b"".join(phrase + b"\n" for phrase in phrases))
    np.save(folder / "c.npy", vectors)
    return str(folder / "c.npy")


def brute_force(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors.astype(np.float64), axis=1)
    return queries.astype(np.float64) @ vectors.T / np.maximum(lengths, 1e-30)


@pytest.mark.parametrize("block", [1 << 25, 200, 1])  # bytes: all at once, ten rows, one row
def test_it_is_brute_force(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(1)
    vectors, queries = rng.normal(size=(157, 5)).astype(np.float32), rng.normal(size=(9, 5)).astype(np.float32)
    vectors[50] = vectors[20] = queries[0] * 3  # equal cosines: the first row first
    vectors[7] = 0
    index = PhraseIndex(made(tmp_path, [b"x"] * 157, vectors))
    assert len(list(index.blocks())) == {1 << 25: 1, 200: 16, 1: 157}[block]
    left_out = [NONE, *(np.array([i, 100 + i]) for i in range(1, 9))]
    cosines = brute_force(queries, vectors)
    for i, rows in enumerate(left_out):
        cosines[i, rows] = -np.inf
    for n in (1, 10, 1000):
        found = nearest(queries, index.blocks(), n, left_out)
        for i, near in enumerate(found):
            best = np.argsort(-cosines[i], kind="stable")[: min(n, len(vectors) - len(left_out[i]))]
            assert len(near.rows) == len(best)
            assert list(near.rows[:2]) == list(best[:2])
            np.testing.assert_allclose(near.cosines, cosines[i, best], atol=1e-6)
            np.testing.assert_allclose(cosines[i, near.rows], cosines[i, best], atol=1e-6)
    assert list(nearest(queries, index.blocks(), 2, left_out)[0].rows) == [20, 50]
    assert nearest(np.zeros((1, 5), np.float32), [vectors], 3, [NONE])[0].cosines.tolist() == [0, 0, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_numbers_that_are_none(bad: float) -> None:
    vectors = np.ones((4, 2), np.float32)
    vectors[2] = bad
    with pytest.raises(RowError, match="row 3 has a number that is NaN, infinite or too large; make the file again"):
        nearest(np.ones((1, 2), np.float32), [vectors[:1], vectors[1:]], 1, [NONE])


@pytest.mark.parametrize("chunk", [1 << 24, 5])
def test_phrases_of_rows_and_rows_of_phrases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chunk: int) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    phrases = [b"a", b"a b", b"\xff", b"a\rb", b"a", "\u0085".encode(), b"long words"]
    index = PhraseIndex(made(tmp_path, phrases, np.zeros((7, 2), np.float32)))
    assert len(index) == 7
    assert index.phrases(np.array([6, 0, 3, 0])) == [b"long words", b"a", b"a\rb", b"a"]
    assert index.rows_of([b"a", b"b", b"\xff", b"long words", b""]) == {b"a": [0, 4], b"\xff": [2], b"long words": [6]}


class Explosive:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_files_that_are_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    some, hint = np.zeros((2, 2), np.float32), "name a file that 'phrase-rescore embed -o FILE.npy' made"

    def refused(path: str = "c.npy") -> str:
        with pytest.raises(InputError) as caught:
            PhraseIndex(path)
        return str(caught.value)

    assert refused() == "c.npy: No such file or directory; check the path"
    made(tmp_path, [b"a"], some)
    assert refused() == "c.index: 1 phrases where c.npy has 2 vectors; make both again"
    (tmp_path / "c.index").write_bytes(b"a\nb")
    assert refused().startswith("c.index: 1 phrases where"), "the last line is cut off"
    (tmp_path / "c.index").unlink()
    assert refused() == "c.index: No such file or directory; check the path"
    made(tmp_path, [b"a", b"b"], np.array([Explosive(), 1], object))
    assert refused().startswith("c.npy: is not an array of numbers (")
    (tmp_path / "c.npy").write_bytes(pickle.dumps(Explosive()))
    assert refused().startswith("c.npy: is not an array of numbers (")
    assert not (tmp_path / "exploded").exists()
    for damaged in (b"", b"PK\3\4", b"a b\n"):
        (tmp_path / "c.npy").write_bytes(damaged)
        assert refused().startswith("c.npy: is not an array of numbers ("), damaged
        assert refused().endswith(hint)
    whole = Path(made(tmp_path, [b"a", b"b"], some)).read_bytes()
    for new in (b"(2, 2 , ", b"(2, -), ", b"(2,\x1b2), ", b"('', ), "):  # where numpy has errors of many kinds
        (tmp_path / "c.npy").write_bytes(whole.replace(b"(2, 2), ", new))
        assert refused().startswith("c.npy: is not an array of numbers ("), new
        assert refused().isprintable(), new
    (tmp_path / "c.npy").write_bytes(whole[:-1])
    assert refused().startswith("c.npy: is not an array of numbers (")
    for wrong, told in ((np.zeros((2, 2), int), "int64 of shape (2, 2)"), (np.zeros(2), "float64 of shape (2,)"),
                        (np.zeros((2, 0)), "float64 of shape (2, 0)"),
                        (np.zeros((2, 3), order="F"), "float64 of shape (2, 3)")):  # fmt: skip
        made(tmp_path, [b"a", b"b"], wrong)
        assert refused() == f"c.npy: holds {told}, not rows of float32; {hint}"
    made(tmp_path, [], np.zeros((0, 2), np.float32))
    assert refused() == "c.npy: has no vectors; make it of some phrases"
    assert refused(str(tmp_path)) == f"{tmp_path}: Is a directory; name a file in it"


def test_numbers_of_other_sizes(tmp_path: Path) -> None:
    """As other programs write them: big-endian, double, half."""
    some = np.arange(6).reshape(3, 2)
    for dtype in (">f4", "<f8", "<f2"):
        index = PhraseIndex(made(tmp_path, [b"a", b"b", b"c"], some.astype(dtype)))
        assert index.vectors(1, 3).dtype == np.float32
        np.testing.assert_array_equal(index.vectors(1, 3), some[1:])
    os.truncate(index.path, os.path.getsize(index.path) - 1)
    with pytest.raises(InputError, match="cannot be read to its end"):
        index.vectors(1, 3)
