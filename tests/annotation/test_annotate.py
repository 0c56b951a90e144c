"""``annotate`` and ``strip`` from the outside: bytes in, bytes out, what Moses reads from them, and every way to fail."""

import gzip
import itertools
import json
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SOURCE_WORDS, TARGET_WORDS, MakeModel, Result, Run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moses_readers import ALL_READERS, mert_accepts
from oracle import log_prob
from safetensors.numpy import load_file

from phrase_rescore import AnnotateObserver, ModelError, annotate

ROW = b"the house ||| das haus ||| 0.5 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
TABLE = (
    b"a\xff old ||| alt ||| 0.5 0.25 1 6.1e-05 ||| 1-0 ||| 3 2 1 ||| |||\n"
    + ROW
    + b"the house ||| haus unbekannt neu ||| 1 1 .5 2.718 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
    b"the unknown ||| das ||| 1 0.1 1E-5 +1 ||| 0-0 ||| 1 1 1 ||| |||\n"
)
READERS = tuple(ALL_READERS.values())
COLUMNS = re.compile(rb" (\S+) (\S+)")


def seen_words(path: Path) -> list[bytes]:
    """The words of a vocabulary file, read with nothing of ours."""
    return [line.partition(b"\t")[0] for line in path.read_bytes().split(b"\n")[:-1]]


class Oracle:
    """log p and unknown words of a row, from the files of a model and the equations alone."""

    def __init__(self, model_dir: str) -> None:
        folder = Path(model_dir)
        self._weights = load_file(folder / "model-00001-of-00001.safetensors")
        self._src, self._tgt = (
            {word: i for i, word in enumerate(seen_words(folder / f"{side}.vocab"), 2)} for side in ("source", "target")
        )

    def ids(self, row: bytes) -> tuple[list[int], list[int]]:
        src, tgt, *_ = row.split(b"|||")
        return [self._src.get(w, 1) for w in src.split(b" ") if w], [self._tgt.get(w, 1) for w in tgt.split(b" ") if w]

    def log_p(self, row: bytes) -> float:
        return float(log_prob(self._weights, *self.ids(row)))

    def unknown(self, row: bytes) -> tuple[int, int]:
        src, tgt = self.ids(row)
        return src.count(1), tgt.count(1)


