"""Distinct pairs by an external sort: the same as a set of them in memory, whatever their bytes; failures leave nothing."""

import errno
import os
import random
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phrase_rescore.data import sorting
from phrase_rescore.data.sorting import sorted_pairs
from phrase_rescore.errors import InputError, OptionError, RescoreError
from phrase_rescore.moses.pairs import PairBlock

WORDS = [b"a", b"b", b"A", b"\xff", b"\xc2\xa0", b"\0", b"a\0", b"\1", b"a\1", b"\r", b"0", b"|||", b"-u"]
PHRASE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(b" ".join)
COUNTED = st.tuples(PHRASE, PHRASE, st.sampled_from([1, 2, 0.5]))
Row = tuple[bytes, bytes, float]
REAL_SORT = shutil.which("sort")


def blocks_of(rows: list[Row], size: int = 3, counts: bool = False) -> Iterator[PairBlock]:
    for start in range(0, len(rows), size):
        src, tgt, found = zip(*rows[start : start + size], strict=True)
        yield PairBlock(src, tgt, found if counts else None)


def lines_of(pairs: Iterable[PairBlock]) -> list[bytes]:
    return [a + b"\t" + b for src, tgt, _ in pairs for a, b in zip(src, tgt, strict=True)]


def fake_sort(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, name: str = "sort") -> None:
    """The only program in PATH; ``script`` stands for what it does when it is to sort."""
    program = folder / name
    program.write_text(f'#!/bin/sh\ncase "$1" in --version) echo "sort (GNU coreutils) 9.1"; exit;; esac\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@settings(max_examples=min(40, settings().max_examples))
@given(st.lists(COUNTED), st.integers(1, 4), st.sampled_from([None, 1, 2]))
def test_rare_and_long_pairs_are_left_out(rows: list[Row], min_count: int, max_length: int | None) -> None:
    totals: Counter[bytes] = Counter()
    for src, tgt, count in rows:
        totals[src + b"\t" + tgt] += count if min_count > 1 else 1  # type: ignore[assignment]
    lengths = {line: max(len(phrase.split(b" ")) for phrase in line.split(b"\t")) for line in totals}
    short = [line for line in sorted(totals) if max_length is None or lengths[line] <= max_length]
    expected = [line for line in short if totals[line] >= min_count]
    with (
        tempfile.TemporaryDirectory() as scratch,
        sorted_pairs(blocks_of(rows, counts=min_count > 1), scratch, "", 10_000, 1, min_count, max_length) as pairs,
    ):
        assert lines_of(pairs) == expected
        assert lines_of(pairs) == expected, "as often as one likes"
        assert (pairs.too_long, pairs.left_out) == (len(totals) - len(short), len(short) - len(expected))


@pytest.mark.parametrize("min_count", [1, 3])
def test_more_pairs_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_count: int) -> None:
    """Runs on disk, merged; and pairs whose counts stand in different pieces of sort's output."""
    monkeypatch.setattr(sorting, "_CHUNK", 1000)
    rng = random.Random(1)
    rows: list[Row] = [(b"source %d" % rng.randrange(500), b"target %d" % rng.randrange(40), 1) for _ in range(50_000)]
    runs: list[Path] = []

    def blocks() -> Iterator[PairBlock]:
        yield from blocks_of(rows, 1000, counts=True)
        runs.extend(tmp_path.glob("*/sort*"))
        assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [0o700], "nobody else's"

    with sorted_pairs(blocks(), str(tmp_path), "", 20_000, 2, min_count) as pairs:
        totals = Counter(src + b"\t" + tgt for src, tgt, _ in rows)
        assert lines_of(pairs) == sorted(line for line, count in totals.items() if count >= min_count)
        assert pairs.left_out == sum(count < min_count for count in totals.values())
        assert len(list(pairs)) > 50
    assert runs
    assert os.listdir(tmp_path) == []


def test_the_order_is_of_bytes_whatever_the_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    with sorted_pairs([PairBlock([b"b", b"B", b"a", b"\xff"], [b"x"] * 4)], str(tmp_path), "", 10_000, 1) as pairs:
        assert lines_of(pairs) == [b"B\tx", b"a\tx", b"b\tx", b"\xff\tx"]


