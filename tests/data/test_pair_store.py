"""Encoded pairs on disk: what they would be in memory; reused only when they still fit; there whole or not at all."""

import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory_pairs import DistinctPairs, unknown_share

from phrase_rescore.data import sorting
from phrase_rescore.data.pair_store import LAYOUT, HeldOut, PairStore, prepare_store
from phrase_rescore.data.prepared import fingerprint_of
from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.data.vocabulary import Vocabulary, most_frequent
from phrase_rescore.errors import RescoreError
from phrase_rescore.moses.pairs import PairBlock

WORDS = [b"a", b"b", b"A", b"\xff", b"\xc2\xa0", b"UNK", b"\r", b"\0", b"a\0", b"\x0b"]
PHRASE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
ARRAYS = [".".join(names) for names in product(("train", "held_out"), ("src", "tgt"), ("ids", "offsets"), ("npy",))]
FILES = sorted(["pairs.json", "source.vocab", "target.vocab", *ARRAYS])
FINGERPRINT = {"inputs": [("/x", 1, 2)], "files": [], "options": {"shortlist": 5}}
Choose = Callable[[Counter[bytes], Counter[bytes]], tuple[Vocabulary, Vocabulary]]


def shortlists(size: int) -> Choose:
    return lambda src, tgt: (most_frequent(src, size)[0], most_frequent(tgt, size)[0])


def many_pairs(sources: int, targets: int = 3) -> DistinctPairs:
    return DistinctPairs.collect(([b"s%d" % i, b"x"], [b"t%d" % j]) for i in range(sources) for j in range(1 + i % targets))


def prepared(
    directory: str | Path, pairs: DistinctPairs, held_out: int = 10, choose: Choose | None = None, **options: object
) -> PairStore:
    """A store of these pairs; what sorting leaves behind would be found beside it."""
    src, tgt = [a for a, _ in pairs.pairs], [b for _, b in pairs.pairs]
    with sorted_pairs([PairBlock(src, tgt)], os.path.dirname(directory), "", 100_000, 1) as distinct:
        return prepare_store(str(directory), FINGERPRINT, distinct, choose or shortlists(5), held_out, **options)  # type: ignore[arg-type]


def assert_equal(found: EncodedPairs, expected: EncodedPairs) -> None:
    for a, b in ((found.src, expected.src), (found.tgt, expected.tgt)):
        assert a.ids.dtype == np.int32
        assert a.offsets.dtype == np.int64
        assert np.array_equal(a.ids, b.ids)
        assert np.array_equal(a.offsets, b.offsets)


def assert_holds(store: PairStore, pairs: DistinctPairs, held_out: int, size: int) -> None:
    held = pairs.held_out(held_out)
    learnt = DistinctPairs([pair for pair, out in zip(pairs.pairs, held, strict=True) if not out])
    assert (store.src_vocab, store.tgt_vocab) == shortlists(size)(*learnt.word_counts())
    encoded = pairs.encode(store.src_vocab, store.tgt_vocab)
    train = encoded.take(np.flatnonzero(~held))
    assert_equal(store.train, train)
    assert_equal(store.held_out, encoded.take(np.flatnonzero(held)))
    n = store.numbers
    assert (n.training + n.held_out, n.training, n.held_out) == (len(pairs.pairs), len(train), held.sum())
    assert (n.source_unk, n.target_unk) == (unknown_share(train.src), unknown_share(train.tgt))


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.tuples(PHRASE, PHRASE)), st.integers(1, 8))
def test_holds_what_would_be_in_memory(pairs: list[tuple[list[bytes], list[bytes]]], size: int) -> None:
    distinct = DistinctPairs.collect(pairs)
    with tempfile.TemporaryDirectory() as parent:
        store = prepared(f"{parent}/store", distinct, 10, shortlists(size))
        assert_holds(store, distinct, 10, size)
        again = LAYOUT.open(f"{parent}/store", FINGERPRINT)
        assert again is not None
        assert_holds(again, distinct, 10, size)
        assert again.numbers == store.numbers