@pytest.fixture(scope="module")
def oracle(model_dir: str) -> Oracle:
    return Oracle(model_dir)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.write_bytes(TABLE)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For property tests, which write the same files again and again."""
    return tmp_path_factory.mktemp("annotate")


def columns_of(before: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
    """The two columns appended to the score field (the third) of every row; nothing else may differ."""
    result = []
    for old, new in zip(before.split(b"\n"), after.split(b"\n"), strict=True):
        if not old:
            assert not new
            continue
        src, tgt, scores, *rest = old.split(b"|||", 3)
        body = re.sub(rb"[ \t\r]+\Z", b"", scores)
        head = b"|||".join((src, tgt, body))
        tail = b"|||".join((scores[len(body) :], *rest))
        assert new.startswith(head)
        assert new.endswith(tail)
        match = COLUMNS.fullmatch(new[len(head) : len(new) - len(tail)])
        assert match, new
        result.append((match[1], match[2]))
    return result


def features(columns: list[tuple[bytes, bytes]]) -> list[tuple[float, float]]:
    """What MERT tunes."""
    return [(math.log(float(p)), math.log(float(n))) for p, n in columns]


def listing(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


# Bytes in, bytes out

ODD = [b"\xc2\xa0", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\x1c", b"\x00", b"\xff", b"a|b", b"\r", b"&#124;", "é".encode()]
SIDES = [st.sampled_from([*side, *ODD]) for side in (SOURCE_WORDS, TARGET_WORDS)]
NUMBER = st.sampled_from([b"0.4", b"1", b"6.1e-05", b"1E-5", b"+1", b".4", b"5.", b"0.00151137", b"2.718", b"-2", b"0"])
BLANK = st.text(" \t", min_size=1, max_size=2).map(str.encode)
EDGE = st.text(" \t", max_size=2).map(str.encode)
REST = st.sampled_from(
    [b"", b"\r", b" \r", b"||| 0-0 ||| 1 1 1 ||| |||", b" ||| ||| 1 1 1", b"|||  |||  |||", b"|||0-0\r", b"\t||| \xff ||| {{x"]
)


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """Valid tables with every freedom of blanks, line ends, bytes and empty fields."""
    n_scores = draw(st.integers(1, 6))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        src, tgt = (draw(BLANK).join(draw(st.lists(side, min_size=1, max_size=4))) for side in SIDES)
        scores = draw(BLANK).join(draw(st.lists(NUMBER, min_size=n_scores, max_size=n_scores)))
        fields = [draw(EDGE) + src + draw(BLANK), draw(BLANK) + tgt + draw(BLANK), draw(EDGE) + scores + draw(EDGE)]
        rows.append(b"|||".join(fields) + draw(REST))
    return b"\n".join(rows) + draw(st.sampled_from([b"\n", b""]))


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(content=tables(), block_size=st.integers(1, 6))
def test_output_less_our_columns_is_the_input_byte_for_byte(run, model_dir, folder, content, block_size) -> None:
    plain, packed, out, stripped = (folder / name for name in ("table", "table.gz", "out.gz", "stripped"))
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    to = "-m", model_dir, "--block-size", block_size

    first = run("annotate", plain, *to)
    assert first.status == 0, first.err
    assert len(columns_of(content, first.out)) == len(content.removesuffix(b"\n").split(b"\n"))
    assert run("annotate", packed, *to).out == first.out
    assert run("annotate", "-", *to, stdin=content).out == first.out
    assert run("annotate", packed, *to, "-o", out, "--overwrite").status == 0
    assert gzip.decompress(out.read_bytes()) == first.out

    assert run("strip", out, "--columns", 2, "-o", stripped, "--overwrite").status == 0
    assert stripped.read_bytes() == content


UNKNOWN = [b"zzz", b"\xc2\xa0", b"x\xe2\x80\xa8y", b"&#91;", b"\xfe"]
MOSES_SIDES = [st.sampled_from([*side, *UNKNOWN]) for side in (SOURCE_WORDS, TARGET_WORDS)]
PROBABILITY = NUMBER.filter(lambda number: float(number) > 0)


@st.composite
def moses_tables(draw: st.DrawFn) -> bytes:
    """Tables as consolidate writes them, which all five programs take."""
    n_scores = draw(st.integers(1, 5))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        src, tgt = (b" ".join(draw(st.lists(side, min_size=1, max_size=4))) for side in MOSES_SIDES)
        scores = b" ".join(draw(st.lists(PROBABILITY, min_size=n_scores, max_size=n_scores)))
        rows.append(b"%b ||| %b ||| %b ||| 0-0 ||| 3 2 1 ||| |||\n" % (src, tgt, scores))
    return b"".join(rows)


def check_what_moses_reads(before: bytes, after: bytes, expected: list[tuple[float, float]]) -> None:
    """All four programs take every row, keep its earlier features and find the expected two."""
    rows = list(zip(before.splitlines(keepends=True), after.splitlines(keepends=True), strict=True))
    for (old, new), (log_p, count) in zip(rows, expected, strict=True):
        n_scores = len(old.split(b"|||")[2].split())
        for name, read in ALL_READERS.items():
            earlier, reading = read(old, n_scores), read(new, n_scores + 2)
            assert (reading.source, reading.target) == (earlier.source, earlier.target), name
            assert reading.scores[:n_scores] == earlier.scores, name
            assert reading.scores[-2:] == pytest.approx((log_p, count), abs=1e-4), name
            assert all(map(mert_accepts, reading.scores[-2:])), name


def split_rows(data: bytes) -> list[bytes]:
    return data.removesuffix(b"\n").split(b"\n")


@settings(max_examples=min(40, settings().max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(content=moses_tables())
def test_moses_reads_log_p_and_the_count(run: Run, model_dir: str, oracle: Oracle, content: bytes) -> None:
    expected = [(oracle.log_p(row), oracle.unknown(row)[1]) for row in split_rows(content)]
    exp = run("annotate", "-", "-m", model_dir, stdin=content)
    assert exp.status == 0
    check_what_moses_reads(content, exp.out, expected)

    log = run("annotate", "-", "-m", model_dir, "--scale", "log", stdin=content)
    plain = [(float(p), float(n)) for p, n in columns_of(content, log.out)]
    assert plain == [pytest.approx(pair, abs=1e-4) for pair in expected]
    assert features(columns_of(content, exp.out)) == [pytest.approx(pair, abs=1e-4) for pair in plain]
    assert all(re.fullmatch(rb"\d+", n) for _, n in columns_of(content, log.out))


def test_insertion_point_is_after_the_last_score(run: Run, model_dir: str) -> None:
    rows = [b"the ||| das ||| 0.5\t1 \t\r", b"the ||| das |||0.5 1||| 0-0", b"the ||| das ||| 0.5 1  ||| ||| 1 1 1"]
    out = split_rows(run("annotate", "-", "-m", model_dir, stdin=b"\n".join(rows)).out)
    p, n = columns_of(rows[0], out[0])[0]
    assert out == [
        b"the ||| das ||| 0.5\t1 %b %b \t\r" % (p, n),
        b"the ||| das |||0.5 1 %b %b||| 0-0" % (p, n),
        b"the ||| das ||| 0.5 1 %b %b  ||| ||| 1 1 1" % (p, n),
    ]


@pytest.mark.slow
def test_jobs_and_kinds_of_input_make_no_difference(run: Run, model_dir: str, tmp_path: Path) -> None:
    words = [*SOURCE_WORDS, b"zzz"]
    rows = [
        b"%b %b ||| %b ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % (a, b, c) for a, b, c in itertools.product(words, words, TARGET_WORDS)
    ]
    content = b"".join(rows)
    plain, packed = tmp_path / "table", tmp_path / "table.gz"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content[:5000]) + gzip.compress(content[5000:]))
    to = "-m", model_dir, "--block-size", 100
    outputs = {
        run("annotate", plain, *to, "--jobs", 1).out,
        run("annotate", plain, *to, "--jobs", 2).out,
        run("annotate", packed, *to, "--jobs", 2).out,
        run("annotate", "-", *to, stdin=content).out,
        run("annotate", "-", *to, stdin=packed.read_bytes()).out,
    }
    assert len(outputs) == 1
    assert len(columns_of(content, outputs.pop())) == len(rows)

    for jobs in (1, 2):
        assert run("annotate", plain, *to, "--jobs", jobs, "-o", tmp_path / f"out{jobs}.gz").status == 0
    assert (tmp_path / "out1.gz").read_bytes() == (tmp_path / "out2.gz").read_bytes()

    other = run("annotate", plain, "-m", model_dir, "--block-size", 7)
    expected = features(columns_of(content, run("annotate", plain, *to).out))
    assert features(columns_of(content, other.out)) == [pytest.approx(pair, abs=1e-4) for pair in expected]


def test_gzip_output_is_members_of_a_fixed_number_of_rows(run: Run, model_dir: str, table: Path, tmp_path: Path) -> None:
    assert run("annotate", table, "-m", model_dir, "--block-size", 3, "-o", tmp_path / "out.gz").status == 0
    data = (tmp_path / "out.gz").read_bytes()
    second = data.index(b"\x1f\x8b\x08\x00\x00\x00\x00\x00", 1)  # no name, mtime 0
    assert gzip.decompress(data[:second]).count(b"\n") == 3
    assert gzip.decompress(data[second:]).count(b"\n") == 1


# The real table


@pytest.fixture(scope="module")
def real_table(shared_data: Path) -> Path:
    return shared_data / "phrase-table.20k.gz"


@pytest.fixture(scope="module")
def real_rows(real_table: Path) -> bytes:
    return gzip.decompress(real_table.read_bytes())


@pytest.fixture(scope="module")
def real_model(make_model: MakeModel, real_rows: bytes) -> str:
    """Knows the first 300 words of each side."""
    rows = [row.split(b" ||| ") for row in split_rows(real_rows)]
    sides = [list(dict.fromkeys(word for row in rows for word in row[side].split(b" ")))[:300] for side in (0, 1)]
    return make_model(*sides)


@pytest.mark.slow
def test_real_table_annotated_and_stripped_is_the_same(run, real_model, real_table, real_rows, tmp_path) -> None:
    out, stripped = tmp_path / "out.gz", tmp_path / "stripped"
    result = run("annotate", real_table, "-m", real_model, "-o", out, "--expect-rows", 20_000)
    assert result.status == 0
    assert run("strip", out, "--columns", 2, "-o", stripped, "--overwrite").status == 0
    assert stripped.read_bytes() == real_rows

    # The unknown words of the target, counted over the file of known ones
    known = set(seen_words(Path(real_model) / "target.vocab"))
    rows = split_rows(real_rows)
    unknown = [sum(word not in known for word in row.split(b" ||| ")[1].split(b" ")) for row in rows]
    assert f"unknown words: {sum(unknown):,} of the target" in result.err
    assert "phrase-rescore: 20,000 rows in " in result.err

    annotated = gzip.decompress(out.read_bytes())
    columns = columns_of(real_rows, annotated)
    assert [round(math.log(float(n))) for _, n in columns] == unknown

    oracle = Oracle(real_model)
    for i in range(0, 20_000, 200):
        assert math.log(float(columns[i][0])) == pytest.approx(oracle.log_p(rows[i]), abs=1e-4)
    some = slice(None, None, 4)
    before, after = (b"".join(data.splitlines(keepends=True)[some]) for data in (real_rows, annotated))
    check_what_moses_reads(before, after, features(columns)[some])


# Bad rows

BAD_ROWS = {  # every other one: moses/test_phrase_table.py, and that blocks find the same: moses/test_table_blocks.py
    "1 field in ''": b"", "score 'nan'": b"the ||| das ||| 1 nan 1 1",
    "3 scores where the first row has 4": b"the ||| das ||| 1 1 1",
}  # fmt: skip
bad_rows = pytest.mark.parametrize(("found", "bad"), BAD_ROWS.items())


@bad_rows
def test_a_bad_row_is_named_and_leaves_out_untouched(run: Run, model_dir: str, tmp_path: Path, found: str, bad: bytes) -> None:
    table, out = tmp_path / "table", tmp_path / "out.gz"
    table.write_bytes(ROW * 6 + bad + b"\n" + ROW)
    out.write_bytes(b"earlier")
    to_file = run("annotate", table, "-m", model_dir, "-o", out, "--overwrite", "--block-size", 2)
    to_stream = run("annotate", table, "-m", model_dir, "--block-size", 2, "--jobs", 1)
    for result in (to_file, to_stream):
        assert result.status == 1
        assert result.err.startswith(f"phrase-rescore: error: {table}:7: {found}")
    assert (to_file.out, out.read_bytes(), listing(tmp_path)) == (b"", b"earlier", ["out.gz", "table"])
    columns_of(ROW * 6, to_stream.out)
    assert to_stream.last_line == "phrase-rescore: OUTPUT IS INCOMPLETE: 6 rows"
    if "first row has" not in found:  # else it would be the one that counts
        assert f"<stdin>:1: {found}" in run("annotate", "-", "-m", model_dir, stdin=bad + b"\n" + ROW).err


@bad_rows
@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("block_size", [1, 3])
def test_bad_rows_dropped(run, model_dir, tmp_path, found, bad, end, block_size) -> None:
    if not bad and not end:
        return  # a blank last line without newline is no line
    table, out = tmp_path / "table", tmp_path / "out"
    table.write_bytes(ROW + bad + b"\n" + ROW * 2 + bad + end)
    to = "-m", model_dir, "-o", out, "--on-bad-row", "drop", "--block-size", block_size
    result = run("annotate", table, *to, "--expect-rows", 3)
    assert result.status == 0
    assert len(columns_of(ROW * 3, out.read_bytes())) == 3
    assert (tmp_path / "out.dropped").read_bytes() == (bad + b"\n") * 2
    assert f"dropped 2 rows, kept in {out}.dropped: line 2, line 5\n" in result.err


def test_first_row_bad_and_dropped(run: Run, model_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row that can be used says how many scores the others have."""
    monkeypatch.chdir(tmp_path)
    to = "-m", model_dir, "--on-bad-row", "drop", "--block-size", 1
    result = run("annotate", "-", *to, stdin=b"bad\n\nthe ||| das ||| 1\n" + ROW + b"the ||| das ||| .5\n")
    assert result.status == 0
    assert len(columns_of(b"the ||| das ||| 1\nthe ||| das ||| .5\n", result.out)) == 2
    assert Path("stdin.dropped").read_bytes() == b"bad\n\n" + ROW