@pytest.mark.parametrize("rows", [0, 1, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("script", "why"), [
    ('echo "sort: a warning" >&2; echo "sort: write failed: full" >&2; exit 2', "sort: write failed: full"),
    ("exit 3", "sort ended with status 3"),
    ("while read line; do :; done; exit 4", "sort ended with status 4"),
    ("kill -9 $$", "killed by signal 9"),
])  # fmt: skip
def test_a_sort_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str, rows: int) -> None:
    bin_, scratch = tmp_path / "bin", tmp_path / "scratch"
    bin_.mkdir()
    scratch.mkdir()
    fake_sort(monkeypatch, bin_, script)
    blocks = blocks_of([(b"a", b"b%d" % i, 1) for i in range(rows)], 1000)
    with pytest.raises(RescoreError, match=f": {why}; .*--scratch"), sorted_pairs(blocks, str(scratch), "", 10_000, 1):
        pass
    assert os.listdir(scratch) == []


@pytest.mark.parametrize(("script", "rows"), [
    *((f"while read line; do :; done; printf '{output}'; kill -9 $$", 1) for output in ("a", "a\\tb", "a\\tb\\t1\\na\\tb\\t")),
    ("exit 0", 100_000),
])  # fmt: skip
def test_a_sort_that_is_killed_while_it_writes_or_does_not_read_to_the_end(tmp_path, monkeypatch, script, rows) -> None:
    fake_sort(monkeypatch, tmp_path, script)
    blocks = blocks_of([(b"a", b"b%d" % i, 2) for i in range(rows)], 1000, counts=True)
    with (
        pytest.raises(RescoreError, match="killed by signal 9|status 0"),
        sorted_pairs(blocks, str(tmp_path), "", 10_000, 1, 2),
    ):
        pass


def test_a_run_that_does_not_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "scratch").mkdir()
    fake_sort(monkeypatch, tmp_path / "bin", f'trap "" XFSZ; ulimit -f 8; exec {REAL_SORT} "$@"')
    rows: list[Row] = [(b"a%d" % i, b"b", 1) for i in range(100_000)]
    scratch, said = str(tmp_path / "scratch"), "sort: .*File too large; .*--scratch"
    with pytest.raises(RescoreError, match=said), sorted_pairs(blocks_of(rows, 1000), scratch, "", 100_000, 1):
        pass
    assert os.listdir(tmp_path / "scratch") == []


def test_no_room_for_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sorting, "_keep", full)
    said, blocks = f"cannot write in {tmp_path}: No space left on device; .*--scratch", [PairBlock([b"a"], [b"b"])]
    with pytest.raises(RescoreError, match=said), sorted_pairs(blocks, str(tmp_path), "", 10_000, 1):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", [InputError, KeyboardInterrupt])
def test_input_that_breaks_off(tmp_path: Path, kind: type[BaseException]) -> None:
    def blocks() -> Iterator[PairBlock]:
        yield PairBlock([b"a"] * 100, [b"b"] * 100)
        raise kind("file", "is cut off")

    with pytest.raises(kind), sorted_pairs(blocks(), str(tmp_path), "", 10_000, 1):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("version", ["sort (uutils coreutils) 0.2.2", "2.3-Apple (195)", ""])
def test_another_sort_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    (tmp_path / "sort").write_text(f'#!/bin/sh\necho "{version}"\n')
    (tmp_path / "sort").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        with pytest.raises(OptionError, match="GNU coreutils"), sorted_pairs([], str(tmp_path), "", 10_000, 1):
            pass
        (tmp_path / "sort").unlink(missing_ok=True)  # then there is none at all


@pytest.mark.parametrize("name", ["gsort", "gnusort"])
def test_gnu_sort_beside_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    fake_sort(monkeypatch, tmp_path, f'exec {REAL_SORT} "$@"', name)
    with sorted_pairs([PairBlock([b"b", b"a"], [b"x", b"y"])], str(tmp_path), "", 10_000, 1) as pairs:
        assert lines_of(pairs) == [b"a\ty", b"b\tx"]
