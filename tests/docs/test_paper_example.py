"""examples/paper: its parts by hand-worked cases, its pages from the counts in the repository, and with a decoder the whole."""

import gzip
import importlib
import json
import math
import os
import random
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from sacrebleu.metrics.bleu import BLEU

PAPER = ROOT / "examples" / "paper"
CONFIGURATIONS = sorted(path.stem for path in PAPER.glob("*.conf") if path.stem != "systems")
RESULTS = sorted(PAPER.glob("results/*.tar.xz"))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PAPER)


def script(name: str, *args: object, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, PAPER / f"{name}.py", *map(str, args)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=cwd)


def run_sh(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("MOSES_BIN", "MOSES_SCRIPTS", "FAST_ALIGN")}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    command = [PAPER / "run.sh", *map(str, args)]
    return subprocess.run(command, env={**inherited, "PATH": path, **env}, capture_output=True, text=True, check=False)


def written(path: Path, *lines: str) -> Path:
    """Write lines to a file, compressed if its name says so."""
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize(("config", "env", "status", "named"), [
    ("smoke", {}, 2, "MOSES_BIN"), ("smoke", {"MOSES_BIN": "/nowhere"}, 2, "FAST_ALIGN"), ("no", {}, 2, "no.conf"),
])  # fmt: skip
def test_what_is_missing_is_named_at_once(config: str, env: dict[str, str], status: int, named: str) -> None:
    done = run_sh(PAPER / f"{config}.conf", **env)
    assert (done.returncode, done.stdout) == (status, "")
    assert named in done.stderr
    assert "bible-es-en.conf" in run_sh().stderr


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_leads_to_a_page(name: str, tmp_path: Path) -> None:
    """Make knows a rule for every file on the way: a misspelt system or table ends here."""
    command = ["make", "-n", "-r", "-f", PAPER / "experiment.mk", f"CONFIG={PAPER / name}.conf", f"WORK={tmp_path}"]
    env = {**os.environ, "MOSES_BIN": "/moses/bin", "MOSES_SCRIPTS": "/moses/scripts", "FAST_ALIGN": "/fast_align"}
    done = subprocess.run([*command, f"RESULTS={tmp_path}/results"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "page.py" in done.stdout


INI = """\
[feature]
LM0= 7
[weight]
UnknownWordPenalty0= 1
LM0= 0.5
TranslationModel0= 0.2 -0.2{}
[threads]
2
"""


def test_starts_differ_by_seed_and_agree_between_systems() -> None:
    inputs = (1, ""), (2, ""), (1, ""), (1, " 0.04 0")
    one, two, same, wider = (script("disturb", seed, stdin=INI.format(more)).stdout for seed, more in inputs)
    assert one == same != two
    assert wider.startswith(one.partition("\n[threads]")[0])  # what they share starts from the same place
    assert wider.split("TranslationModel0= ")[1].split()[3] == "0"
    for text in (one, two):
        assert text.startswith(INI.partition("LM0= 0.5")[0])
        assert text.endswith("[threads]\n2\n")


def test_weights_are_multiplied_by_a_log_normal_of_deviation_035() -> None:
    line = "X0= " + " ".join(["-2"] * 4000)
    logs = [math.log(float(word) / -2) for word in importlib.import_module("disturb").disturbed(line, "1").split()[1:]]
    assert abs(sum(logs) / 4000) < 0.02
    assert abs(math.sqrt(sum(x * x for x in logs) / 4000) - 0.35) < 0.012


@pytest.mark.parametrize(("column", "numbers"), [
    ("mass", [0.75, 0.75, 0.75, 0.1]), ("posterior", [0.5 / 0.75, 0.125 / 0.75, 0.125 / 0.75, 1]),
    # Σ c(t) = 6 + 2 + 2, each target once
    ("pmi", [0.5 / 0.6, 0.125 / 0.2, 0.125 / 0.2, 0.1 / 0.2]),
    ("per-word", [0.5 ** (1 / 2), 0.125 ** (1 / 3), 0.125 ** (1 / 2), 0.1 ** (1 / 2)]),
    # two pairs seen once, one seen twice: D = 2 / (2 + 2 · 1) = 0.5; "a" has three targets
    ("discounted", [(3 - 0.5 + 1.5 * 2 / 3) / 6, (1 - 0.5 + 1.5 / 6) / 6, (2 - 0.5 + 1.5 / 6) / 6, (1 - 0.5 + 0.5) / 1]),
    ("no", []),
])  # fmt: skip
def test_columns_that_are_derived_from_the_score(column: str, numbers: list[float], tmp_path: Path) -> None:
    table = written(
        tmp_path / "table.gz", "a ||| x ||| 0.5 0.5 ||| 0-0 ||| 6 6 3 ||| |||",
        "a ||| y z ||| 0.5 0.125 ||| 0-0 ||| 2 6 1 ||| |||", "a ||| w ||| 0.5 0.125 ||| 0-0 ||| 2 6 2 ||| |||",
        "b c ||| w ||| 0.5 0.1 ||| 0-0 ||| 2 1 1 ||| |||",
    )  # fmt: skip
    done = script("derived", column, table)
    assert [float(line) for line in done.stdout.splitlines()] == pytest.approx(numbers, rel=1e-6)
    assert ("usage: derived.py COLUMN TABLE" in done.stderr) == (done.returncode == 1) == (not numbers)


def test_the_oracle_counts_for_the_corpus_and_not_for_each_segment(tmp_path: Path) -> None:
    """The short output is the better one by itself; with the others' brevity penalty the long one is."""
    ref = written(tmp_path / "ref", *["a b c d e f g h"] * 2)
    nbest = written(tmp_path / "nbest", "0 ||| a b c d |||", "1 ||| a b c d |||", "1 ||| a b c d x y z w v u t s |||")
    found = importlib.import_module("headroom").oracle(str(nbest), str(ref))
    # lengths 4 + 4 of 16: brevity exp(1 - 16/8); 4 + 12 of 16: none, with 8/16, 6/14, 4/12 and 2/10 right
    short, long = 100 * math.exp(-1), 100 * (8 / 16 * 6 / 14 * 4 / 12 * 2 / 10) ** 0.25
    assert found["first"] == pytest.approx(short)
    assert found["oracle"] == pytest.approx(max(short, long))
    assert (found["lists"], found["hypotheses"]) == (2, 3)


def test_tokens_are_shared_out_by_phrases(tmp_path: Path) -> None:
    src = written(tmp_path / "src", "a b c d e zz")
    seg = written(tmp_path / "seg", "A B |0-3| zz |5-5| E |4-4|")
    rows = "a b c d ||| A B ||| 1 ||| 0-0 ||| 3 2 2", "e ||| E ||| 1 ||| 0-0 ||| 1 5 1", "e ||| F ||| 1 ||| ||| 9 5 4"
    found = importlib.import_module("headroom").coverage(str(seg), str(src), str(written(tmp_path / "table", *rows)))
    assert found == {"tokens": 6, "long phrases": 4 / 6, "seen once": 1 / 6, "unknown": 1 / 6}


@pytest.mark.parametrize(
    ("what", "numbers"),  # of the sets alone; with those of the table, c(s) and c(s,t)
    [("column", [2 / 3, 1e-3, 1e-3]), ("recount", [(2 + 3) / (3 + 5), 2 / (3 + 5), 1 / 2])],
)
def test_relative_frequencies_of_other_text(what: str, numbers: list[float], tmp_path: Path) -> None:
    extract = written(tmp_path / "extract", *["a ||| x ||| 0-0"] * 2, "a ||| y ||| 0-0", "b ||| z ||| 0-0")
    rows = "a ||| x ||| 1 ||| 0-0 ||| 9 5 3 ||| |||", "a ||| z ||| 1 ||| 0-0 ||| 2 5 2", "c ||| x ||| 1 ||| 0-0 ||| 9 2 1"
    done = script("headroom", what, extract, written(tmp_path / "table", *rows))
    assert [float(line) for line in done.stdout.splitlines()] == pytest.approx(numbers, rel=1e-6)


def half_with_lists(folder: Path, seed: int) -> Path:
    """Twelve segments of two words; a list has the reference and a worse entry, which the n-gram model likes as often."""
    rng = random.Random(seed)
    lists, tables = list[str](), {"baseline": list[str](), "knows": list[str]()}
    for i in range(12):
        good, bad = f"the {i} th right one", f"a {i} th wrong one"
        first, second = (good, bad) if rng.random() < 0.5 else (bad, good)
        lists += [
            f"{i} ||| {tgt} xx  ||| Distortion0= 0 LM0= {lm} TranslationModel0= -9 ||| -1 ||| 0=0-4 1=5 "
            for tgt, lm in ((first, -1.0), (second, -1.1))
        ]
        for name, of_bad in (("baseline", 0.5), ("knows", 0.1)):
            tables[name] += [f"s{i} ||| {tgt} ||| 0.5 {score} ||| 0-0 ||| 1 1 1" for tgt, score in ((bad, of_bad), (good, 0.5))]
    for name in ("corpus", *(f"systems/{name}" for name in tables)):
        (folder / name).mkdir(parents=True)
    written(folder / "corpus/dev.es", *(f"s{i} xx" for i in range(12)))
    written(folder / "corpus/dev.en", *(f"the {i} th right one xx" for i in range(12)))
    written(folder / "lists.gz", *lists)
    for name, rows in tables.items():
        written(folder / f"systems/{name}/phrase-table.gz", *rows)
    return folder


@pytest.mark.slow
def test_a_column_that_knows_is_worth_what_is_right(tmp_path: Path) -> None:
    halves = [half_with_lists(tmp_path / str(seed), seed) for seed in (0, 1)]
    ini = written(tmp_path / "weights.ini", "[weight]", "Distortion0= 0.1", "LM0= 0.2", "TranslationModel0= 0.3")
    done = script("columns", ini, "es", "en", *halves, "baseline", "knows")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["segments"], found["entries"]) == (24, 48)
    knows, baseline = found["systems"]["knows"], found["systems"]["baseline"]
    assert knows["bleu"] == pytest.approx(100)
    assert baseline["bleu"] < 90
    assert (baseline["gain"], baseline["p"]) == (0.0, 1.0)
    assert knows["gain"] == pytest.approx(100 - baseline["bleu"])
    assert knows["p"] < 0.05
    weights = knows["weights"]
    assert weights["TranslationModel0.1"] > max(abs(weights["LM0.0"]), abs(weights["TranslationModel0.0"]))
    ini.unlink()
    done = script("columns", ini, "es", "en", *halves, "baseline", "knows")
    assert (done.returncode, done.stderr) == (1, f"columns.py: {ini}: No such file or directory; check the path\n")


def test_bleu_of_sums_is_that_of_sacrebleu() -> None:
    hypotheses = ["the house is very small now", "a man he saw"]
    references = ["the house is very small .", "he saw a man in it"]
    bleu = BLEU(tokenize="none", force=True).corpus_score(hypotheses, [references])
    counts = torch.tensor([bleu.sys_len, bleu.ref_len, *bleu.counts, *bleu.totals], dtype=torch.float64)
    assert float(importlib.import_module("columns").expected_bleu(counts)) == pytest.approx(bleu.score, abs=1e-6)


SOME = ("bible-es-en.5", "kit-en-fr.table1")  # the others take minutes


def name_of(results: Path) -> str:
    return results.name.removesuffix(".tar.xz")


@pytest.mark.slow
@pytest.mark.parametrize(
    "results",
    [pytest.param(path, id=name_of(path), marks=() if name_of(path) in SOME else pytest.mark.whole) for path in RESULTS],
)
def test_pages_are_made_again_from_the_counts_in_the_repository(results: Path, warm_path: str) -> None:
    command = ["python", PAPER / "page.py", results]
    made = subprocess.run(command, env={**os.environ, "PATH": warm_path}, capture_output=True, text=True, check=True).stdout
    assert made == results.with_name(f"{name_of(results)}.md").read_text("utf-8")


@pytest.mark.parametrize("results", RESULTS, ids=name_of)
def test_results_hold_no_text_and_no_paths(results: Path) -> None:
    with tarfile.open(results) as archive:
        names, record = archive.getnames(), archive.extractfile("experiment.json").read().decode()  # type: ignore[union-attr]
    within = r'"(TRAIN|DEV|TEST)": "[\w-]+/[\w-]+"|column=(headroom|columns)/[a-z-]+\.gz'
    assert "/" not in re.sub(within, "", record)
    runs = [f"{system}.{run}" for system, of_system in json.loads(record)["runs"].items() for run in of_system]
    assert sorted(names) == sorted(["experiment.json", *(f"{run}.{name}" for run in runs for name in ("dev", "test"))])


@pytest.fixture
def programs() -> dict[str, str]:
    missing = [name for name in ("MOSES_BIN", "FAST_ALIGN") if name not in os.environ]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}")
    if not (ROOT.parent / "shared" / "data" / "bible-es-en").is_dir():
        pytest.skip("needs the bitext of Bible verses")
    return {name: os.environ[name] for name in ("MOSES_BIN", "FAST_ALIGN")}


