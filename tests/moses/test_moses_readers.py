"""The readers of `moses_readers` against what is known of the Moses source of February 2025 and of its decoder."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from moses_readers import (
    ALL_READERS,
    Reading,
    Refused,
    atof,
    field_count,
    log_and_floor,
    mert_accepts,
    read_binary,
    read_compact,
    read_loader_standard,
    read_on_disk,
    read_probing,
    stream_to_float,
    string_to_float,
)

LOADER, PROBING, ON_DISK, COMPACT, BINARY = ALL_READERS
READERS = [pytest.param(read, id=name) for name, read in ALL_READERS.items()]
Reader = Callable[[bytes, int, int], Reading]

ROW = b"das Haus ||| the house ||| 0.5 0.25 1 2 ||| 0-0 1-1 ||| 4 2 1 ||| |||\n"
PHRASES = ((b"das", b"Haus"), (b"the", b"house"))
SCORES = tuple(pytest.approx(x, abs=1e-7) for x in (-0.69314718, -1.38629436, 0, 0.69314718))


def row(scores: bytes, rest: bytes = b" ||| 0-0 ||| 1 1 1 ||| |||\n") -> bytes:
    return b"a ||| b ||| " + scores + rest


def feature(name: str, score: bytes) -> float:
    return ALL_READERS[name](row(score), 1, 7).scores[0]


def refusal(read: Reader, line: bytes, num_scores: int, num_fields: int = 7) -> str:
    with pytest.raises(Refused) as caught:
        read(line, num_scores, num_fields)
    return str(caught.value)


@pytest.mark.parametrize("read", READERS)
def test_consolidated_row_with_shared_blanks(read: Reader) -> None:
    reading = read(ROW, 4, 7)
    assert (reading.source, reading.target) == PHRASES
    assert reading.scores == SCORES


def test_names_and_order() -> None:
    assert list(ALL_READERS) == [
        "LoaderStandard", "CreateProbingPT", "CreateOnDiskPt", "processPhraseTableMin", "processPhraseTable"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("score", "printed"),
    [
        (b"0.0387742", "-3.25"),
        (b"7.38905609893065", "2"),
        (b"1e-40", "-92.1034"),
        (b"1e-50", "-100"),
        (b"0", "-100"),
        (b"-3.25", "nan"),
    ],
)
def test_tried_with_the_real_decoder(score: bytes, printed: str) -> None:
    assert f"{feature(LOADER, score):.6g}" == printed


INF, NAN, CAP, FLOOR, BINARY_FLOOR = math.inf, math.nan, 88.722839, -100.0, -87.498233


@pytest.mark.parametrize(
    ("score", "expected"),
    [  # LoaderStandard, CreateProbingPT, CreateOnDiskPt, processPhraseTableMin, processPhraseTable; None: refused
        (b"inf", (INF, INF, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"nan", (None, NAN, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"abc", (None, FLOOR, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"1e39", (INF, INF, CAP, CAP, CAP)),
        (b"0", (FLOOR, FLOOR, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"1e-50", (FLOOR, FLOOR, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"-3.25", (NAN, NAN, NAN, None, BINARY_FLOOR)),
        (b"1e-40", (-92.103409, -92.103409, -92.103409, -92.103409, -92.103409)),
        (b"1", (0.0, 0.0, 0.0, 0.0, 0.0)),
        (b"1e", (None, 0.0, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"2.5x", (None, 0.916290732, 0.916290732, 0.916290732, 0.916290732)),
        (b"0x10", (None, 2.77258872, FLOOR, FLOOR, BINARY_FLOOR)),
        (b"Infinity", (None, INF, FLOOR, FLOOR, BINARY_FLOOR)),
    ],
)
def test_feature_values(score: bytes, expected: tuple[float | None, ...]) -> None:
    for name, value in zip((LOADER, PROBING, ON_DISK, COMPACT, BINARY), expected, strict=True):
        if value is None:
            refusal(ALL_READERS[name], row(score), 1)
        else:
            assert feature(name, score) == pytest.approx(value, abs=1e-5, nan_ok=True), name


@pytest.mark.parametrize("token", [b"1e-5", b"1E-5", b"+1", b".5", b"5.", b"-2", b"007", b"5.e1"])
def test_string_to_float_takes_whole_numbers(token: bytes) -> None:
    assert string_to_float(token) == np.float32(float(token))


@pytest.mark.parametrize(
    "token",
    [b"1e", b"1e+", b"Infinity", b"NaN", b"nan", b"-nan", b"INF", b"1x", b"1\r", b" 1", b".", b"+", b"1_0", b""],
)
def test_string_to_float_refuses(token: bytes) -> None:
    with pytest.raises(Refused, match="bad score"):
        string_to_float(token)


def test_string_to_float_keeps_the_sign_of_infinity() -> None:
    assert (string_to_float(b"+inf"), string_to_float(b"-inf")) == (INF, -INF)


@pytest.mark.parametrize(
    ("token", "stream", "c"),
    [  # as printed by a C++ program
        (b"1e", 0, 1),
        (b"1e+", 0, 1),
        (b"1e5e", 1e5, 1e5),
        (b"1.2.3", 1.20000005, 1.20000005),
        (b"-.5", -0.5, -0.5),
        (b".e5", 0, 0),
        (b"5.", 5, 5),
        (b"1,5", 1, 1),
        (b"\r2", 2, 2),
        (b"--1", 0, 0),
        (b"1_0", 1, 1),
        (b"-1e39", -3.40282347e38, -INF),
        (b"1e-40", 9.9999461e-41, 9.9999461e-41),
        (b"nan(1)", 0, NAN),
        (b"-INFINITY", 0, -INF),
        (b"0x1.8p3", 0, 12),
        (b"0x", 0, 0),
        (b"-0x1p9999", 0, -INF),
    ],
)
def test_prefix_parsers(token: bytes, stream: float, c: float) -> None:
    assert stream_to_float(token) == pytest.approx(stream, rel=1e-8, abs=1e-47)
    assert atof(token) == pytest.approx(c, rel=1e-8, abs=1e-47, nan_ok=True)


def test_nothing_but_white_space() -> None:
    assert atof(b"") == atof(b"\r") == 0
    with pytest.raises(Refused, match="uninitialised"):
        stream_to_float(b"\r")


def test_features_are_32_bit_floats() -> None:
    for score in (0.1, 0.3, 2.718, 1e-40):
        value = log_and_floor(score)
        assert value == np.float32(value)
        assert value != math.log(score)
    assert feature(LOADER, b"16777217") == feature(LOADER, b"16777216")  # 2 ** 24 + 1 is no 32-bit float


def test_exp_of_a_count_up_to_88() -> None:
    for n in range(1, 89):
        for name in ALL_READERS:
            assert feature(name, b"%.9g" % math.exp(n)) == pytest.approx(n, abs=4e-6), (name, n)
    assert feature(LOADER, b"%.9g" % math.exp(89)) == INF
    assert feature(COMPACT, b"%.9g" % math.exp(89)) == pytest.approx(CAP, abs=1e-5)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("scores", [b"1", b"1 1 1"])
def test_wrong_number_of_scores(read: Reader, scores: bytes) -> None:
    assert f"{len(scores.split())} scores instead of 2" in refusal(read, row(scores), 2)


def test_who_throws_and_who_corrupts() -> None:
    effects = {name: refusal(read, row(b"1"), 2).split(":")[0] for name, read in ALL_READERS.items()}
    assert effects == {
        LOADER: "throws",
        PROBING: "corrupts",
        ON_DISK: "corrupts",
        COMPACT: "throws",
        BINARY: "throws at decode",
    }


def test_doubled_blank_is_a_score_of_probing() -> None:
    doubled = row(b"0.5  0.25")
    assert "3 scores instead of 2" in refusal(ALL_READERS[PROBING], doubled, 2)
    assert read_probing(doubled, 3).scores[1] == FLOOR
    for name in (LOADER, ON_DISK, COMPACT, BINARY):
        assert len(ALL_READERS[name](doubled, 2, 7).scores) == 2, name


def test_doubled_blank_at_the_end_is_trimmed() -> None:
    assert len(read_probing(row(b" 0.5 0.25 "), 2).scores) == 2


def test_tab_between_scores() -> None:
    tabbed = row(b"0.5\t0.25")
    for name in (PROBING, ON_DISK):
        assert "1 scores instead of 2" in refusal(ALL_READERS[name], tabbed, 2), name
        assert ALL_READERS[name](tabbed, 1, 7).scores[0] == pytest.approx(math.log(0.5)), name
    for name in (LOADER, COMPACT, BINARY):
        assert len(ALL_READERS[name](tabbed, 2, 7).scores) == 2, name


def test_tab_between_words_and_at_a_separator() -> None:
    line = b"a\tb ||| c ||| 1 ||| 0-0\n"
    assert read_on_disk(line, 1).source == (b"a\tb",)
    assert read_loader_standard(line, 1).source == (b"a", b"b")
    hidden = b"a ||| b\t||| 1 ||| 0-0\n"
    assert read_on_disk(hidden, 1) == Reading((b"a",), (b"b\t|||", b"1"), (FLOOR,))  # 0-0 is taken for the score
    assert read_loader_standard(hidden, 1).target == (b"b",)
    assert "2 fields" in refusal(ALL_READERS[ON_DISK], b"a ||| b \t||| 1\n", 1)


def test_separators_without_blanks() -> None:
    tight = b"a|||b|||0.5 1|||0-0\n"
    for name in (LOADER, PROBING, COMPACT, BINARY):
        assert (ALL_READERS[name](tight, 2, 4).source, ALL_READERS[name](tight, 2, 4).target) == ((b"a",), (b"b",))
    assert "fields" in refusal(ALL_READERS[ON_DISK], tight, 2)


def test_a_separator_inside_a_word() -> None:
    line = b"a|||b ||| c ||| 1 ||| 0-0 ||| 1 1 1 ||| |||\n"
    assert read_on_disk(line, 1).source == (b"a|||b",)
    assert "bad score" in refusal(ALL_READERS[LOADER], line, 1)  # c is taken for the score
    assert read_probing(line, 1) == Reading((b"a",), (b"b",), (FLOOR,))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("space", [b"\xc2\xa0", b"\xc2\x85", b"\xe2\x80\xa8", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xff"])
def test_only_blank_and_tab_separate(read: Reader, space: bytes) -> None:
    reading = read(b"a%sb ||| c%sd ||| 1 ||| 0-0\n" % (space, space), 1, 4)
    assert (reading.source, reading.target) == ((b"a%sb" % space,), (b"c%sd" % space,))


@pytest.mark.parametrize("line", [b"a ||| b ||| 1 ||| ||| 1 1 1\n", b"a ||| b ||| 1\n", b"a ||| b ||| 1 |||  ||| 1 1 1\n"])
def test_missing_alignment(line: bytes) -> None:
    assert "throws" in refusal(ALL_READERS[COMPACT], line, 1)
    for read in (read_loader_standard, read_probing, read_on_disk):
        assert read(line, 1) == Reading((b"a",), (b"b",), (0.0,))


def test_empty_alignment_counts_as_a_field_of_binary() -> None:
    assert read_binary(b"a ||| b ||| 1 ||| ||| 1 1 1\n", 1, 5).scores == (0.0,)
    assert "at least 4" in refusal(ALL_READERS[BINARY], b"a ||| b ||| 1\n", 1, 3)


def test_field_count_of_binary() -> None:
    four = b"a ||| b ||| 1 ||| 0-0\n"
    assert (field_count(four), field_count(ROW), field_count(ROW.replace(b"\n", b"\r\n"))) == (4, 7, 7)
    assert read_binary(four, 1, 4).target == (b"b",)
    assert "4 fields, the first line has 7" in refusal(ALL_READERS[BINARY], four, 1, 7)
    assert "7 fields, the first line has 4" in refusal(ALL_READERS[BINARY], ROW, 4, 4)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("line", [b"\n", b"", b" \n", b"a\n", b"a ||| b\n"])
def test_too_few_fields(read: Reader, line: bytes) -> None:
    assert "at least" in refusal(read, line, 1, field_count(line))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_ends(read: Reader, end: bytes) -> None:
    assert read(ROW.replace(b"\n", end), 4, 7) == read(ROW, 4, 7)


def test_carriage_return_after_the_scores() -> None:
    line = b"a ||| b ||| 0.5 1%s\n"
    for name in (LOADER, PROBING, ON_DISK):
        assert len(ALL_READERS[name](line % b"\r", 2, 3).scores) == 2, name
    assert "bad score" in refusal(ALL_READERS[LOADER], line % b"\r\r", 2)  # FilePiece takes one away
    assert "bad score" in refusal(ALL_READERS[LOADER], (line % b"\r")[:-1], 2)  # only before an LF
    assert "3 scores instead of 2" in refusal(ALL_READERS[ON_DISK], line % b" \r", 2)
    assert len(read_probing(line % b" \r", 2).scores) == 2


def test_carriage_return_in_the_sparse_field_of_binary() -> None:
    six = b"a ||| b ||| 1 ||| 0-0 ||| 1 1 1 |||%s\n"
    assert read_binary(six % b" cb_1 1\r", 1, 6).scores == (0.0,)
    assert "sparse" in refusal(ALL_READERS[BINARY], six % b" \r", 1, 6)


def test_nul_ends_the_line_on_disk() -> None:
    assert "0 scores instead of 1" in refusal(ALL_READERS[ON_DISK], b"a ||| b ||| \0 1 ||| 0-0\n", 1)
    assert read_on_disk(b"a ||| b ||| 0.5 1\0 2 3 ||| |||\n", 2).scores[1] == 0
    assert read_loader_standard(b"a\0b ||| c ||| 1 ||| 0-0\n", 1).source == (b"a\0b",)


def test_unregistered_property() -> None:
    bad, good = (row(b"1", b" ||| 0-0 ||| 1 1 1 ||| ||| {{%s v}}\n" % key) for key in (b"p", b"Counts"))
    for name in (LOADER, ON_DISK):
        assert "unregistered property b'p'" in refusal(ALL_READERS[name], bad, 1), name
        assert ALL_READERS[name](good, 1, 7).scores == (0.0,)
    for name in (PROBING, COMPACT, BINARY):
        assert ALL_READERS[name](bad, 1, 7).scores == (0.0,), name


def test_odd_sparse_field() -> None:
    odd = row(b"1", b" ||| 0-0 ||| 1 1 1 ||| cb_1 1 cb_2 |||\n")
    for name in (LOADER, BINARY):
        assert "sparse" in refusal(ALL_READERS[name], odd, 1), name
    for name in (PROBING, COMPACT):
        assert ALL_READERS[name](odd, 1, 7).scores == (0.0,), name


def test_bad_alignment_point_and_empty_source() -> None:
    assert "alignment" in refusal(ALL_READERS[LOADER], row(b"1", b" ||| 0:0 ||| 1 1 1\n"), 1)
    assert "skips" in refusal(ALL_READERS[LOADER], b" ||| b ||| 1 ||| 0-0\n", 1)


def test_log_prob_of_probing() -> None:
    zero, half = read_probing(row(b"1 0.5"), 2, log_prob=True).scores
    assert zero == np.float32(1e-10)
    assert half == read_probing(row(b"1 0.5"), 2).scores[1]


def test_one_row_at_a_time() -> None:
    with pytest.raises(ValueError, match=re.escape("more than one row")):
        read_compact(ROW + ROW, 4)


@pytest.mark.parametrize("value", [0, -3.25, 88.72, -100, 1e-10, -9.99e-5, 999999, -123456.4])
def test_mert_accepts(value: float) -> None:
    assert mert_accepts(value)


@pytest.mark.parametrize("value", [INF, -INF, NAN, 1e6, 999999.9, -1e6, 3.4e38])
def test_mert_dies(value: float) -> None:
    assert not mert_accepts(value)
