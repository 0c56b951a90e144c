"""Rows that a careless reader would fall over: what each command makes of each, as docs/odd-input.md has it."""

import contextlib
import gzip
import io
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import SOURCE_WORDS, TARGET_WORDS, MakeModel, Run
from oracle import log_prob
from safetensors.numpy import load_file

from phrase_rescore.errors import InputError
from phrase_rescore.files import inputs
from phrase_rescore.files.inputs import open_input, read_blocks, read_rows
from phrase_rescore.moses import text

GOOD = b"the house ||| das haus ||| 0.5 0.25 ||| 0-0 1-1 ||| 3 2 1 ||| |||"
LONG = "words, more than 1,000; is a line break missing, or is this text instead of phrases?"
PLAIN = "scores are plain decimal numbers such as 0.25 or 6.1e-05"
WEIGHTS = "model-00001-of-00001.safetensors"
TINY = ("--hidden", 4, "--embedding", 3, "--maxout", 2, "--rank", 2, "--max-steps", 1, "--threads", 1, "--held-out", 0)


class Hostile(NamedTuple):
    """A row among GOOD ones: why it is refused, if it is; what info finds in it; how long its phrases are for train."""

    row: bytes
    refused: str = ""
    fault: str = ""  # that info finds in a row that is taken


def score(text: str) -> str:
    return f"score '{text}'; {PLAIN}"


# By what the first column of the page's table says of them
ROWS = {
    "NUL": [
        Hostile(GOOD.replace(b"house", b"ho\0use"), fault="nul_bytes"),
        Hostile(GOOD.replace(b"0-0", b"0-0\0"), fault="nul_bytes"),
    ],
    "NUL in a score": [Hostile(GOOD.replace(b"0.25", b"0.25\0"), score(r"0.25\x00"))],
    "bytes that are not UTF-8": [Hostile(GOOD.replace(b"house", odd)) for odd in (b"\xff\xfe", b"\xc3", b"\xed\xa0\x80")],
    "U+2028, U+2029, U+0085, U+00A0, U+FEFF, VT, FF, FS in a phrase": [
        Hostile(GOOD.replace(b"house", b"ho" + odd.encode() + b"use"))
        for odd in ("\u2028", "\u2029", "\u0085", "\u00a0", "\ufeff", "\v", "\f", "\x1c")
    ],
    "the same between scores": [
        Hostile(GOOD.replace(b"0.5 0.25", f"0.5{odd}0.25".encode()), score(f"0.5{shown}0.25"))
        for odd, shown in (("\u2028", "\\u2028"), ("\u00a0", "\\xa0"), ("\v", "\\x0b"), ("\u0085", "\\x85"))
    ],
    "a line of 1 MB": [Hostile(GOOD + b" " + b"x" * (1 << 20)), Hostile(GOOD.replace(b"haus", b"\xff" * (1 << 20)))],
    "a phrase of 1,000 words": [
        Hostile(GOOD.replace(b"house", b" ".join([b"house"] * 999))),
        Hostile(GOOD.replace(b"haus", b" ".join([b"haus", b"neu", b"alt"] * 333))),
    ],
    "a phrase of more": [
        Hostile(GOOD.replace(b"house", b" ".join([b"house"] * 1000)), f"a source phrase of 1,001 {LONG}"),
        Hostile(GOOD.replace(b"haus", b" ".join([b"haus"] * 1000)), f"a target phrase of 1,001 {LONG}"),
        Hostile(GOOD.replace(b"haus", b"a  b" * 4000), f"a target phrase of 4,002 {LONG}"),
    ],
    "a `|||` too many before the scores": [
        Hostile(GOOD.replace(b"das haus", b"das ||| haus"), score("haus")),
        Hostile(b"||| " + GOOD, "the source phrase is empty; every row needs both phrases"),
    ],
    "a `|||` too many after the scores": [Hostile(GOOD + b" |||")],
    "`||||`": [Hostile(GOOD.replace(b"house |||", b"house ||||"), fault="bars")],
    "`inf`": [Hostile(GOOD.replace(b"0.25", odd), score(odd.decode())) for odd in (b"inf", b"-Infinity", b"INF")],
    "`nan`": [Hostile(GOOD.replace(b"0.25", odd), score(odd.decode())) for odd in (b"nan", b"-NaN")],
    "`0x1p3`": [Hostile(GOOD.replace(b"0.25", b"0x1p3"), score("0x1p3"))],
    "`1_0`": [Hostile(GOOD.replace(b"0.25", b"1_0"), score("1_0"))],
    "`1e999`": [Hostile(GOOD.replace(b"0.25", odd), fault="overflow") for odd in (b"1e999", b"1e39", b"9" * 400)],
    "`-1e999`": [Hostile(GOOD.replace(b"0.25", b"-1e999"), fault="negative")],
    "`1e-999`": [Hostile(GOOD.replace(b"0.25", b"1e-999"), fault="zero")],
    "CR LF": [Hostile(GOOD + b"\r", fault="carriage_returns"), Hostile(b"the ||| das ||| 1 1\r", fault="carriage_returns")],
    "CR alone": [Hostile(GOOD.replace(b"house", b"ho\ruse"))],
    "a blank line": [
        Hostile(blank, f"1 field in '{shown}'; a phrase-table row is 'source ||| target ||| scores …'")
        for blank, shown in ((b"", ""), (b" \t", r" \t"), (b"\r", r"\r"))
    ],
}
CASES = [pytest.param(case, id=f"{name}-{i}") for name, cases in ROWS.items() for i, case in enumerate(cases)]
hostile = pytest.mark.parametrize("case", CASES)


