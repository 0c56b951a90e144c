"""``annotate --replace`` and ``strip`` remove the columns that the sidecar names, or those that are asked for: no others."""

import json
from pathlib import Path

import pytest
from conftest import MakeModel, Run

ROWS = (
    b"a\xff old ||| alt ||| 0.5 0.25 1 6.1e-05 ||| 1-0 ||| 3 2 1 ||| |||\n"
    b"the house ||| haus neu ||| 1 1 .5 2.718 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    path.write_bytes(ROWS)
    return path


def without_last(data: bytes, k: int) -> bytes:
    """The rows without their last ``k`` scores."""
    rows = [row.split(b" ||| ") for row in data.splitlines(keepends=True)]
    return b"".join(b" ||| ".join([*row[:2], b" ".join(row[2].split()[:-k]), *row[3:]]) for row in rows)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_without_a_sidecar_the_user_says_what_is_removed(run: Run, model_dir: str, table: Path, tmp_path: Path, k: int) -> None:
    stripped = run("strip", table, "--columns", k, "-o", tmp_path / "stripped")
    assert (stripped.status, (tmp_path / "stripped").read_bytes()) == (0, without_last(ROWS, k))
    named = ", ".join(str(number) for number in range(5 - k, 5))
    assert f"2 rows without column{'s' if k > 1 else ''} {named}\n" in stripped.err
    replaced = run("annotate", table, "-m", model_dir, "--replace", k)
    assert replaced.out == run("annotate", tmp_path / "stripped", "-m", model_dir).out


@pytest.mark.parametrize("scale", ["exp", "log"])
@pytest.mark.parametrize(("features", "models"), [("score,count", 1), ("score,count", 2), ("score", 1), ("count", 1)])
def test_columns_of_annotate(run, make_model, table, tmp_path, scale, features, models) -> None:
    """They are replaced, and stripped, with the sidecar and without."""
    to = ["--scale", scale, "--features", features, *(word for _ in range(models) for word in ("-m", make_model()))]
    once, k = tmp_path / "once", models * len(features.split(","))
    assert run("annotate", table, "-o", once, *to).status == 0
    assert run("strip", once).out == ROWS
    for _ in range(2):
        result = run("annotate", once, *to, "--replace", k)
        assert (result.status, result.out) == (0, once.read_bytes()), result.err
        assert run("strip", once, "--columns", k).out == ROWS
        (tmp_path / "once.columns.json").unlink(missing_ok=True)


@pytest.mark.parametrize(("command", "k", "foreign"), [("annotate", 3, 4), ("strip", 3, 4), ("strip", 5, 4)])
def test_what_the_sidecar_does_not_name_stays(run, model_dir, table, tmp_path, command, k, foreign) -> None:
    once, out = tmp_path / "once", tmp_path / "out"
    assert run("annotate", table, "-m", model_dir, "-o", once).status == 0
    options = ["-m", model_dir, "--replace", k] if command == "annotate" else ["--columns", k]
    result = run(command, once, *options, "-o", out)
    assert (result.status, result.out, out.exists()) == (2, b"", False)
    assert f": {once}: column {foreign} is not one that {once}.columns.json names" in result.err
    assert run("strip", once, "--columns", 1).out == without_last(once.read_bytes(), 1), "fewer may go"
    refused = run("strip", once, "-o", f"{once}.columns.json", "--overwrite")
    assert (refused.status, "its sidecar" in refused.err) == (2, True)


@pytest.mark.parametrize("k", [4, 5, 100])
def test_at_least_one_score_stays(run: Run, model_dir: str, table: Path, tmp_path: Path, k: int) -> None:
    for words in (["annotate", table, "-m", model_dir, "--replace", k], ["strip", table, "--columns", k]):
        result = run(*words, "-o", tmp_path / "out")
        assert (result.status, result.out) == (2, b"")
        assert f"{table} has 4 score columns; {words[-2]} {k} would leave none" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("more", [b"", b" 0.25 2.718282"])
def test_strip_asks_where_nothing_says_what_to_remove(run: Run, tmp_path: Path, more: bytes) -> None:
    """Whatever the last columns look like."""
    table = tmp_path / "table"
    table.write_bytes(b"the ||| das ||| 0.5 0.25 1 0.5%b ||| 0-0\n" % more * 3)
    result = run("strip", table, "-o", tmp_path / "out")
    assert (result.status, "--columns K" in result.err, "look like those of annotate" in result.err) == (2, True, bool(more))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("first", [b"0.5 0.25 1 0.1", b"1 1 0.5 0.25 1 0.1"])
@pytest.mark.parametrize("at", [2, 3000])
def test_strip_counts_the_scores_of_every_row(run: Run, tmp_path: Path, first: bytes, at: int) -> None:
    """A row that lacks the columns would lose two of its own scores."""
    row = b"the ||| das ||| %b ||| 0-0\n"
    rows = [row % first] * 4000
    rows[at - 1] = row % b"1 1 0.5 0.25 1"
    (tmp_path / "table").write_bytes(b"".join(rows))
    result = run("strip", tmp_path / "table", "--columns", 2, "-o", tmp_path / "out")
    assert (result.status, result.out) == (1, b"")
    assert f"{tmp_path}/table:{at}: 5 scores where the first row has {len(first.split())}" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_columns_of_another_model_follow_and_the_sidecar_names_all(run, make_model, table, tmp_path) -> None:
    one, other = make_model(), make_model(logits={b"das": 2.0})
    for name, out, model, *options in (("table", "a", one), ("a", "b", other), ("b", "c", other, "--replace", 2)):
        result = run("annotate", tmp_path / name, "-m", model, "-o", tmp_path / out, *options)
        assert (result.status, "look like" in result.err) == (0, False), result.err
    for name, numbers in (("a", [5, 6]), ("b", [5, 6, 7, 8]), ("c", [5, 6, 7, 8])):
        columns = json.loads((tmp_path / f"{name}.columns.json").read_bytes())["columns"]
        assert [column["column"] for column in columns] == numbers
    assert (tmp_path / "c").read_bytes() == (tmp_path / "b").read_bytes()
    assert run("strip", tmp_path / "c").out == ROWS


def test_the_columns_of_a_model_are_not_appended_twice(run: Run, make_model: MakeModel, table: Path, tmp_path: Path) -> None:
    model, other, once = make_model(), make_model(logits={b"das": 2.0}), tmp_path / "once"
    assert run("annotate", table, "-m", other, "-m", model, "--features", "score", "-o", once).status == 0
    result = run("annotate", once, "-m", model, "-o", tmp_path / "twice")
    assert (result.status, result.out) == (2, b"")
    assert f"column 6 of {once} is that of {model} already; to renew it add --replace 1" in result.err
    assert run("annotate", once, "-m", model, "--features", "count", "-o", tmp_path / "count").status == 0, "it is another"


@pytest.mark.parametrize("scale", ["exp", "log"])
@pytest.mark.parametrize("own", [1, 4])
def test_columns_that_look_like_those_of_annotate_are_a_warning(run, model_dir, table, own, scale) -> None:
    """After a filter or a sort that lost the sidecar, say. It decides nothing."""
    plain = ROWS if own == 4 else without_last(ROWS, 3)
    once = run("annotate", "-", "-m", model_dir, "--scale", scale, stdin=plain)
    assert "look like" not in once.err
    twice = run("annotate", "-", "-m", model_dir, "--scale", scale, stdin=once.out)
    assert twice.status == 0
    assert len(twice.out.split(b" ||| ")[2].split()) == own + 4
    assert f"warning: columns {own + 1} and {own + 2} of <stdin> look like those of annotate" in twice.err
    assert "--replace 2" in twice.err
    assert "look like" not in run("annotate", "-", "-m", model_dir, "--replace", 2, stdin=once.out).err
