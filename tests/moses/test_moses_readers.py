"""The readers of `moses_readers` against what is known of the Moses source of February 2025 and of its decoder."""

import math
from collections.abc import Callable, Collection

import moses_readers
import pytest
from moses_readers import ALL_READERS, Reading, Refused

LOADER, PROBING, ON_DISK, COMPACT = ALL_READERS
READERS = [pytest.param(read, id=name) for name, read in ALL_READERS.items()]
Reader = Callable[[bytes, int], Reading]

ROW = b"das Haus ||| the house ||| 0.5 0.25 1 2 ||| 0-0 1-1 ||| 4 2 1 ||| |||\n"
PHRASES = ((b"das", b"Haus"), (b"the", b"house"))
SCORES = tuple(pytest.approx(x, abs=1e-7) for x in (-0.69314718, -1.38629436, 0, 0.69314718))


def row(scores: bytes, rest: bytes = b" ||| 0-0 ||| 1 1 1 ||| |||\n") -> bytes:
    return b"a ||| b ||| " + scores + rest


def feature(name: str, score: bytes) -> float:
    return ALL_READERS[name](row(score), 1).scores[0]


def refusal(read: Reader, line: bytes, num_scores: int) -> str:
    with pytest.raises(Refused) as caught:
        read(line, num_scores)
    return str(caught.value)


@pytest.mark.parametrize("read", READERS)
def test_consolidated_row_with_shared_blanks(read: Reader) -> None:
    reading = read(ROW, 4)
    assert (reading.source, reading.target) == PHRASES
    assert reading.scores == SCORES


@pytest.mark.parametrize(("score", "printed"), [
    (b"0.0387742", "-3.25"), (b"7.38905609893065", "2"), (b"1e-40", "-92.1034"), (b"1e-50", "-100"), (b"0", "-100"),
    (b"-3.25", "nan"),
])  # fmt: skip
def test_tried_with_the_real_decoder(score: bytes, printed: str) -> None:
    assert f"{feature(LOADER, score):.6g}" == printed


INF, NAN, CAP, FLOOR = math.inf, math.nan, 88.722839, -100.0


@pytest.mark.parametrize(("score", "expected"), [
    # LoaderStandard, CreateProbingPT, CreateOnDiskPt, processPhraseTableMin; None: refused
    (b"1e39", (INF, INF, CAP, CAP)), (b"0", (FLOOR,) * 4), (b"1e-50", (FLOOR,) * 4), (b"-3.25", (NAN, NAN, NAN, None)),
    (b"1e-40", (-92.103409,) * 4), (b"1", (0.0,) * 4), (b"5.", (1.609438,) * 4), (b".5", (-0.693147,) * 4),
])  # fmt: skip
def test_feature_values(score: bytes, expected: tuple[float | None, ...]) -> None:
    for name, value in zip(ALL_READERS, expected, strict=True):
        if value is None:
            refusal(ALL_READERS[name], row(score), 1)
        else:
            assert feature(name, score) == pytest.approx(value, abs=1e-5, nan_ok=True), name


@pytest.mark.parametrize(("line", "num_scores", "refusing"), [
    (row(b"1"), 2, ALL_READERS), (row(b"1 1 1"), 2, ALL_READERS), (row(b"0.5  0.25"), 2, {PROBING}),
    (row(b"0.5\t0.25"), 2, {PROBING, ON_DISK}), (row(b"1", b" ||| ||| 1 1 1\n"), 1, {COMPACT}),
    (row(b"1", b" |||  ||| 1 1 1\n"), 1, {COMPACT}), (row(b"1", b"\n"), 1, {COMPACT}),
    (row(b"1", b" ||| 0-0 ||| 1 1 1 ||| ||| {{p v}}\n"), 1, {LOADER, ON_DISK}),
    (row(b"1", b" ||| 0-0 ||| 1 1 1 ||| ||| {{Counts v}}\n"), 1, set()),
    *((line, 1, ALL_READERS) for line in (b"\n", b"", b" \n", b"a\n", b"a ||| b\n")),
])  # fmt: skip
def test_who_refuses_a_row(line: bytes, num_scores: int, refusing: Collection[str]) -> None:
    for name, read in ALL_READERS.items():
        if name in refusing:
            refusal(read, line, num_scores)
        else:
            assert len(read(line, num_scores).scores) == num_scores, name


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_ends(read: Reader, end: bytes) -> None:
    assert read(ROW.replace(b"\n", end), 4) == read(ROW, 4)


def test_nul_ends_the_line_on_disk() -> None:
    assert "0 scores instead of 1" in refusal(ALL_READERS[ON_DISK], b"a ||| b ||| \0 1 ||| 0-0\n", 1)
    assert moses_readers.read_on_disk(b"a ||| b ||| 0.5 1\0 2 3 ||| |||\n", 2).scores[1] == 0
    assert moses_readers.read_loader_standard(b"a\0b ||| c ||| 1 ||| 0-0\n", 1).source == (b"a\0b",)