def test_an_older_file_of_dropped_rows_stays_where_nothing_may_be(run, model_dir, table, tmp_path) -> None:
    (tmp_path / "out.dropped").write_bytes(b"of an earlier run")
    assert run("annotate", table, "-m", model_dir, "-o", tmp_path / "out").status == 0
    assert (tmp_path / "out.dropped").read_bytes() == b"of an earlier run"


@pytest.mark.parametrize(("content", "drop", "found"), [
    (b"", "fail", "is empty"), (b"", "drop", "is empty"), (b"bad ||| 1\n" * 2, "drop", "no valid row among its first 2"),
])  # fmt: skip
def test_tables_without_a_row(run: Run, model_dir: str, tmp_path: Path, content: bytes, drop: str, found: str) -> None:
    for data in (content, gzip.compress(content)):
        result = run("annotate", "-", "-m", model_dir, "-o", tmp_path / "out", "--on-bad-row", drop, stdin=data)
        assert (result.status, result.out) == (1, b"")
        assert f"error: <stdin>: {found}" in result.err
    assert listing(tmp_path) == []


def test_damaged_input_leaves_out_untouched(run: Run, model_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.annotation.run.AHEAD_ROWS", 100)
    scores = random.Random(1)
    whole = gzip.compress(b"".join(ROW.replace(b"0.5", b"%.15f" % scores.random()) for _ in range(6000)))
    table = tmp_path / "table.gz"
    table.write_bytes(whole[: len(whole) // 2])
    result = run("annotate", table, "-m", model_dir, "-o", tmp_path / "out", "--block-size", 100)
    assert (result.status, result.out, f"error: {table}: " in result.err) == (1, b"", True)
    assert listing(tmp_path) == ["table.gz"]

    result = run("annotate", table, "-m", model_dir, "--block-size", 100)
    assert result.status == 1
    assert result.last_line == f"phrase-rescore: OUTPUT IS INCOMPLETE: {result.out.count(ROW[:10])} rows"
    assert result.out.count(ROW[:10]) > 0


def test_a_model_that_changes_during_the_run(make_model: MakeModel, table: Path, tmp_path: Path) -> None:
    table.write_bytes(ROW * 100)
    model, other = Path(make_model()), Path(make_model(SOURCE_WORDS[::-1]))

    def replace(statistics: object) -> None:
        if other.exists():
            model.rename(f"{model}.before")
            other.rename(model)

    with pytest.raises(ModelError, match=f"{model}: the model has changed since annotation began"):
        annotate(table, model, tmp_path / "out", jobs=1, block_rows=1, observer=AnnotateObserver(on_block=replace))


def test_expect_rows(run: Run, model_dir: str, table: Path, tmp_path: Path) -> None:
    to = "annotate", table, "-m", model_dir
    for expected, said in ((0, "0"), (3, "3"), (5, "5"), (1234567, "1,234,567")):
        found = f"{table}: 4 rows went through where {said} were expected; "
        to_file = run(*to, "-o", tmp_path / "out", "--expect-rows", expected)
        assert (to_file.status, to_file.out, listing(tmp_path), found in to_file.err) == (1, b"", ["table"], True)
        to_stream = run(*to, "--expect-rows", expected)
        assert (to_stream.status, to_stream.last_line) == (1, "phrase-rescore: OUTPUT IS INCOMPLETE: 4 rows")
        assert f"{found}pass the whole table if it is cut off, else --expect-rows 4\n" in to_stream.err
    assert run(*to, "--expect-rows", 4).status == 0
    table.write_bytes(TABLE + b"bad\n")
    result = run(*to, "-o", tmp_path / "out", "--on-bad-row", "drop", "--expect-rows", 5)
    assert "4 rows (and 1 dropped) went through where 5 were expected" in result.err


@pytest.mark.parametrize("scale", ["exp", "log"])
def test_columns_are_described(run: Run, model_dir: str, table: Path, tmp_path: Path, scale: str) -> None:
    out = tmp_path / "out.gz"
    result = run("annotate", table, "-m", model_dir, "-o", out, "--scale", scale)
    signature = result.err.partition("phrase-rescore: model: ")[2].partition("\n")[0]
    assert re.search(r"\|model:[0-9a-f]{16}\|version:", signature)
    both = {"scale": scale, "model": signature}
    content = json.loads((tmp_path / "out.gz.columns.json").read_bytes())
    assert (content["format_version"], content["columns"]) == (2, [
        {"column": 5, "kind": "score", "predicts": "target", **both}, {"column": 6, "kind": "count", "side": "target", **both},
    ])  # fmt: skip


@pytest.mark.parametrize("scale", ["exp", "log"])
def test_digits(run: Run, model_dir: str, table: Path, scale: str) -> None:
    to = "annotate", table, "-m", model_dir, "--scale", scale
    full = columns_of(TABLE, run(*to, "--digits", 17).out)
    for digits, options in ((2, ("--digits", 2)), (7, ())):
        columns = columns_of(TABLE, run(*to, *options).out)
        assert [p for p, _ in columns] == [b"%.*g" % (digits, float(p)) for p, _ in full]
        if scale == "exp":
            assert [n for _, n in columns] == [b"%.*g" % (digits, float(n)) for _, n in full]


@pytest.fixture(scope="module")
def harsh_model(make_model: MakeModel) -> str:
    """Finds "klein" all but impossible: e^-60 a time."""
    return make_model(logits={b"klein": -60.0})


@pytest.mark.parametrize("digits", [2, 7])
def test_clamped_scores(run: Run, harsh_model: str, tmp_path: Path, digits: int) -> None:
    content = b"".join(b"the ||| das%b ||| 1 ||| 0-0 ||| 1 1 1 ||| |||\n" % (b" klein" * n) for n in range(5))
    oracle = Oracle(harsh_model)
    expected = [oracle.log_p(row) for row in split_rows(content)]
    assert expected[1] > -87 > expected[2]
    result = run("annotate", "-", "-m", harsh_model, "--digits", digits, stdin=content)
    written = [float(p) for p, _ in columns_of(content, result.out)]
    assert min(written) >= 1.2e-38 * (1 - 1e-12)
    assert written[2:] == [pytest.approx(1.2e-38, rel=0.1)] * 3
    if digits >= 7:
        check_what_moses_reads(content, result.out, [(max(log_p, math.log(1.2e-38)), 0) for log_p in expected])
    assert "clamped: 3 scores below 1.2e-38 (log -87.3)\n" in result.err

    plain = run("annotate", "-", "-m", harsh_model, "--scale", "log", stdin=content)
    assert [float(p) for p, _ in columns_of(content, plain.out)] == pytest.approx(expected, rel=1e-6)
    assert "clamped" not in plain.err


@pytest.mark.parametrize("digits", [2, 7])
def test_clamped_counts(run: Run, model_dir: str, tmp_path: Path, digits: int) -> None:
    content = b"".join(b"the ||| %b ||| 1 ||| 0-0 ||| 1 1 1 ||| |||\n" % b" ".join([b"zzz"] * n) for n in (88, 89, 300))
    result = run("annotate", "-", "-m", model_dir, "--digits", digits, stdin=content)
    counts = [float(n) for _, n in columns_of(content, result.out)]
    assert counts == [pytest.approx(math.exp(88), rel=10.0 ** (1 - digits) + 1e-9)] * 3
    assert max(counts) < 3.4e38, "a finite 32-bit float"
    for row in split_rows(result.out):
        assert all(read(row + b"\n", 3).scores[2] == pytest.approx(88, abs=10.0 ** (1 - digits) + 1e-4) for read in READERS)

    plain = run("annotate", "-", "-m", model_dir, "--scale", "log", stdin=content)
    assert [n for _, n in columns_of(content, plain.out)] == [b"88", b"89", b"300"]


# Model and table


@pytest.mark.parametrize(("shares", "line", "found"), [
    ((0.0, 0.1), 4, "'the unknown' has a source word"), ((0.1, 0.0), 3, "'haus unbekannt neu' has a target word"),
    ((0.0, 0.0), 4, "'the unknown' has a source word"),  # both sides: either may be named, a block at a time
])  # fmt: skip
def test_untrained_unk_is_refused(run, make_model, table, tmp_path, shares, line, found) -> None:
    untrained, out = make_model(unk_shares=shares), tmp_path / "out"
    if shares == (0.0, 0.0):
        table.write_bytes(TABLE.replace(b"unbekannt neu", b"das"))
    refused = run("annotate", table, "-m", untrained, "-o", out)
    assert (refused.status, refused.out, listing(tmp_path)) == (1, b"", ["table"])
    assert f"error: {table}:{line}: {found}" in refused.err
    assert "--allow-untrained-unk" in refused.err
    assert run("annotate", table, "-m", untrained, "-o", out, "--allow-untrained-unk").status == 0
    assert len(columns_of(table.read_bytes(), out.read_bytes())) == 4


def known_rows(change: Callable[[bytes], bytes] = bytes, side: int = 0) -> bytes:
    """Rows over all known words, those of one side changed."""
    rows = []
    for pair in zip(SOURCE_WORDS, TARGET_WORDS, strict=True):
        changed = [change(word) if i == side else word for i, word in enumerate(pair)]
        rows.append(b"%b ||| %b ||| 0.5 1 ||| 0-0 ||| 1 1 1 ||| |||\n" % tuple(changed))
    return b"".join(rows)


def fit_warnings(result: Result) -> list[str]:
    """Without those that the summary repeats."""
    lines = [line for line in result.err.splitlines() if " words are unknown to the model, " in line]
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :], "at once and in the summary"
    return lines[: len(lines) // 2]


@pytest.mark.parametrize(("side", "name", "word"), [(0, "source", "Old"), (1, "target", "Haus")])
def test_letter_case_is_noticed(run: Run, model_dir: str, side: int, name: str, word: str) -> None:
    content = known_rows(lambda word: {b"haus": b"Haus", b"old": b"Old"}.get(word, word), side)
    (found,) = fit_warnings(run("annotate", "-", "-m", model_dir, stdin=content))
    for fact in (f"10.0% of the {name} words", "2.0% in its training", f"'{word}' 1;", "letter case only (100% of them)"):
        assert fact in found


def test_escapes_are_noticed(run: Run, make_model: MakeModel, model_dir: str) -> None:
    plain = known_rows(lambda word: word.replace(b"&apos;", b"'"))
    (found,) = fit_warnings(run("annotate", "-", "-m", model_dir, stdin=plain))
    assert "commonest: 'don't' 1; likely cause: the model's text escaped special characters" in found
    unescaped = make_model(source=[word.replace(b"&apos;", b"'") for word in SOURCE_WORDS])
    (found,) = fit_warnings(run("annotate", "-", "-m", unescaped, stdin=known_rows()))
    assert "likely cause: the table escapes special characters" in found


SWAPPED = b"das haus ||| the house ||| 1 1 1 1\nist alt ||| is old ||| 1 1 1 1\n"
SORTED = b"! ! ||| ! ||| 1 1 1 1\n1900 ||| 1900 ||| 1 1 1 1\n" * 300


@pytest.mark.parametrize(("form", "content"), [
    *((form, rows) for form in ("annotate", "report", "score") for rows in (SWAPPED, SORTED + SWAPPED, SWAPPED * 2 + ROW)),
    ("annotate", b"bad\n" + SWAPPED),  # a bad row may be dropped there
    ("annotate", SORTED * 7 + SWAPPED * 2),  # judged by 2000 rows from all over the first 20,000
])  # fmt: skip
def test_a_swapped_table_is_refused(run: Run, model_dir: str, tmp_path: Path, content: bytes, form: str) -> None:
    """Before the first row; numbers and marks, which a sorted table begins with, do not hide it."""
    table, out = tmp_path / "table", tmp_path / "out"
    table.write_bytes(content)
    to = {"annotate": [table, "--on-bad-row", "drop"], "report": [table, "-o", out], "score": []}[form]
    result = run(form, *to, "-m", model_dir, stdin=content)
    assert (result.status, result.out, listing(tmp_path)) == (1, b"", ["table"])
    assert ": source and target seem swapped: " in result.last_line
    share = "80% of the source and 80%" if content.endswith(ROW) else "100% of the source and 100%"
    assert f"{share} of the target words are unknown to " in result.last_line


@pytest.mark.usefixtures("four_rows_judged")
def test_a_swapped_table_is_refused_late(run: Run, model_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its first rows tell nothing, the words of the first 100,000 do."""
    monkeypatch.setattr("phrase_rescore.annotation.run.AHEAD_ROWS", 2)
    content = b"! ||| ! ||| 1 1 1 1\n" * 2 + SWAPPED + b"bad\n"
    result = run("annotate", "-", "-m", model_dir, "--block-size", 1, "--jobs", 1, stdin=content)
    assert "source and target seem swapped" in result.err
    assert result.last_line == "phrase-rescore: OUTPUT IS INCOMPLETE: 4 rows"


@pytest.mark.parametrize("content", [b"das ||| the ||| 1 1 1 1\n", ROW * 2 + SWAPPED, b"zzz yyy ||| zzz yyy ||| 1 1\n" * 9])
def test_what_is_not_swapped_is_taken(run: Run, model_dir: str, content: bytes) -> None:
    """Too little to tell, a mixture, another language."""
    assert run("annotate", "-", "-m", model_dir, stdin=content).status == 0


@pytest.mark.parametrize(("unknown", "share", "warns"), [
    (5, 0.0001, False), (6, 0.0001, True), (6, 0.03, False), (7, 0.03, True), (30, 0.15, False), (31, 0.15, True),
])  # fmt: skip
def test_more_than_5_percent_and_twice_the_share_of_training(run, make_model, unknown, share, warns) -> None:
    content = b"the ||| das ||| 1\n" * (100 - unknown) + b"zzz ||| das ||| 1\n" * unknown
    result = run("annotate", "-", "-m", make_model(unk_shares=(share, share)), stdin=content)
    assert bool(fit_warnings(result)) is warns


def test_a_table_that_fits_is_not_warned_about(run: Run, model_dir: str) -> None:
    assert "warning" not in run("annotate", "-", "-m", model_dir, "--strict", stdin=known_rows()).err


def test_strict_makes_it_an_error(run: Run, model_dir: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_bytes(b"THE ||| das ||| 1\n" * 3)
    found = f"error: {table}: 100.0% of the source words are unknown"
    to_file = run("annotate", table, "-m", model_dir, "--strict", "-o", tmp_path / "out")
    assert (to_file.status, found in to_file.err, listing(tmp_path)) == (1, True, ["table"])
    to_stream = run("annotate", table, "-m", model_dir, "--strict")
    assert (to_stream.status, found in to_stream.err) == (1, True)
    assert to_stream.last_line == "phrase-rescore: OUTPUT IS INCOMPLETE: 3 rows"


@pytest.fixture
def four_rows_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of 100,000."""
    monkeypatch.setattr("phrase_rescore.annotation.annotator.FIT_ROWS", 4)
    monkeypatch.setattr("phrase_rescore.annotation.record.FIT_ROWS", 4)


@pytest.mark.usefixtures("four_rows_judged")
@pytest.mark.parametrize("block_size", [1, 2, 3, 100])
def test_only_the_first_rows_are_judged(run: Run, model_dir: str, block_size: int) -> None:
    to = "-", "-m", model_dir, "--block-size", block_size
    assert not fit_warnings(run("annotate", *to, stdin=ROW * 4 + b"THE ||| das ||| 1 1 1 1\n" * 9))
    found = fit_warnings(run("annotate", *to, stdin=ROW * 3 + b"THE OLD ||| das ||| 1 1 1 1\n" * 9))
    assert len(found) == 1
    assert "25.0% of the source words are unknown" in found[0]


@pytest.mark.usefixtures("four_rows_judged")
def test_the_warning_does_not_wait_for_the_end(run: Run, model_dir: str) -> None:
    content = b"THE ||| das ||| 1\n" * 8 + b"bad\n"
    lines = run("annotate", "-", "-m", model_dir, "--block-size", 2, "--jobs", 1, stdin=content).err.splitlines()
    assert len(lines) == 3
    assert "letter case only" in lines[0]
    assert lines[1].startswith("phrase-rescore: error: <stdin>:9: ")


def test_report(run: Run, model_dir: str, table: Path, tmp_path: Path) -> None:
    result = run("annotate", table, "-m", model_dir, "-o", tmp_path / "out")
    lines = [line.removeprefix("phrase-rescore: ") for line in result.err.splitlines()]
    assert [line for line in lines if re.fullmatch(r"4 rows in [\d.]+ s, [\d,]+ rows/s", line)]
    assert "unknown words: 2 of the target (28.57%), 1 of the source (12.50%)" in lines
    assert [line.partition(" ")[0] for line in lines[-3:]] == ["model:", "wrote", "next:"]
    assert result.out == b""


def test_strip_errors(run: Run, tmp_path: Path) -> None:
    table, out = tmp_path / "table", tmp_path / "out"
    for bad, found in ((b"bad\n", "1 field in 'bad'"), (b"a ||| b ||| 1 2\n", "2 scores where the first row has 4")):
        table.write_bytes(ROW * 2 + bad)
        result = run("strip", table, "--columns", 2, "-o", out)
        assert (result.status, result.out) == (1, b"")
        assert result.err.startswith(f"phrase-rescore: error: {table}:3: {found}")
    assert listing(tmp_path) == ["table"]


def test_strip_that_fails_on_standard_output_says_so(run: Run) -> None:
    """As annotate does: rows already written cannot be taken back."""
    result = run("strip", "-", "--columns", 1, stdin=ROW * 9000 + b"bad\n")
    assert result.status == 1
    written = result.out.count(b"\n")
    assert result.last_line == f"phrase-rescore: OUTPUT IS INCOMPLETE: {written} rows"