def lines_of(*rows: bytes) -> bytes:
    return b"".join(row + b"\n" for row in rows)


@pytest.mark.slow
@hostile
def test_annotate_and_strip(run: Run, model_dir: str, tmp_path: Path, case: Hostile) -> None:
    """Taken, to the byte, or refused with its line; dropped when asked for, also to the byte."""
    table, out, stripped = tmp_path / "table", tmp_path / "out.gz", tmp_path / "stripped"
    table.write_bytes(lines_of(GOOD, case.row, GOOD))
    result = run("annotate", table, "-m", model_dir, "-o", out)
    if case.refused:
        assert result == (1, b"", f"phrase-rescore: error: {table}:2: {case.refused}\n")
        assert run("strip", table, "--columns", 1, "-o", stripped) == result
        assert run("annotate", table, "-m", model_dir, "-o", out, "--on-bad-row", "drop").status == 0
        assert (tmp_path / "out.gz.dropped").read_bytes() == case.row + b"\n"
        kept = lines_of(GOOD, GOOD)
    else:
        assert result.status == 0, result.err
        kept = table.read_bytes()
    columns = [row.split(b"|||")[2].split()[-2:] for row in gzip.decompress(out.read_bytes()).removesuffix(b"\n").split(b"\n")]
    assert all(0 < float(p) <= 1 <= float(n) < 3.4e38 for p, n in columns)
    assert run("strip", out, "--columns", 2, "-o", stripped).status == 0
    assert stripped.read_bytes() == kept


@pytest.mark.slow
@hostile
def test_train(run: Run, tmp_path: Path, case: Hostile) -> None:
    """The same rows are taken and refused; pairs reach the model with the very bytes of their words."""
    table = tmp_path / "table"
    table.write_bytes(lines_of(GOOD, GOOD.replace(b"das haus", b"alt"), case.row))
    result = run("train", table, "-m", tmp_path / "model", *TINY)
    if case.refused:
        assert result == (1, b"", f"phrase-rescore: error: {table}:3: {case.refused}\n")
        assert [path.name for path in tmp_path.iterdir()] == ["table"]
        return
    assert result.status == 0, result.err
    known = {row.split(b"\t")[0] for row in (tmp_path / "model" / "source.vocab").read_bytes().split(b"\n")}
    words = {word for row in lines_of(GOOD, case.row).split(b"\n")[:-1] for word in re.split(rb"[ \t]+", row.split(b"|||")[0])}
    assert len(words - {b""} - known) == 1, "the rarest word, left out for UNK"


