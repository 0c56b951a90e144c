"""``annotate --scores``: numbers of any other model as columns, checked in number and range, whatever else is asked for."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import Run

from phrase_rescore.files import row_outputs

ROW = b"the %d ||| das %d ||| 0.%d 0.25 1 0.04 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
ROWS = b"".join(ROW % (i, i, i) for i in range(1, 51))
P = np.random.default_rng(1).uniform(1e-30, 1, 50)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table").write_bytes(ROWS)
    Path("p").write_text("".join(f"{p:.17g}\n" for p in P))
    Path("logs.gz").write_bytes(gzip.compress("\n".join(f"{math.log(p):.17g}" for p in P).encode()))
    return tmp_path


def scores(data: bytes, column: int) -> list[float]:
    return [float(line.split(b" ||| ")[2].split()[column]) for line in data.splitlines()]


def test_probabilities_and_logarithms_become_the_same_column(run: Run, here: Path) -> None:
    of_p = run("annotate", "table", "--scores", "p", "--block-size", "7")
    assert of_p.status == 0, of_p.err
    assert scores(of_p.out, 4) == pytest.approx(P, rel=1e-6)
    for jobs in (1, 2):
        assert run("annotate", "table", "--scores", "logs.gz", "--log", "--jobs", jobs, "--block-size", "9").out == of_p.out
    logs = run("annotate", "table", "--scores", "p", "--scale", "log")
    assert scores(logs.out, 4) == pytest.approx(np.log(P), rel=1e-6)
    assert run("strip", "-", "--columns", "1", stdin=of_p.out).out == ROWS


def test_what_moses_would_not_load_is_clamped(run: Run, here: Path) -> None:
    Path("logs").write_text("-1000\n" + "0\n" * 49)
    assert scores(run("annotate", "table", "--scores", "logs", "--log").out, 4) == [1.2e-38] + [1.0] * 49


def test_they_follow_the_columns_of_models_and_the_sidecar_names_them(run: Run, here: Path, model_dir: str) -> None:
    plain = run("annotate", "table", "-m", model_dir).out
    assert run("annotate", "table", "-m", model_dir, "--scores", "p", "--scores", "p", "-o", "out.gz").status == 0
    found = gzip.decompress(Path("out.gz").read_bytes())
    assert [scores(found, i) for i in (4, 5)] == [scores(plain, i) for i in (4, 5)]
    assert scores(found, 6) == scores(found, 7) == pytest.approx(P, rel=1e-6)
    sidecar = json.loads(Path("out.gz.columns.json").read_bytes())
    given = {"kind": "given", "scale": "exp", "model": "p"}
    assert sidecar["columns"][2:] == [{"column": 7, **given}, {"column": 8, **given}]
    assert run("strip", "out.gz").out == ROWS
    again = run("annotate", "out.gz", "--scores", "p", "--replace", "4")
    assert (scores(again.out, 4), len(again.out.split(b" ||| ")[2].split())) == (scores(found, 6), 5)


def test_a_dropped_row_takes_its_number_with_it(run: Run, here: Path) -> None:
    rows = ROWS.splitlines(keepends=True)
    Path("table").write_bytes(b"".join([*rows[:10], b"the ||| das ||| 0.1 ||| 0-0\n", *rows[11:]]))
    result = run("annotate", "table", "--scores", "p", "--on-bad-row", "drop", "--block-size", "4")
    assert scores(result.out, 4) == pytest.approx(np.delete(P, 10), rel=1e-6)


@pytest.mark.parametrize(("numbers", "said"), [
    (b"0.5\n" * 49, "numbers: ends at line 49; table has more rows; write a number for each of its rows, in their order"),
    (b"0.5\n" * 51, "numbers: has more lines than table has rows (50); write a number"),
    (b"0.5\n" * 20 + b"0\n" * 30, "numbers:21: 0 is not above 0; a probability is; add --log if"),
    (b"0.5\n" * 20 + b"1.2\n" * 30, "numbers:21: 1.2 is above 1, so it is no probability; turn costs"),
    (b"0.5\n" * 20 + b"\n" * 30, "numbers:21: '' is not a number; write a number a line"),
    (b"1e400\n" * 50, "numbers:1: '1e400' is not a number"),
    (b"0.5\n1_0\n" * 25, "numbers:2: '1_0' is not a number"),
])  # fmt: skip
def test_numbers_that_do_not_fit_the_table(run: Run, here: Path, numbers: bytes, said: str) -> None:
    Path("numbers").write_bytes(numbers)
    result = run("annotate", "table", "--scores", "numbers", "-o", "out", "--block-size", "8")
    assert result.status == 1
    assert f"error: {said}" in result.err
    assert not Path("out").exists()


def test_a_run_goes_on_with_the_same_scores_alone(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_outputs, "SECONDS_BETWEEN", 0.0)
    whole = run("annotate", "table", "--scores", "p", "--block-size", "2").out
    lines = Path("p").read_bytes().splitlines(keepends=True)
    Path("p").write_bytes(b"".join(lines[:30]))
    asked = ("annotate", "table", "--scores", "p", "-o", "out", "--block-size", "2")
    assert "p: ends at line 30" in run(*asked).err
    Path("p").write_bytes(b"0.5\n" + b"".join(lines[1:]))
    assert "rows or their scores differ from the interrupted run's" in run(*asked, "--resume").err
    Path("p").write_bytes(b"".join(lines))
    assert "made with log False, not True" in run(*asked, "--resume", "--log").err
    assert run(*asked, "--resume").status == 0
    assert Path("out").read_bytes() == whole


@pytest.mark.parametrize(("more", "said"), [
    (("-m", "MODEL", "--log"), "--log says that --scores has logarithms; to choose what is written use --scale"),
    (("--scores", "-"), "'-', standard input; name a file"),
    (("--scores", "table", "-o", "table"), "table"),
])  # fmt: skip
def test_options_that_do_not_fit(run: Run, here: Path, model_dir: str, more: tuple[str, ...], said: str) -> None:
    words = [model_dir if word == "MODEL" else word for word in more]
    result = run("annotate", "-" if "-" in more else "table", *words, stdin=ROWS)
    assert (result.status, result.out) == (2, b"")
    assert said in result.last_line
