"""Surveys of tables: plain rows against examined ones, parts against the whole, faults against what Moses programs do."""

import random
import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moses_readers import ALL_READERS, Reading, Refused

from phrase_rescore.data.sampling import DistinctSample
from phrase_rescore.errors import RowError
from phrase_rescore.info import survey
from phrase_rescore.info.faults import FAULTS
from phrase_rescore.info.survey import RowCount, Survey, survey_table
from phrase_rescore.info.table import TableInfo
from phrase_rescore.moses import table as moses_table
from phrase_rescore.moses.table import parse_row

GOOD = b"a b ||| c ||| 0.5 1e-05 ||| 0-0 1-0 ||| 3 2 1 ||| |||"

# a row, and all that is wrong with it in a table of GOOD ones
FAULTY = [
    ("blank", b"", {"refused"}),
    ("blanks alone", b" \t\r", {"refused"}),
    ("two fields", b"a ||| b", {"refused"}),
    ("no target", GOOD.replace(b"c", b""), {"refused"}),
    ("hierarchical", GOOD.replace(b"a b", b"a [X]"), {"refused"}),
    ("a long phrase", GOOD.replace(b"a b", b"a b " * 501), {"refused"}),
    ("inf", GOOD.replace(b"0.5", b"inf"), {"refused"}),
    ("three scores", GOOD.replace(b"0.5", b"0.5 1"), {"refused"}),
    ("bar", GOOD.replace(b"a b", b"a x|y"), {"bars"}),
    ("bar in the target", GOOD.replace(b"c", b"|"), {"bars"}),
    ("overflow", GOOD.replace(b"0.5", b"3.5e38"), {"overflow"}),
    ("negative", GOOD.replace(b"0.5", b"-3.25"), {"negative"}),
    ("infinite and negative", GOOD.replace(b"0.5", b"-1e999"), {"negative"}),
    ("zero", GOOD.replace(b"0.5", b"0"), {"zero"}),
    ("underflow", GOOD.replace(b"0.5", b"1e-46"), {"zero"}),
    ("underflow of a negative score", GOOD.replace(b"0.5", b"-1e-46"), {"zero"}),
    ("doubled blank", GOOD.replace(b"0.5 ", b"0.5  "), {"score_blanks"}),
    ("tab among scores", GOOD.replace(b"0.5 ", b"0.5\t"), {"score_tabs"}),
    ("tab in the target", GOOD.replace(b"c", b"c\td"), {"tabs"}),
    ("tab among counts", GOOD.replace(b"3 2 1", b"3\t2 1"), {"tabs"}),
    ("doubled blank in the source", GOOD.replace(b"a b", b"a  b"), {"source_blanks"}),
    ("leading blank", b" " + GOOD, {"source_blanks"}),
    ("glued", GOOD.replace(b"b |||", b"b|||"), {"glued_separators"}),
    ("glued behind", GOOD.replace(b"||| 3", b"|||3"), {"glued_separators"}),
    ("four bars", GOOD.replace(b"||| c", b"|||| c"), {"glued_separators", "bars"}),
    ("no alignment", b"a ||| b ||| 0.5 1", {"no_alignment"}),
    ("empty alignment", GOOD.replace(b" 0-0 1-0", b""), {"no_alignment"}),
    ("blank alignment", GOOD.replace(b"0-0 1-0", b""), {"no_alignment"}),
    ("bad point", GOOD.replace(b"1-0", b"1-"), {"alignment"}),
    ("three numbers a point", GOOD.replace(b"1-0", b"1-0-1"), {"alignment"}),
    ("sparse", GOOD.replace(b"||| |||", b"||| cb_1 |||"), {"sparse"}),
    ("property", GOOD + b" {{Counts 1 2}} {{Mine 1}}", {"properties"}),
    ("CR", GOOD + b"\r", {"carriage_returns"}),
    ("NUL", GOOD.replace(b"c", b"c\0"), {"nul_bytes"}),
]
HARMLESS = [
    GOOD, GOOD + b" {{Counts 1 2}}", GOOD.replace(b"||| |||", b"|||  |||"), GOOD.replace(b"||| |||", b"||| cb_1 1 |||"),
    GOOD.replace(b"0.5", b"5."), GOOD.replace(b"c", "c\u00a0\u2028\x85".encode()), GOOD.replace(b"c", b"c [ ]x \xff"),
    GOOD.replace(b"3 2 1", b"3|2  1"), b"a ||| b ||| 0.5 1 ||| 0-0", GOOD + b" ||| x 1 y",
]  # fmt: skip


