"""``info moses.ini``: what does not fit the ini itself or the files that it names."""

import bz2
import gzip
import json
from pathlib import Path

import pytest
from conftest import Run

ROW = "a ||| b ||| 0.5 0.5 0.5 0.5 ||| 0-0\n"
INI = """\
# made by hand
[mapping]
0 T 0
[feature]
UnknownWordPenalty
PhraseDictionaryMemory name=TM0 num-features=4 path={0}/table.gz tuneable-components=1,1,1,0
LexicalReordering name=LR0 num-features=6 type=wbe path={0}/lr
KENLM name=LM0 path={0}/lm order=3
[weight]
TM0= 1 1 1 1
LR0= 1 1 1 1 1 1
LM0= 1
LM0_sparse= 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.gz").write_bytes(gzip.compress(ROW.encode()))
    (tmp_path / "lr.minlexr").write_bytes(b"")
    (tmp_path / "lm").write_bytes(b"")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "table.binphr.idx").touch()
    (tmp_path / "bin" / "config").write_text("API_VERSION\t15\nnum_scores\t6\n")
    (tmp_path / "bin" / "Misc.dat").write_text("Version 7\nNumScores 4\n")
    return tmp_path


def test_an_ini_that_fits_its_files(run: Run, folder: Path) -> None:
    path = folder / "x"
    path.write_text(INI.format(folder))
    strict = run("info", path, "--strict")
    assert (strict.status, strict.err) == (0, "")
    lines = strict.out.decode().splitlines()
    for name, scores, file in (("TM0", "4 scores", "table.gz"), ("LR0", "6 scores", "lr"), ("LM0", "1 score", "lm")):
        assert any(line.startswith(f"  {name}: ") and line.endswith(f", {scores}, {folder}/{file}") for line in lines)
    found = json.loads(run("info", path, "--json").out)
    assert (found["kind"], found["problems"], len(found["features"])) == ("moses.ini", [], 4)
    assert found["features"][1]["path"] == f"{folder}/table.gz"
    assert run("info", path, "-m", folder).status == 2


def test_weights_are_no_moses_ini(run: Run, folder: Path) -> None:
    path = folder / "weights.ini"
    path.write_text("# by tune\n[weight]\nLM0= 0.5\nTM0= 1 2 3 4\n")
    said = run("info", path)
    lines = [line.split() for line in said.out.decode().splitlines()]
    assert json.loads(run("info", path, "--json").out)["kind"] == "weights"
    assert lines == [f"{path}: weights, as tune writes them; no moses.ini".split(), ["features", "2"]]


@pytest.mark.parametrize(("old", "new", "line", "problem"), [
    ("path={0}/table.gz", "path={0}/none", 6, "TM0: {0}/none does not exist"),
    ("4 path={0}/table.gz", "5 path=table.gz", 6, "TM0 has the relative path table.gz; mert-moses.pl starts "),
    ("path={0}/lm", "path={0}/table", 8, "LM0: {0}/table does not exist"),
    ("TM0= 1 1 1 1", "TM0= 1 1 1 1 1", 10, "TM0 has 5 weights but num-features=4 (line 6); "),
    ("TM0= 1 1 1 1\n", "", 6, "no weight of TM0 in [weight]; "),
    ("LR0= 1 1 1 1 1 1", "LR0= 1 1 1 1 1", 11, "LR0 has 5 weights but num-features=6 (line 7); "),
    ("LM0= 1", "LM0= 1 1", 12, "LM0 has 2 weights but num-features=1 (line 8); "),
    ("order=3", "order=3 oov-feature=1", 12, "LM0 has 1 weight but num-features=2 (line 8); "),
    ("KENLM name=LM0", "RDLM name=LM0 num-features=2", 12, "LM0 has 1 weight but num-features=2 (line 8); "),
    ("0 T 0", "0 T 1", 6, "no line of [mapping] uses TM0"),
    ("PhraseDictionaryM", "PhraseDictionaryGroup name=G members=TM0\nPhraseDictionaryM", 6, ""),
    ("Memory name=TM0 num-features=4 path={0}/table.gz", "OnDisk name=TM0 num-features=4 path={0}/bin", 6, ""),
    ("Memory name=TM0 num-features=4 path={0}/table.gz", "Binary name=TM0 num-features=4 path={0}/bin/table", 6, ""),
    ("PhraseDictionaryMemory name=TM0 num-features=4 path={0}/table.gz", "Mmsapt name=TM0 num-features=4 path={0}/c.", 6, ""),
    ("PhraseDictionaryMemory name=TM0 num-features=4 path={0}/table.gz", "ProbingPT name=TM0 num-features=4 path={0}/bin",
     6, "TM0 has num-features=4, but its table has 6 score columns; "),
])  # fmt: skip
def test_problems_of_an_ini(run: Run, folder: Path, old: str, new: str, line: int, problem: str) -> None:
    path = folder / "moses.ini"
    path.write_text(INI.replace(old, new).format(folder))
    result = run("info", path)
    problems = result.out.decode().partition("problems\n")[2].splitlines()
    assert result.status == 0
    if not problem:
        assert problems == []
        return
    assert any(found.startswith(f"  line {line}: {problem.format(folder)}") for found in problems), problems
    numbers = [int(found.split()[1].rstrip(":")) for found in problems]
    assert numbers == sorted(numbers)
    assert run("info", path, "--strict").err.endswith(f" problem{'s' * (len(problems) > 1)} (--strict)\n")


@pytest.mark.parametrize(("data", "problem"), [
    (gzip.compress(ROW.replace("0.5 0.5", "1").encode(), mtime=0), "TM0 has num-features=4, but its table has 2"),
    (bz2.compress(ROW.encode()), "/table.gz: is compressed, but not a gzip file named .gz; "),
    (b"", "/table.gz: does not begin like a phrase table; "),
])  # fmt: skip
def test_problems_of_its_table(run: Run, folder: Path, data: bytes, problem: str) -> None:
    path = folder / "moses.ini"
    path.write_text(INI.format(folder))
    (folder / "table.gz").write_bytes(data)
    result = run("info", path)
    assert result.status == 0
    assert problem in result.out.decode().partition("problems\n")[2]
