"""``moses-ini``: sections and features that matter to a table, and which columns are new."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import Run

from phrase_rescore.moses.columns import AddedColumn, format_sidecar

T = "PhraseDictionaryMemory name=TM0 num-features=4 path=old input-factor=0 output-factor=0"
U = T.replace("TM0", "TM1").replace("old", "./old")
ROWS = "a ||| b ||| 0.5 0.5 0.5 0.5 0.25 1 ||| 0-0\na ||| c ||| 0.5 0.5 0.5 0.5 0.25 2.718282 ||| 0-0\n"


def ini(feature: str = T, weights: str = "TM0= 1 2 3 4", mapping: str = "0 T 0", more: str = "") -> str:
    parts = [f"[input-factors]\n0\n[mapping]\n{mapping}" if mapping else "", "[feature]\nUnknownWordPenalty", feature]
    return "\n".join([*parts, f"[weight]\n{weights}", more, ""])


CHANGES = {  # an ini; its table gets a path and two columns, and the weights 1 2 3 4 two more
    "[feature-add]": ini("PhrasePenalty", more=f"[feature-add]\n{T}"),
    "[weight-add]": ini(weights="", more="[weight-add]\nTM0= 1 2 3 4"),
    "[weight-add], which counts for nothing": ini(weights="TM0= 0 0 0 0\nTM0= 1 2 3 4", more="[weight-add]\nTM0= 5 6 7 8"),
    "the second of two": ini(f"{U.replace('TM1', 'X')}\n{T}", "X= 5 6 7 8\nTM0= 1 2 3 4", "0 T 0\n1 T 1"),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "old").write_text(ROWS.replace(" 0.25 1 ", " ").replace(" 0.25 2.718282 ", " "))
    (tmp_path / "new").write_text(ROWS)
    describe(tmp_path / "new", 5, 6)
    return tmp_path / "new"


def describe(table: Path, *numbers: int) -> None:
    """Write the sidecar of a table with these new columns."""
    columns = [AddedColumn(number, "count" if number == 6 else "score", "exp", "m") for number in numbers]
    Path(f"{table}.columns.json").write_text(format_sidecar(columns))


def call(run: Run, table: Path, text: str, *options: object) -> tuple[int, str, str]:
    feature = ["--feature", "TM0"] if " name=TM0" in text else []
    result = run("moses-ini", "-", "--table", table, *feature, *options, stdin=text.encode())
    return result.status, result.out.decode(), result.err


@pytest.mark.parametrize("before", CHANGES.values(), ids=CHANGES)
def test_what_changes_together(run: Run, table: Path, before: str) -> None:
    expected = before.replace("features=4 path=old", f"features=6 path={table}").replace("1 2 3 4", "1 2 3 4 0.04 0")
    assert call(run, table, before, "-q")[:2] == (0, expected)


REFUSED = {  # an ini, what is found in a line of it
    "MultiModel": (
        ini(f"{T}\nPhraseDictionaryMultiModel name=M mode=interpolate components=TM0 num-features=4 lambda=1", mapping="0 T 1"),
        "M reads the scores of TM0",
    ),
    "MultiModelCounts": (
        ini(f"{T}\nPhraseDictionaryMultiModelCounts name=M components=X target-table=X,TM0 num-features=4", mapping="0 T 1"),
        "M reads the scores of TM0",
    ),
    "a group": (ini(f"{T}\nPhraseDictionaryGroup name=G members=X,TM0 num-features=4"), "G reads the scores of TM0"),
    "a classifier": (ini(f"{T}\nVWFeatureTargetPhraseScores name=V use=X,TM0"), "V reads the scores of TM0"),
    "a classifier of all": (ini(f"{T}\nVWFeatureTargetPhraseScores name=V"), "V reads the scores of TM0"),
    "leave one out": (ini(f"{T}\nVW name=V path=v leave-one-out-from=TM0"), "V reads the scores of TM0"),
    "not used": (ini(f"{T}\n{U}", "TM0= 1 1 1 1\nTM1= 1 1 1 1", "0 T 1"), "no line of [mapping] uses TM0"),
    "used to generate": (ini(mapping="0 G 0"), "no line of [mapping] uses TM0"),
    **{section: (ini(more=f"{section}\nLM0= 1"), f"{section} in place of other sections") for section in (
        "[weight-overwrite]", "[feature-overwrite]", "[feature-name-overwrite]", "[alternate-weight-setting]")},
}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(run: Run, table: Path, text: str, found: str) -> None:
    status, out, err = call(run, table, text)
    assert (status, out) == (1, "")
    assert re.match(r"phrase-rescore: error: <stdin>:\d+: " + re.escape(found), err), err


@pytest.mark.parametrize("feature", ["VWFeatureTargetPhraseScores name=V use=X", "PhraseDictionaryGroup name=G members=X"])
def test_what_reads_other_tables_does_no_harm(run: Run, table: Path, feature: str) -> None:
    assert call(run, table, ini(f"{T}\n{feature}"))[0] == 0


def test_what_is_not_tuneable_is_told(run: Run, table: Path) -> None:
    status, _, err = call(run, table, ini(f"{T} tuneable=false"))
    assert status == 0
    assert "warning: <stdin>: TM0 has tuneable=false: " in err
    assert "--range" not in err


def test_without_a_sidecar_the_last_columns_are_new_as_asked_for(run: Run, table: Path) -> None:
    """Whatever they look like: a penalty, two counts."""
    Path(f"{table}.columns.json").unlink()
    status, out, err = call(run, table, ini())
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"error: {table}: no {table}.columns.json" in err
    assert "--columns K" in err
    expected = call(run, table, ini(), "--columns", 2)[1]
    assert "num-features=6" in expected
    assert "TM0= 1 2 3 4 0.04 0" in expected
    assert call(run, table, expected, "--columns", 2)[:2] == (0, expected), "nothing is new any more"
    for wrong in (1, 3):
        status, out, err = call(run, table, ini(), "--columns", wrong)
        assert (status, out) == (1, "")
        assert f"--columns {wrong}, but TM0 has num-features=4; give --columns 2 if" in err
    assert call(run, table, ini(T.replace("=4", "=5"), "TM0= 1 1 1 1 1"), "--columns", 2)[:2] == (1, ""), "one is"
    status, out, err = call(run, table, ini(), "--columns", 6)
    assert (status, out) == (2, "")
    assert "--columns 6 would leave none" in err


def test_the_sidecar_says_which_columns_are_new(run: Run, table: Path) -> None:
    describe(table, 6)
    for options, status in (((), 1), (("--columns", 2), 2)):
        found = call(run, table, ini(), *options)
        assert found[:2] == (status, "")
        assert f"column 5 is not one that {table}.columns.json names" in found[2]
    describe(table, 5, 6)
    assert call(run, table, ini()) == call(run, table, ini(), "--columns", 2)
    five = ini(T.replace("=4", "=5"), "TM0= 1 1 1 1 1")
    assert ": column 5 is a model's, as column 6, but TM0 has num-features=5; " in call(run, table, five)[2]


def test_relative_paths_become_absolute(run: Run, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table.parent)
    for options, path in (([], "new"), (["--path", "x/y"], "x/y")):
        assert f" path={table.parent}/{path} " in call(run, Path("new"), ini(), *options)[1]


@pytest.mark.moses
@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGES)
def test_the_decoder_takes_what_changed(run: Run, decoder: Path, table: Path, kind: str) -> None:
    """With weights of zero its totals are the old ones."""
    before, after = table.with_name("before.ini"), table.with_name("after.ini")
    before.write_text(CHANGES[kind])
    assert run("moses-ini", before, "--table", table, "--feature", "TM0", "--weights", "zero", "-o", after, "-q").status == 0
    totals = []
    for text in (before, after):
        command = [decoder, "-f", text, "-n-best-list", "nbest", "9", "-v", "0"]
        subprocess.run(command, cwd=table.parent, input=b"a\n", capture_output=True, check=True)
        totals.append([line.split(b"|||")[3] for line in (table.parent / "nbest").read_bytes().splitlines()])
    assert totals[0] == totals[1]
    assert totals[0]