def table_of(rows: list[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


def comparable(survey: Survey) -> tuple[object, ...]:
    """All that a survey says."""
    sides = [(+side.words, *map(tuple, (side.sample.hashes, side.sample.lines))) for side in (survey.src, survey.tgt)]
    ranges = map(tuple, (survey.least, survey.greatest, survey.zeros))
    return survey.rows, survey.pairs, survey.sources, *sides, *ranges, survey.faults, survey._last


def row_of(src: bytes, tgt: bytes, scores: bytes, tail: bytes) -> bytes:
    return b" ||| ".join((src, tgt, scores, tail))


PHRASES = st.lists(st.sampled_from([b"a", b"b", b"x|y", b"[", b"\xff"]), min_size=1, max_size=3).map(b" ".join)
SCORES = st.lists(st.sampled_from([b"1", b"0.5", b"1e-05", b"-3", b"0", b"1e39"]), min_size=2, max_size=2).map(b" ".join)
TAILS = st.sampled_from([b"0-0 ||| 3 2 1 ||| |||", b"||| 1 1 1", b" ||| 1", b"0-0", b"0-0 1-1 ||| 1 ||| x 1 ||| {{Tree x}}"])
PLAIN = st.builds(row_of, PHRASES, PHRASES, SCORES, TAILS)
PIECES = st.sampled_from(
    [b"|||", b" ||| ", b"a", b" b ", b"[X]", b"0.5", b" 1 ", b"\t", b"  ", b"\r", b"\0", b"|", b"{{", b"inf"]
)
ANY = st.one_of(
    PLAIN, st.sampled_from([*HARMLESS, *(row for _, row, _ in FAULTY)]), st.lists(PIECES, max_size=12).map(b"".join)
)
ROWS = st.one_of(st.lists(PLAIN, min_size=1, max_size=12), st.lists(ANY, min_size=1, max_size=12))


def surveyed(parts: list[tuple[int, bytes]], n_scores: int = 2) -> Survey:
    """The survey of parts of a table, each with the number of its first row."""
    found = Survey(n_scores)
    for first_row, data in parts:
        found.add(first_row, data)
    return found


def by_rows(first_row: int, data: bytes, n_scores: int = 2) -> Survey:
    """The survey of rows each of which is examined."""
    with mock.patch.object(moses_table, "plain_row", return_value=re.compile(rb"()()()()([^\n]*+)\n")):
        return surveyed([(first_row, data)], n_scores)


@given(ROWS, st.integers(1, 3), st.booleans())
def test_plain_rows_are_surveyed_as_if_they_were_examined(rows: list[bytes], n_scores: int, newline: bool) -> None:
    data = b"\n".join(rows) + b"\n" * (newline or not rows[-1])
    assert comparable(surveyed([(41, data)], n_scores)) == comparable(by_rows(41, data, n_scores))


@given(ROWS, st.lists(st.integers(0, 12), max_size=3))
def test_parts_add_up_to_the_whole(rows: list[bytes], cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [(start + 1, table_of(rows[start:end])) for start, end in pairwise(bounds)]
    assert comparable(surveyed(parts)) == comparable(by_rows(1, table_of(rows)))


@pytest.mark.parametrize(("row", "kinds"), [(row, kinds) for _, row, kinds in FAULTY], ids=[name for name, _, _ in FAULTY])
def test_faults_are_counted_with_their_first_line(tmp_path: Path, row: bytes, kinds: set[str]) -> None:
    path = tmp_path / "table"
    path.write_bytes(table_of([GOOD, GOOD, row, GOOD, row]))
    faults = survey_table(str(path)).faults
    order = {"unsorted", "sources_apart"}
    assert {kind: tally for kind, tally in faults.items() if kind not in order} == {kind: RowCount(2, 3) for kind in kinds}


def test_every_kind_of_fault_is_tried() -> None:
    tried = set().union(*(kinds for _, _, kinds in FAULTY))
    assert tried | {"unsorted", "sources_apart"} == FAULTS.keys()


@pytest.mark.parametrize("row", HARMLESS)
def test_rows_that_nobody_mishandles(tmp_path: Path, row: bytes) -> None:
    path = tmp_path / "table"
    path.write_bytes(table_of([row]))
    assert survey_table(str(path)).faults == {}


def readings_of(row: bytes) -> dict[str, Reading | None]:
    """What programs take from a row of a table of GOOD ones; None where they refuse it."""
    readings: dict[str, Reading | None] = {}
    for program, read in ALL_READERS.items():
        name = {"LoaderStandard": "PhraseDictionaryMemory"}.get(program, program)
        try:
            readings[name] = read(row + b"\n", 2)
        except Refused:
            readings[name] = None
    return readings


@given(ANY)
def test_programs_that_refuse_a_row_are_named(row: bytes) -> None:
    """annotate, or those of Moses. Their readers are written from Moses' sources, without a look at our list."""
    faults = surveyed([(1, row + b"\n")]).faults
    named = {name for kind in faults for programs in FAULTS[kind].effects for name in programs.split(", ")}
    try:
        parse_row(row, 2)
    except RowError:
        assert faults.keys() == {"refused"}
        return
    readings = readings_of(row)
    assert {name for name, reading in readings.items() if reading is None} <= named
    if not faults:
        assert len(set(readings.values())) == 1, "all take the same from it"


def survey_of(tmp_path: Path, rows: list[bytes]) -> Survey:
    path = tmp_path / "table"
    path.write_bytes(table_of(rows))
    return survey_table(str(path))


def rows_of(*pairs: str) -> list[bytes]:
    """``a b/c``: a row of these phrases."""
    return [b"%b ||| %b ||| 1 1 ||| 0-0 ||| 1 1 1 ||| |||" % tuple(side.encode() for side in pair.split("/")) for pair in pairs]


def test_what_sort_sorts_is_sorted(tmp_path: Path) -> None:
    generator = random.Random(1)
    words = ["a", "b", "ab", "A", "é", "!", "~", "{"]
    phrases = [" ".join(generator.choices(words, k=generator.randint(1, 3))) for _ in range(2000)]
    table = table_of(rows_of(*{f"{src}/{tgt}" for src, tgt in zip(phrases, phrases[::-1], strict=True)}))
    ordered = subprocess.run(["sort"], input=table, env={"LC_ALL": "C"}, capture_output=True, check=True).stdout
    assert not survey_of(tmp_path, ordered.splitlines()).faults


def test_the_separator_counts_in_sorting(tmp_path: Path) -> None:
    assert not survey_of(tmp_path, rows_of("a b/x", "a/x", "a ~/x")).faults, "| stands between letters and ~"
    assert survey_of(tmp_path, rows_of("a/x", "a b/x")).faults == {"unsorted": RowCount(1, 2)}
    assert not survey_of(tmp_path, rows_of("a/y", "a/x", "a/x")).faults, "no program minds"


def test_sources_that_come_again_are_found_however_far_away(tmp_path: Path) -> None:
    rows = rows_of(*(f"w{i:05}/x" for i in range(40000)), "w00017/x", "w00003/x", "w00003/y", "w00017/y")
    found = survey_of(tmp_path, rows)
    assert found.faults == {"unsorted": RowCount(2, 40001), "sources_apart": RowCount(2, 40001)}
    assert (found.sources, found.src.sample.distinct) == (40003, 40000)


def sample(room: int, *parts: list[bytes]) -> DistinctSample:
    found, line = DistinctSample(room), 1
    for phrases in parts:
        found.add(phrases, np.arange(line, line + len(phrases)))
        line += len(phrases)
    return found


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 60), st.integers(1, 40))
def test_samples_add_up(numbers: list[int], cut: int, room: int) -> None:
    phrases = [b"%d" % n for n in numbers]
    cut = min(cut, len(phrases))
    whole, parts = sample(room, phrases), sample(room, phrases[:cut], phrases[cut:])
    assert [*map(tuple, (whole.hashes, whole.lines)), whole.exact] == [*map(tuple, (parts.hashes, parts.lines)), parts.exact]
    if len(set(phrases)) <= room:
        assert (whole.exact, whole.distinct) == (True, len(set(phrases)))
        again = {phrase: [i for i, other in enumerate(phrases, 1) if other == phrase] for phrase in phrases}
        assert sorted(whole.repeated) == sorted(lines[1] for lines in again.values() if len(lines) > 1)


def test_estimates_are_close_whatever_the_text_looks_like() -> None:
    for form in (b"%d", b"the house number %d", b"%08d"):
        estimate = sample(1 << 14, [form % i for i in range(200_000)])
        assert not estimate.exact
        assert estimate.distinct == pytest.approx(200_000, rel=0.03)


def test_only_the_sources_of_a_sorted_table_are_counted_however_many_they_are(tmp_path: Path) -> None:
    rows = rows_of(*(f"w{i:05}/t{i}" for i in range(70_000)))
    for table, exact in ((rows, True), ([*rows, rows[0]], False)):
        found = TableInfo(survey_of(tmp_path, table), None, None).as_object()
        assert (found["source"]["exact"], found["target"]["exact"]) == (exact, False)
        assert (found["source"]["distinct"] == 70_000) is exact


def test_factored_tables_may_have_bars(tmp_path: Path) -> None:
    found = survey_of(tmp_path, rows_of("a|X/b", "b|Y c|X/b"))
    assert (found.faults, found.src.factors, found.tgt.factors) == ({}, 2, 1)
    assert survey_of(tmp_path, rows_of("a|X/b", "b c|X/b")).faults == {"bars": RowCount(2, 1)}


def test_numbers_of_scores_and_words(tmp_path: Path) -> None:
    rows = [b"b d ||| x ||| 1 x", b"a ||| x y ||| 0 0.5", b"a b ||| z ||| 0.25 2", b"b d ||| x ||| 1"]
    found = survey_of(tmp_path, rows)
    assert (found.n_scores, found.rows, found.pairs) == (2, 4, 2)
    ranges = found.least, found.greatest, found.zeros
    assert [*map(list, ranges)] == [[0, 0.5], [0.25, 2], [1, 0]]
    assert found.src.words == Counter({b"a": 2, b"b": 1})
    assert found.faults["refused"] == RowCount(2, 1)
    assert "'x'" in str(found.first_refusal)


def test_the_shared_table_in_numbers(shared_data: Path) -> None:
    with (
        mock.patch.object(survey, "row_faults", side_effect=AssertionError("examined")),
        mock.patch.object(survey, "tail_faults", side_effect=AssertionError("examined")),
    ):
        s = survey_table(str(shared_data / "phrase-table.20k.gz"))
    assert (s.rows, s.pairs, s.sources, s.faults) == (20000, 20000, 12557, {})
    assert (s.src.sample.distinct, s.tgt.sample.distinct) == (12557, 17196)
    assert (s.src.words.total(), len(s.src.words)) == (71765, 3952)
    assert (s.n_scores, s.looks_annotated) == (4, False)
    assert s.least == pytest.approx([1.75568e-05, 1.50473e-21, 8.54701e-04, 4.85058e-23], rel=1e-5)