@pytest.mark.parametrize("held_out", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1)), 7, 10_000])
def test_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_out: int) -> None:
    """Sources whose targets stand in different blocks among them."""
    monkeypatch.setattr(sorting, "_CHUNK", 50)
    pairs = many_pairs(3000)
    seen: list[int] = []
    store = prepared(tmp_path / "store", pairs, held_out, shortlists(100), progress=seen.append)
    assert_holds(store, pairs, held_out, 100)
    assert len(seen) > 500
    assert sum(seen) == 2 * len(pairs.pairs)
    assert sorted(os.listdir(store.directory)) == FILES
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.sampled_from([0, 1, 199, 200, 201, 1000, 3000]),
    st.sampled_from([1, 2, 7]),
    st.sampled_from([0, 1, 2, 5, 14, 15, 10_000]),
    st.randoms(use_true_random=False),
)
def test_held_out_sources_are_those_of_the_rule(sources: int, targets: int, most: int, rng: random.Random) -> None:
    pairs = DistinctPairs.collect(
        ([b"s%d" % rng.randrange(10**6)], [b"t%d" % j]) for _ in range(sources) for j in range(rng.randint(1, targets))
    )
    choice, rest = HeldOut(most), pairs.pairs
    while rest:
        size = rng.randint(1, 500)
        choice.add([src for src, _ in rest[:size]], [tgt for _, tgt in rest[:size]])
        rest = rest[size:]
    held = [pair for pair, out in zip(pairs.pairs, pairs.held_out(most), strict=True) if out]
    assert sorted((src, tgt) for src, targets in choice.sources().items() for tgt in targets) == held


def test_a_source_of_more_pairs_than_may_be_held_out_is_not_remembered() -> None:
    choice = HeldOut(10)
    for i in range(50):
        choice.add([b"s"] * 100, [b"t%d" % i] * 100)
        assert choice.kept == []
    assert choice.sources() == {}


def test_numbers_of_pairs_left_out(tmp_path: Path) -> None:
    block = PairBlock([b"a", b"a b", b"c"], [b"x", b"x", b"y"], [1, 5, 2])
    with sorted_pairs([block], str(tmp_path), "", 10_000, 1, min_count=2, max_length=1) as pairs:
        numbers = prepare_store(str(tmp_path / "store"), None, pairs, shortlists(5), 10).numbers
    assert (numbers.training + numbers.held_out, numbers.left_out, numbers.too_long) == (1, 1, 1)


def test_other_contents_have_other_hashes(tmp_path: Path) -> None:
    """Another phrase, another end of a phrase, other words of the same ids."""
    texts = [[b"a b", b"c"], [b"a a", b"c"], [b"a", b"b c"], [b"a d", b"e"]]
    stores = [prepared(tmp_path / str(i), DistinctPairs([(src, b"x") for src in text])) for i, text in enumerate(texts)]
    assert len({store.numbers.pairs_content for store in stores}) == len(texts)


def test_fits_only_its_fingerprint(tmp_path: Path) -> None:
    store = prepared(tmp_path / "store", many_pairs(10))
    assert LAYOUT.open(store.directory, FINGERPRINT) is not None
    assert LAYOUT.open(store.directory, {**FINGERPRINT, "options": {"shortlist": 6}}) is None
    assert LAYOUT.open(store.directory, None) is None
    assert LAYOUT.open(f"{tmp_path}/none", FINGERPRINT) is None

    def then_replaced(*files: object) -> PairStore:
        found = LAYOUT.load(*files)
        shutil.move(store.directory, f"{store.directory}.before")
        shutil.copytree(f"{store.directory}.before", store.directory)
        return found

    assert replace(LAYOUT, load=then_replaced).open(store.directory, FINGERPRINT) is None, "while it was read"
    with sorted_pairs([PairBlock([b"a"], [b"b"])], str(tmp_path), "", 10_000, 1) as pairs:
        prepare_store(store.directory, None, pairs, shortlists(5), 10)
    assert LAYOUT.open(store.directory, None) is None, "made of what cannot be read twice"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["missing", "cut off", "longer", "empty", "a directory"])
