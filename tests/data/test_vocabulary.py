"""Shortlists: deterministic, some words left for UNK, special words by position only, files of raw bytes."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.data.vocabulary import EOS, UNK, Vocabulary, format_vocabulary, most_frequent, read_vocabulary
from phrase_rescore.errors import InputError

WORD = st.binary(min_size=1, max_size=4).filter(lambda word: not set(word) & set(b" \t\n"))


def test_eos_and_unk_are_0_and_1() -> None:
    assert (EOS, UNK) == (0, 1)
    vocabulary = Vocabulary((b"b", b"a"), (2, 1))
    assert vocabulary.encode([b"a", b"b", b"c", b"a"]).tolist() == [3, 2, 1, 3]
    assert len(vocabulary) == 4


@pytest.mark.parametrize("spelling", [b"UNK", b"<unk>", b"</s>", b"EOS", b"<s>"])
def test_special_spellings_are_words_like_any_other(spelling: bytes) -> None:
    assert Vocabulary((b"a",), (1,)).encode([spelling]).tolist() == [UNK]
    assert Vocabulary((b"a", spelling), (2, 1)).encode([spelling]).tolist() == [3]
    kept, _ = most_frequent(Counter({spelling: 3, b"a": 2, b"b": 1}), 2)
    assert kept.words == (spelling, b"a")


@given(st.dictionaries(WORD, st.integers(1, 3), min_size=1, max_size=12), st.integers(1, 12), st.randoms())
def test_most_frequent_first_ties_in_byte_order_whatever_the_order_of_counting(counts, shortlist, random) -> None:
    shuffled = list(counts.items())
    random.shuffle(shuffled)
    vocabulary, left_out = most_frequent(Counter(dict(shuffled)), shortlist)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    assert vocabulary.words == tuple(ranked[: len(vocabulary.words)])
    assert vocabulary.counts == tuple(counts[word] for word in vocabulary.words)
    assert len(vocabulary.words) <= shortlist
    if len(counts) > shortlist:
        assert (len(vocabulary.words), left_out) == (shortlist, 0)
    else:
        assert len(vocabulary.words) + left_out == len(counts)


@pytest.mark.parametrize(("types", "shortlist", "kept", "left_out"), [
    (1000, 15_000, 990, 10),
    (1001, 1001, 990, 11),  # at least 1 %
    (1001, 1000, 1000, 0),  # one word is unknown already
    (99, 99, 98, 1), (2, 2, 1, 1),
    (1, 10, 1, 0),  # a side of a single type keeps it
    (0, 10, 0, 0),
])  # fmt: skip
def test_the_rarest_hundredth_teaches_unk(types: int, shortlist: int, kept: int, left_out: int) -> None:
    counts = Counter({b"%d" % i: 1 + i for i in range(types)})
    vocabulary, n = most_frequent(counts, shortlist)
    assert (len(vocabulary.words), n) == (kept, left_out)
    assert set(vocabulary.words) == {b"%d" % i for i in range(types - kept, types)}, "the most frequent are kept"


@given(st.dictionaries(WORD, st.sampled_from([0, 1, 10**18 - 1])))
def test_format_and_read_are_inverse_for_all_bytes(tmp_path_factory: pytest.TempPathFactory, words: dict[bytes, int]) -> None:
    vocabulary = Vocabulary(tuple(words), tuple(words.values()))
    path = tmp_path_factory.getbasetemp() / "side.vocab"
    for data in (format_vocabulary(vocabulary), format_vocabulary(vocabulary).removesuffix(b"\n")):
        path.write_bytes(data)
        assert read_vocabulary(str(path)) == vocabulary


@pytest.mark.parametrize(("data", "line"), [
    (b"a\t1\n\nb\t1\n", 2), (b"a\t1\n\t3\n", 2), (b"a b\t1\n", 1), (b"a\t2\nb\t1\na\t1\n", 3), (b"b\t1\na\n", 2), (b"a\t\n", 1),
    (b"a\tmany\n", 1), (b"a\t-1\n", 1), (b"a\t1\t2\n", 1), (b"a\t1\r\n", 1), (b"a\r\n", 1), (b"a\t\xd9\xa3\n", 1),
    (b"a\t" + b"9" * 19 + b"\n", 1),
])  # fmt: skip
def test_bad_files(tmp_path: Path, data: bytes, line: int) -> None:
    path = tmp_path / "side.vocab"
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"^{path}:{line}: "):
        read_vocabulary(str(path))