@hostile
def test_info(run: Run, tmp_path: Path, case: Hostile) -> None:
    """Every row is counted and no row ends the reading; what Moses programs would mishandle is named, with its line."""
    table = tmp_path / "table"
    table.write_bytes(lines_of(GOOD, case.row, GOOD))
    result = run("info", table, "--json")
    assert result.status == 0, result.err
    found = json.loads(result.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    problems = {problem["problem"]: problem for problem in found["problems"]}
    assert found["rows"] == 3
    if case.refused:
        assert (problems["refused"]["first_line"], problems["refused"]["reason"]) == (2, case.refused)
    elif case.fault:
        assert problems[case.fault]["first_line"] == 2
    else:
        assert problems.keys() <= {"sources_apart", "unsorted"}, "of the order alone"


@pytest.mark.parametrize("row", [GOOD, b"the ||| das ||| 1", b"the ||| das ||| 1 ||| 0-0 "])
def test_no_final_newline(run: Run, model_dir: str, tmp_path: Path, row: bytes) -> None:
    """It stays missing, and the row counts."""
    annotated = run("annotate", "-", "-m", model_dir, stdin=lines_of(row) + row)
    assert annotated.out.count(b"\n") == 1
    assert not annotated.out.endswith(b"\n")
    assert run("strip", "-", "--columns", 2, stdin=annotated.out).out == lines_of(row) + row
    assert json.loads(run("info", "-", "--json", stdin=lines_of(row) + row).out)["rows"] == 2
    (tmp_path / "table").write_bytes(lines_of(row) + row.replace(b"das", b"haus"))
    assert run("train", tmp_path / "table", "-m", tmp_path / "model", *TINY).status == 0
    assert json.loads((tmp_path / "model" / "config.json").read_bytes())["training"]["distinct_pairs"]["training"] == 2


@pytest.mark.slow
def test_a_phrase_of_a_thousand_words_is_scored_exactly(run: Run, make_model: MakeModel) -> None:
    """Sums over so many words keep their digits: as the equations give it, in double precision and word by word."""
    model = make_model()
    row = GOOD.replace(b"haus", b" ".join([b"haus", b"ist", b"alt"] * 333)) + b"\n"
    result = run("annotate", "-", "-m", model, "--scale", "log", "--digits", 9, stdin=row)
    found = float(result.out.split(b"|||")[2].split()[2])
    weights = load_file(Path(model) / WEIGHTS)
    src, tgt = (
        {line.split(b"\t")[0]: i for i, line in enumerate((Path(model) / f"{side}.vocab").read_bytes().split(b"\n"), 2)}
        for side in ("source", "target")
    )
    expected = log_prob(weights, [src[b"the"], src[b"house"]], [tgt[word] for word in row.split(b"|||")[1].split()])
    assert found == pytest.approx(float(expected), rel=1e-5)
    assert found < -500


@pytest.mark.slow
def test_memory_of_a_block_is_bounded(model_dir: str, tmp_path: Path) -> None:
    """Of one whose phrases are all as long as they may be: 2,048 rows, four million words."""
    draw = random.Random(1).choices
    rows = (b" ||| ".join(b" ".join(draw(words, k=1000)) for words in (SOURCE_WORDS, TARGET_WORDS)) for _ in range(2048))
    (tmp_path / "table").write_bytes(b"".join(row + b" ||| 1\n" for row in rows))
    code = (
        "import resource, sys; from phrase_rescore import annotate; annotate(*sys.argv[1:], jobs=1, device='cpu');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"
    )
    words = sys.executable, "-c", code, str(tmp_path / "table"), model_dir, str(tmp_path / "out")
    assert int(subprocess.run(words, check=True, capture_output=True).stdout) < 1500


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of 16 MiB, read in pieces that are smaller, too."""
    monkeypatch.setattr(inputs, "CHUNK", 700)
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(inputs, "LONGEST_ROW", 3000)


def test_blocks_are_those_that_rows_one_by_one_would_make(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    for _ in range(2000):
        monkeypatch.setattr(inputs, "CHUNK", draw.choice([1, 2, 3, 7, 20]))
        monkeypatch.setattr(inputs, "BLOCK_BYTES", draw.choice([1, 5, 10, 17, 40]))
        monkeypatch.setattr(text, "BLOCK_BYTES", inputs.BLOCK_BYTES)
        monkeypatch.setattr(inputs, "LONGEST_ROW", draw.choice([20, 1000]))
        rows, data = draw.randint(1, 5), b"".join(b"x" * draw.randint(0, 24) + b"\n" for _ in range(draw.randint(0, 12)))
        data += draw.choice([b"", b"the last"])
        found, expected = list[object](), list[object]()
        with contextlib.suppress(InputError):
            for block in read_blocks(io.BufferedReader(io.BytesIO(data)), rows):
                found.append(tuple(block)[:3])
        first = 1
        with contextlib.suppress(InputError):
            lines = read_rows(io.BufferedReader(io.BytesIO(data)))
            for number, taken in enumerate(text.parsed_lines(lines, bytes, "", rows)):
                expected.append((number, first, b"".join(taken)))
                first += len(taken)
        assert found == expected


@pytest.mark.usefixtures("small_blocks")
def test_line_numbers_and_bytes_are_right_where_blocks_are_cut_by_bytes(run: Run, model_dir: str, tmp_path: Path) -> None:
    long = GOOD + b" " + b"x" * 700
    table, out = tmp_path / "table", tmp_path / "out"
    table.write_bytes(lines_of(*[long] * 9, GOOD))
    assert run("annotate", table, "-m", model_dir, "-o", out).status == 0
    assert run("strip", out, "--columns", 2).out == table.read_bytes()
    table.write_bytes(lines_of(*[long] * 9, b"bad"))
    for command in (["annotate", table, "-m", model_dir], ["strip", table, "--columns", 1]):
        assert f"{table}:10: 1 field in 'bad'" in run(*command).err
    assert run("train", table, "-m", tmp_path / "model", *TINY).last_line.startswith(f"phrase-rescore: error: {table}:10: ")
    assert json.loads(run("info", table, "--json").out)["problems"][0]["first_line"] == 10


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("drop", ["fail", "drop"])
def test_a_row_without_end_is_no_row(run: Run, model_dir: str, tmp_path: Path, drop: str) -> None:
    """It is an error of the file, whatever is done with bad rows: what stands there is not text."""
    table, out = tmp_path / "table", tmp_path / "out"
    for row, wrong in ((b"x" * 2990, False), (b"x" * 3000, True), (b"\0" * 10**6, True)):
        table.write_bytes(lines_of(GOOD, GOOD + row[len(GOOD) :]))
        said = f"phrase-rescore: error: {table}:2: a row of more than 0 MiB; is this text with a row a line?\n"
        commands = [
            ["annotate", table, "-m", model_dir, "-o", out, "--overwrite", "--on-bad-row", drop],
            ["strip", table, "--columns", 1, "-o", out, "--overwrite"],
            ["train", table, "-m", tmp_path / "model", *TINY, "--overwrite", "--on-bad-row", drop], ["info", table],
        ]  # fmt: skip
        for command in commands:
            result = run(*command)
            assert (result.status, result.err == said) == (int(wrong), wrong), command
            if wrong:
                assert not out.exists() or out.unlink() is None
    scored = run("score", "-m", model_dir, stdin=b"the\tdas\n" + b"x" * 4000)
    assert (scored.status, scored.out.count(b"\n")) == (1, 0)
    assert scored.err == "phrase-rescore: error: <stdin>:2: a row of more than 0 MiB; is this text with a row a line?\n"


def test_zeros_without_end_take_no_memory(tmp_path: Path) -> None:
    """A bomb: 1 GiB of zeros in 1 MB. Within 16 MiB of them it is known for what it is."""
    zeros = gzip.compress(bytes(1 << 24), 1)
    (tmp_path / "bomb.gz").write_bytes(zeros * 64)
    with open_input(str(tmp_path / "bomb.gz")) as stream, pytest.raises(InputError) as caught:
        next(read_blocks(stream, 2048))
    assert str(caught.value) == f"{tmp_path}/bomb.gz:1: a row of more than 16 MiB; is this text with a row a line?"