def test_a_damaged_store_is_none(tmp_path: Path, name: str, harm: str) -> None:
    store = prepared(tmp_path / "store", many_pairs(30))
    path = tmp_path / "store" / name
    data = path.read_bytes()
    path.unlink()
    if harm == "a directory":
        path.mkdir()
    elif harm != "missing":
        path.write_bytes({"cut off": data[:-2], "longer": data + b"}", "empty": b""}[harm])
    assert LAYOUT.open(store.directory, FINGERPRINT) is None


@pytest.mark.parametrize(("change", "numbers"), [
    ({"format_version": 1}, {}), ({"format_version": 3}, {}), ({"numbers": {}}, {}), ({"numbers": 3}, {}),
    ({"files": None}, {}), ({}, {"source_unk": -0.5}), ({}, {"training": 5}),
])  # fmt: skip
def test_a_summary_of_another_kind_is_none(tmp_path: Path, change: dict[str, object], numbers: dict[str, object]) -> None:
    store = prepared(tmp_path / "store", many_pairs(3))
    path = tmp_path / "store" / "pairs.json"
    summary = json.loads(path.read_bytes())
    summary["numbers"] |= numbers
    path.write_text(json.dumps({**summary, **change}))
    assert LAYOUT.open(store.directory, FINGERPRINT) is None
    path.write_text("[1]")
    assert LAYOUT.open(store.directory, FINGERPRINT) is None
    path.write_bytes(b"\xff")
    assert LAYOUT.open(store.directory, FINGERPRINT) is None


@pytest.mark.parametrize(
    ("old", "new"), [(b"(7,)", b"(7 ,"), (b"(7,)", b"(6,)"), (b"(7,)", b"(%d,)" % 10**30), (b"<i8", b"|O8"), (b"<i8", b"<f8")]
)
def test_a_damaged_header_of_an_array_is_none(tmp_path: Path, old: bytes, new: bytes) -> None:
    store = prepared(tmp_path / "store", many_pairs(3))
    path, summary = tmp_path / "store" / "train.src.offsets.npy", tmp_path / "store" / "pairs.json"
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    found = json.loads(summary.read_bytes())
    found["files"][path.name] = path.stat().st_size
    summary.write_text(json.dumps(found))
    assert LAYOUT.open(store.directory, FINGERPRINT) is None


def test_no_room(tmp_path: Path) -> None:
    def full(pairs: int) -> None:
        raise OSError(28, "No space left on device")

    calls = iter([lambda pairs: None, full])
    directory = tmp_path / "store"
    with pytest.raises(RescoreError, match=f"cannot write {directory}: No space left on device; "):
        prepared(directory, many_pairs(10), progress=lambda pairs: next(calls)(pairs))
    assert os.listdir(tmp_path) == []


def test_fingerprints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "words"):
        Path(name).write_bytes(b"x")
        os.utime(name, (1, 1))

    def of(inputs: Sequence[str] = ("a", "b"), files: Sequence[str | None] = (None, "words"), size: int = 5) -> object:
        return fingerprint_of(inputs, files, shortlist=size)

    first = of()
    assert first == of() == of([str(tmp_path / "a"), "b"])
    assert json.loads(json.dumps(first))["options"] == {"shortlist": 5}
    others = [of(["a"]), of(["b", "a"]), of(files=["words", None]), of(files=()), of(size=6)]
    os.utime("b", ns=(10**9, 10**9 + 1))
    others.append(of())
    os.utime("b", (1, 1))
    assert of() == first
    Path("words").write_bytes(b"xy")
    os.utime("words", (1, 1))
    others.append(of())
    assert all(other not in (None, first) for other in others)


def test_what_cannot_be_read_twice_has_no_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_bytes(b"")
    Path("a").write_bytes(b"")
    os.mkfifo("pipe")
    assert fingerprint_of(["a"]) is not None
    for path in ("-", "pipe", "none", "."):
        assert fingerprint_of(["a", path]) is None
        assert fingerprint_of(["a"], [path]) is None
