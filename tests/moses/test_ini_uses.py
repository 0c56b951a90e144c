"""``moses-ini`` and all that knows a table's number of scores, its weights or its file beside its own line."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import Run

from phrase_rescore.moses.sidecar import AddedColumn, format_sidecar

T = "PhraseDictionaryMemory name=TM0 num-features=4 path=old input-factor=0 output-factor=0"
U = T.replace("TM0", "TM1").replace("old", "./old")
ONES = "TM0= 1 1 1 1\nTM1= 1 1 1 1"
ROWS = "a ||| b ||| 0.5 0.5 0.5 0.5 0.25 1 ||| 0-0\na ||| c ||| 0.5 0.5 0.5 0.5 0.25 2.718282 ||| 0-0\n"


def ini(feature: str = T, weights: str = "TM0= 1 2 3 4", mapping: str = "0 T 0", more: str = "") -> str:
    parts = [f"[input-factors]\n0\n[mapping]\n{mapping}" if mapping else "", "[feature]\nUnknownWordPenalty", feature]
    return "\n".join([*parts, f"[weight]\n{weights}", more, ""])


def group(words: str, name: str = "G") -> str:
    return f"PhraseDictionaryGroup name={name} {words}"


NEW = {"features=4 path=old": "features=6 path=NEW"}  # of the table's own line
CHANGES = {  # kind: an ini, and what becomes of its parts
    "group": (
        ini(f"{T} tuneable=false\n{U}\n{group('members=TM1,TM0 num-features=8')}",
            "TM0= 0 0 1 0\nTM1= 0 0 1 0\nG= 1 2 3 4 5 6 7 8", "0 T 2"),
        {"members=TM1,TM0 num-features=8": "members=TM1,TM0 num-features=10", "TM0= 0 0 1 0": "TM0= 0 0 1 0 0 0",
         "G= 1 2 3 4 5 6 7 8": "G= 1 2 3 4 5 6 7 8 0.04 0"},
    ),
    "group with counts, defaults and components": (
        ini(f"{T}\n{U}\n" + group(
            "members=TM0,TM1 num-features=15 phrase-counts=true word-counts=y model-bitmap-counts=1 "
            "default-scores=-1,-2,-3,-4,0,0,0,0,0,0,0,0,0,0,0 tuneable-components=1,1,1,1,0,0,0,0,1,1,1,1,1,1,1"),
            f"{ONES}\nG= 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", "0 T 2"),
        {"num-features=15": "num-features=17", "-1,-2,-3,-4,": "-1,-2,-3,-4,-3,0,", "=1,1,1,1,0": "=1,1,1,1,1,1,0",
         "TM0= 1 1 1 1": "TM0= 1 1 1 1 0 0", "G= 1 2 3 4": "G= 1 2 3 4 0.04 0"},
    ),
    "a member twice, and in [mapping] itself": (
        ini(f"{T}\n{group('members=TM0,TM0 num-features=8')}", "TM0= 1 2 3 4\nG= 1 2 3 4 5 6 7 8", "0 T 0\n1 T 1"),
        {"members=TM0,TM0 num-features=8": "members=TM0,TM0 num-features=12", "TM0= 1 2 3 4": "TM0= 1 2 3 4 0.04 0",
         "G= 1 2 3 4 5 6 7 8": "G= 1 2 3 4 0.04 0 5 6 7 8 0.04 0"},
    ),
    "[feature-overwrite]": (
        ini(T.replace("path=old", "path=nowhere"), more="[feature-overwrite]\nTM0 path=old tuneable-components=1,0,1,1"),
        {"features=4 path=nowhere": "features=6 path=nowhere",
         "path=old tuneable-components=1,0,1,1": "path=NEW tuneable-components=1,0,1,1,1,1",
         "TM0= 1 2 3 4": "TM0= 1 2 3 4 0.04 0"},
    ),
    "[feature-overwrite] of a group": (
        ini(f"{T}\n{U}\n{group('members=TM1 num-features=8')}", f"{ONES}\nG= 1 2 3 4 5 6 7 8", "0 T 2",
            "[feature-overwrite]\nG members=TM1,TM0 default-scores=1,2,3,4,5,6,7,8"),
        {"members=TM1 num-features=8": "members=TM1 num-features=10", "TM0= 1 1 1 1": "TM0= 1 1 1 1 0 0",
         "7 8": "7 8 0.04 0", "7,8": "7,8,7,0"},
    ),
    "[feature-add]": (
        ini("PhrasePenalty", more=f"[feature-add]\n{T}"), {"TM0= 1 2 3 4": "TM0= 1 2 3 4 0.04 0"},
    ),
    "[weight-add]": (
        ini(weights="", more="[weight-add]\nTM0= 1 2 3 4"), {"TM0= 1 2 3 4": "TM0= 1 2 3 4 0.04 0"},
    ),
    "[weight-add], which counts for nothing": (
        ini(weights="TM0= 0 0 0 0\nTM0= 1 2 3 4", more="[weight-add]\nTM0= 5 6 7 8"),
        {"TM0= 1 2 3 4": "TM0= 1 2 3 4 0.04 0"},
    ),
    "[alternate-weight-setting]": (
        ini(more="[alternate-weight-setting]\nid=A\nTM0= 5 6 7 8\nid=B ignore-ff=TM0\nTM0= 0 0 0 0"),
        {"4\n\n": "4 0.04 0\n\n", "4\n[": "4 0.04 0\n[", "5 6 7 8": "5 6 7 8 0.04 0",
         "0 0 0 0": "0 0 0 0 0.04 0"},
    ),
    "[feature-name-overwrite]": (
        ini(T.replace(" name=TM0", ""), "PhraseDictionaryScope30= 1 2 3 4", "",
            "[feature-name-overwrite]\nPhraseDictionaryMemory PhraseDictionaryScope3"),
        {"= 1 2 3 4": "= 1 2 3 4 0.04 0"},
    ),
    "a syntactic search": (
        ini(T.replace(" name=TM0", ""), "RuleTable0= 1 2 3 4", "", "[search-algorithm]\n6"),
        {"= 1 2 3 4": "= 1 2 3 4 0.04 0"},
    ),
}  # fmt: skip


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


@pytest.mark.parametrize(("before", "changes"), CHANGES.values(), ids=CHANGES)
def test_what_changes_together(run: Run, table: Path, before: str, changes: dict[str, str]) -> None:
    expected = before
    for old, new in (NEW | changes).items():
        expected = expected.replace(old, new)
    assert call(run, table, before, "-q")[:2] == (0, expected.replace("NEW", str(table)))


REFUSED = {
    "MultiModel": (
        ini(f"{T}\nPhraseDictionaryMultiModel name=M mode=interpolate components=TM0 num-features=4 lambda=1", mapping="0 T 1"),
        "M reads only the first scores of TM0: new columns would have no effect",
    ),
    "MultiModelCounts": (
        ini(f"{T}\nPhraseDictionaryMultiModelCounts name=M components=X target-table=X,TM0 num-features=4", mapping="0 T 1"),
        "M reads only the first scores of TM0: new columns would have no effect",
    ),
    "a group in a MultiModel": (
        ini(f"{T}\n{group('members=TM0 num-features=4')}\nPhraseDictionaryMultiModel name=M components=G num-features=4"),
        "M reads only the first scores of G: new columns would have no effect",
    ),
    "a classifier": (ini(f"{T}\nVWFeatureTargetPhraseScores name=V use=X,TM0"), "V gives the scores of TM0 to a classifier"),
    "a classifier of all": (ini(f"{T}\nVWFeatureTargetPhraseScores name=V"), "V gives the scores of TM0 to a classifier"),
    "leave one out": (ini(f"{T}\nVW name=V path=v leave-one-out-from=TM0"), "V stops unless TM0 has 4 scores"),
    "a group of groups": (
        ini(f"{T}\n{group('members=TM0 num-features=4')}\n{group('members=G num-features=4', 'H')}"), "G is a member of H",
    ),
    "averages": (
        ini(f"{T}\n{U}\n{group('members=TM0,TM1 num-features=8 default-average-others=true')}", f"{ONES}\nG= 1 1 1 1 1 1 1 1"),
        "G has default-average-others: all its members must have as many scores as TM0 would have",
    ),
    "a group's number of scores": (
        ini(f"{T}\n{group('members=TM0 num-features=8')}", f"{ONES}\nG= 1 1 1 1 1 1 1 1"),
        "num-features=8 of G, whose members have 4 scores with its own counts",
    ),
    "a group's number of weights": (
        ini(f"{T}\n{group('members=TM0 num-features=4')}", f"{ONES}\nG= 1"), "G has 1 weight but num-features=4",
    ),
    "a group's defaults": (
        ini(f"{T}\n{group('members=TM0 num-features=4 default-scores=1,2')}", f"{ONES}\nG= 1 1 1 1"),
        "2 values in default-scores of G, which has 4 scores",
    ),
    "no such member": (ini(f"{T}\n{group('members=TM0,X num-features=8')}"), "G has no member X"),
    "not used": (ini(f"{T}\n{U}", ONES, "0 T 1"), "no line of [mapping] uses TM0"),
    "[weight-overwrite]": (
        ini(more="[weight-overwrite]\nLM0= 1 TM0= 1 2 3 4"), "weights of TM0 in [weight-overwrite]; move them into [weight]",
    ),
    "[feature-overwrite]": (
        ini(more="[feature-overwrite]\nTM0 num-features=6"), "num-features= in [feature-overwrite]; Moses stops there",
    ),
    "[alternate-weight-setting]": (
        ini(more="[alternate-weight-setting]\nid=A\nTM0= 1 2 3"), "TM0 has 3 weights but num-features=4",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "found"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(run: Run, table: Path, text: str, found: str) -> None:
    status, out, err = call(run, table, text)
    assert (status, out) == (1, "")
    assert re.match(r"phrase-rescore: error: <stdin>:\d+: " + re.escape(found), err), err


@pytest.mark.parametrize("where", ["line", "[feature-overwrite]", "group"])
def test_what_is_not_tuneable_is_told(run: Run, table: Path, where: str) -> None:
    member = ini(f"{T}\n{group('members=TM0 num-features=4 tuneable=false')}", "TM0= 1 1 1 1\nG= 1 1 1 1", "0 T 1")
    text = {"line": ini(f"{T} tuneable=false"), "group": member}.get(where, ini(more="[feature-overwrite]\nTM0 tuneable=false"))
    status, _, err = call(run, table, text)
    assert status == 0
    name = "G" if where == "group" else "TM0"
    assert f"warning: <stdin>: {name} has tuneable=false: tuning will not move the new weights; " in err
    assert "--range" not in err


@pytest.mark.parametrize(("feature", "value", "told"), [(T, "exclusive", 1), (f"{U}\n{T}", "inclusive", 0), (T, "ignore", 0)])
def test_marked_translations_are_scored_otherwise(run: Run, table: Path, feature: str, value: str, told: int) -> None:
    err = call(run, table, ini(feature, mapping="", more=f"[xml-input]\n{value}"), "-q")[2]
    assert err.count("warning: <stdin>: [xml-input]: the probabilities of marked translations weigh differently") == told


def test_ranges_are_those_of_the_group(run: Run, table: Path) -> None:
    err = call(run, table, CHANGES["group with counts, defaults and components"][0])[2]
    assert "--range=G:0..1,0..1,0..1,0..1,0..1,-1..1,0..1,0..1,0..1,0..1,0..1,0..1,0..1 (" in err


def test_a_table_without_new_columns_is_refused(run: Run, table: Path) -> None:
    old = table.with_name("old")
    status, out, err = call(run, old, ini())
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"error: {old}: no {old}.columns.json" in err
    assert "--columns K" in err


def test_without_a_sidecar_the_last_columns_are_new_as_asked_for(run: Run, table: Path) -> None:
    """Whatever they look like: a penalty, two counts."""
    Path(f"{table}.columns.json").unlink()
    assert call(run, table, ini())[:2] == (1, "")
    expected = call(run, table, ini(), "--columns", 2)[1]
    assert "num-features=6" in expected
    assert "TM0= 1 2 3 4 0.04 0" in expected
    assert call(run, table, expected, "--columns", 2)[:2] == (0, expected), "nothing is new any more"
    for wrong in (1, 3):
        status, out, err = call(run, table, ini(), "--columns", wrong)
        assert (status, out) == (1, "")
        assert f"--columns {wrong}, but TM0 has num-features=4; give --columns 2 if" in err
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
        assert f" path={path} " in call(run, Path("new"), ini(), *options, "--keep-relative")[1]


@pytest.mark.moses
@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in CHANGES if kind not in ("[feature-name-overwrite]", "a syntactic search")])
def test_the_decoder_takes_what_changed(run: Run, decoder: Path, table: Path, kind: str) -> None:
    """With weights of zero its totals are the old ones."""
    before, after = table.with_name("before.ini"), table.with_name("after.ini")
    before.write_text(CHANGES[kind][0])
    assert run("moses-ini", before, "--table", table, "--feature", "TM0", "--weights", "zero", "-o", after, "-q").status == 0
    totals = []
    for text in (before, after):
        command = [decoder, "-f", text, "-n-best-list", "nbest", "9", "-v", "0"]
        subprocess.run(command, cwd=table.parent, input=b"a\n", capture_output=True, check=True)
        totals.append([line.split(b"|||")[3] for line in (table.parent / "nbest").read_bytes().splitlines()])
    assert totals[0] == totals[1]
    assert totals[0]
