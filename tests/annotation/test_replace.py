"""``annotate --replace`` and ``strip`` remove scores: never a table's own unasked, and as many from every row."""

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


OWN_SCORES = "would remove scores of the table's own: leave it out, or add --replace-any"


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("more", [b"", b" 2.718", b" 0.5 2.718", b" 0.3 0.4 0.5 -0.5 3.5"])
def test_scores_that_annotate_never_wrote_are_not_replaced(
    run: Run, model_dir: str, tmp_path: Path, k: int, more: bytes
) -> None:
    table = tmp_path / "plain"
    table.write_bytes(b"".join(b"the ||| das ||| 0.%d 0.25 1 0.0%d%b ||| 0-0\n" % (i, i, more) for i in range(1, 6)))
    result = run("annotate", table, "-m", model_dir, "-o", tmp_path / "out", "--replace", k)
    what = "its last column does" if k == 1 else f"its last {k} columns do"
    said = f"{table}: {what} not look like what annotate writes; --replace {k} {OWN_SCORES}"
    assert result == (2, b"", f"phrase-rescore: error: {said}\n")
    assert list(tmp_path.iterdir()) == [table]
    assert run("annotate", table, "-m", model_dir, "-o", tmp_path / "out", "--replace", k, "--replace-any").status == 0


@pytest.mark.parametrize("scale", ["exp", "log"])
@pytest.mark.parametrize(("features", "models"), [("score,count", 1), ("score,count", 2), ("score", 1), ("count", 1)])
def test_columns_that_annotate_wrote_are_replaced(
    run: Run, make_model: MakeModel, table: Path, tmp_path: Path, scale: str, features: str, models: int
) -> None:
    """Columns are recognized by the sidecar, or by their looks where there is none."""
    to = ["--scale", scale, "--features", features, *(word for _ in range(models) for word in ("-m", make_model()))]
    once = tmp_path / "once"
    assert run("annotate", table, "-o", once, *to).status == 0
    k = models * len(features.split(","))
    for _ in range(2):
        result = run("annotate", once, *to, "--replace", k)
        assert (result.status, result.out) == (0, once.read_bytes()), result.err
        (tmp_path / "once.columns.json").unlink(missing_ok=True)


def test_the_sidecar_says_what_may_be_replaced(run: Run, model_dir: str, table: Path, tmp_path: Path) -> None:
    once = tmp_path / "once"
    assert run("annotate", table, "-m", model_dir, "-o", once).status == 0
    said = f"{once}: column 4 is not one that {once}.columns.json names; --replace 3 {OWN_SCORES}"
    result = run("annotate", once, "-m", model_dir, "-o", tmp_path / "out", "--replace", 3)
    assert result == (2, b"", f"phrase-rescore: error: {said}\n")


@pytest.mark.parametrize("first", [b"0.5 0.25 1 0.1", b"1 1 0.5 0.25 1 0.1"])
@pytest.mark.parametrize("at", [2, 3000])
def test_strip_counts_the_scores_of_every_row(run: Run, tmp_path: Path, first: bytes, at: int) -> None:
    """A row that lacks the columns would lose two of its own scores."""
    row = b"the ||| das ||| %b ||| 0-0\n"
    rows = [row % first] * 4000
    rows[at - 1] = row % b"1 1 0.5 0.25 1"
    n = len(first.split())
    said = f":{at}: 5 scores where the first row has {n}; Moses needs the same number on every row\n"
    (tmp_path / "table").write_bytes(b"".join(rows))
    result = run("strip", tmp_path / "table", "--columns", 2, "--force", "-o", tmp_path / "out")
    assert result == (1, b"", f"phrase-rescore: error: {tmp_path}/table{said}")
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("models", [1, 2])
def test_strip_knows_the_columns_of_annotate(
    run: Run, make_model: MakeModel, table: Path, tmp_path: Path, models: int, sidecar: bool
) -> None:
    once, back = tmp_path / "once", tmp_path / "back"
    assert run("annotate", table, "-o", once, *(word for _ in range(models) for word in ("-m", make_model()))).status == 0
    if not sidecar:
        (tmp_path / "once.columns.json").unlink()
    result = run("strip", once, "-o", back)
    names = "5 (p(t|s)), 6 (unknown)" if models == 1 else "5 (p(t|s) 5), 6 (unknown 6), 7 (p(t|s) 7), 8 (unknown 8)"
    assert (result.status, result.err) == (0, f"phrase-rescore: 2 rows without columns {names}\nphrase-rescore: wrote {back}\n")
    assert back.read_bytes() == ROWS
    refused = run("annotate", once, "-m", make_model(), "-o", tmp_path / "twice")
    which, by = ("5 and 6", "5 to 8")[models - 1], f"by {once}.columns.json" if sidecar else "by their looks"
    assert f"{once} is annotated already: columns {which}, {by}; to renew them add --replace {2 * models}," in refused.err


@pytest.mark.parametrize(
    ("to", "found"),
    [((), "nothing says that annotate wrote its last columns; to remove the last K anyway add --columns K --force"),
     (("--columns", 1), "its last column does not look like what annotate writes; --columns 1 would remove scores of the "
      "table's own: leave it out, or add --force")],
)  # fmt: skip
@pytest.mark.parametrize("scores", [b"0.5 0.25 1 0.5", b"0.5 0.25 1 0.5 2.718", b"0.5 0.25 1 0.5 2.718281828", b"1 1 1 1"])
def test_strip_takes_no_score_of_the_table_unasked(
    run: Run, tmp_path: Path, scores: bytes, to: tuple[object, ...], found: str
) -> None:
    """Nor does annotate refuse such a table: a penalty of e is not a count."""
    table, out = tmp_path / "table", tmp_path / "out"
    table.write_bytes(b"the ||| das ||| %b ||| 0-0\n" % scores * 3)
    if not (to and scores.endswith(b"828")):  # a count that is asked for may be so
        assert run("strip", table, *to, "-o", out) == (2, b"", f"phrase-rescore: error: {table}: {found}\n")
    forced = run("strip", table, "--columns", 1, "--force", "-o", out)
    assert (forced.status, out.read_bytes().count(b" %b |||" % scores.rsplit(None, 1)[0])) == (0, 3)
