"""Files of vectors: what other programs read in them, and that they appear whole or not at all."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from word2vec import word2vec

from phrase_rescore.queries.embed import vector_name, vector_output

# blanks, the characters that names escape, bytes that are no UTF-8, line ends of other alphabets, a BOM
PHRASES = [
    b"the", b"in the end", b"in_the_end", b"in\\_the end", b"caf\xe9", b"caf\\xe9", "café".encode(), b"\xff\xfe", b"_", b"\\",
    "a\u0085b".encode(), "a\u2028b c".encode(), "\u00a0".encode(), b"a\x0bb", b"\x0c", b"a\rb", b"a\0b", b"&apos;s",
    "\ufeffa".encode(), b"12", b"a" * 3000,
]  # fmt: skip
NAMES = [
    "the", "in_the_end", "in\\_the\\_end", "in\\\\\\_the_end", "caf\\xe9", "caf\\\\xe9", "café", "\\xff\\xfe", "\\_", "\\\\",
    "a\u0085b", "a\u2028b_c", "\u00a0", "a\x0bb", "\x0c", "a\rb", "a\0b", "&apos;s", "\ufeffa", "12", "a" * 3000,
]  # fmt: skip
rng = np.random.default_rng(5)
VECTORS = rng.normal(size=(len(PHRASES), 3)).astype(np.float32) * 10.0 ** rng.integers(-9, 9, (len(PHRASES), 3)).astype(
    np.float32
)


@pytest.mark.parametrize("count", [len(PHRASES), None])
def test_gensim_reads_what_was_written(tmp_path: Path, count: int | None) -> None:
    path = tmp_path / "vectors"
    with vector_output(str(path), "txt", 3, count) as writer:
        for start in range(0, len(PHRASES), 4):
            writer.write(PHRASES[start : start + 4], VECTORS[start : start + 4])
    found = word2vec(path)
    assert found.index_to_key == NAMES
    np.testing.assert_array_equal(found.vectors, VECTORS)
    assert path.read_bytes().startswith(b"21 3\n" if count else b"000000000021 3\n")


words = st.binary(min_size=1, max_size=4).map(lambda word: word.translate(None, b" \t\n") or b"_")
phrases = st.lists(words | st.sampled_from([b"_", b"\\", b"\\xff", b"\xff"]), min_size=1, max_size=3).map(b" ".join)


@given(phrases, phrases)
def test_no_two_phrases_have_one_name(one: bytes, other: bytes) -> None:
    names = vector_name(one), vector_name(other)
    assert (names[0] == names[1]) == (one == other)
    assert not {b" ", b"\n"} & {bytes([byte]) for byte in names[0]}
    names[0].decode()