@pytest.mark.moses
@pytest.mark.slow
def test_from_two_text_files_to_the_table(programs: dict[str, str], tmp_path: Path) -> None:
    """The smoke experiment; a second run makes nothing."""
    done = run_sh(PAPER / "smoke.conf", f"WORK={tmp_path}", **programs)
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(f"| {system} " in done.stdout for system in ("rnn+wp", "cslm-n-best"))
    assert re.search(r"## Columns in lists.*\| rnn\+wp \| \d+\.\d\d \| [+-]\d", done.stdout, re.DOTALL)
    (weights,) = (line.split("|")[2:-1] for line in done.stdout.splitlines() if line.startswith("| CSLM |"))
    assert [bool(cell.strip()) for cell in weights] == [False] * 5 + [True]
    idle = run_sh(PAPER / "smoke.conf", f"WORK={tmp_path}", **programs)
    assert (idle.stdout, idle.stderr) == (done.stdout, "")


@pytest.mark.moses
@pytest.mark.slow
def test_the_neural_lm_in_the_decoder(programs: dict[str, str], tmp_path: Path) -> None:
    if b"NeuralLMWrapper" not in Path(programs["MOSES_BIN"], "moses").read_bytes():
        done = run_sh(PAPER / "smoke.conf", f"WORK={tmp_path}", "SYSTEMS=baseline cslm", **programs)
        assert "knows no NeuralLM; build Moses --with-nplm" in done.stderr
        pytest.skip("needs a Moses that was built --with-nplm")
    done = run_sh(PAPER / "smoke.conf", f"WORK={tmp_path}", "SYSTEMS=baseline cslm cslm+rnn+wp", "HEADROOM=", **programs)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| cslm+rnn+wp " in done.stdout
    assert "| CSLM |" in done.stdout  # its weight
