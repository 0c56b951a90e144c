"""examples/demo: its decoder by hand and against all derivations, its texts and table, and the whole with tiny trainings."""

import gzip
import importlib
import itertools
import math
import os
import random
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, Run

DEMO = ROOT / "examples" / "demo"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DEMO)


@pytest.fixture
def decoder() -> ModuleType:
    return importlib.import_module("decoder")


def gzipped(path: Path, *lines: str) -> Path:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


ROWS = [
    "a b ||| x y ||| 0.5 0.5 0.5 0.25 ||| 0-0 1-1 ||| 1 1 1 ||| |||",
    "a ||| x ||| 1 0.5 0.1 0.5 ||| 0-0 ||| 1 1 1 ||| |||",
    "b ||| y ||| 1 0.5 0.1 0.5 ||| 0-0 ||| 1 1 1 ||| |||",
    "c ||| z ||| 0.5 1 0.5 1 ||| 0-0 ||| 1 1 1 ||| |||",
]
# One line of three words: each of the four trigrams was seen once, all in contexts of their own
UNIGRAM = (0.25 + 0.75 * 4 / 5) / 4  # four kinds, and one for what is unknown
LOG_P = math.log(0.25 + 0.75 * (0.25 + 0.75 * UNIGRAM))  # of a word of the text, behind the two before it


def decoded(folder: Path, source: str, weights: str) -> list[list[str]]:
    """The fields of the list of a source, by ROWS and the text "x y z"."""
    (folder / "text").write_text("x y z\n")
    (folder / "source").write_text(source)
    (folder / "ini").write_text(f"# of nothing\n[weight]\n{weights}")
    options = "--table", gzipped(folder / "table.gz", *ROWS), "--text", "text", "--weights", "ini", "-n", "2", "-o", "list.gz"
    subprocess.run([DEMO / "decoder.py", "source", *options], cwd=folder, check=True)
    return [line.split(" ||| ") for line in gzip.decompress((folder / "list.gz").read_bytes()).decode().splitlines()]


def test_the_best_derivation_by_hand(tmp_path: Path) -> None:
    weights = "Distortion0= 0.3\nLM0= 0.5\nWordPenalty0= -1\nPhrasePenalty0= 0.2\nTranslationModel0= 0.1 0.2 0.3 0.4\n"
    best, other = decoded(tmp_path, "a b c Q\nc\n", weights)[:2]
    assert best[:2] == ["0", "x y z Q "]  # the unknown word is copied, and has no score
    # behind "y z" only the end was seen, then nothing: the unknown word by all orders, the end by its share of contexts
    unknown = 0.75 * 0.75 * 0.75 * 4 / 4 / 5
    end = UNIGRAM
    lm = 3 * LOG_P + math.log(unknown) + math.log(end)
    logs = [2 * math.log(0.5), math.log(0.5), 2 * math.log(0.5), math.log(0.25)]
    assert best[2] == f"Distortion0= 0 LM0= {lm:g} WordPenalty0= -4 PhrasePenalty0= 3 TranslationModel0= " + " ".join(
        f"{log:g}" for log in logs
    )
    total = 0.5 * lm + 4 + 0.2 * 3 + sum(w * log for w, log in zip((0.1, 0.2, 0.3, 0.4), logs, strict=True))
    assert float(best[3]) == pytest.approx(total, rel=1e-5)
    assert best[4] == "0-1=0-1 2=2 3=3 "
    assert float(other[3]) < total


def test_a_jump_by_hand(tmp_path: Path) -> None:
    """The text has "x y": it is worth two jumps, of one word forwards and of two back; then one more, forwards."""
    weights = "Distortion0= 0.1\nLM0= 1\nWordPenalty0= 0\nPhrasePenalty0= 0\nTranslationModel0= 1 1 1 1\n"
    best, second = decoded(tmp_path, "b a c\n", weights)
    assert best[1] == "x y z "
    assert best[2].startswith(f"Distortion0= -4 LM0= {4 * LOG_P:g} ")
    assert best[4] == "1=0 0=1 2=2 "
    assert second[1] != best[1]


def test_the_list_has_the_best_of_all_derivations(decoder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without limits the search finds what trying everything finds, in its order."""
    for name in ("BEAM", "BEHIND", "OPTIONS", "TRIED"):
        monkeypatch.setattr(decoder, name, 10**6)
    rng = random.Random(1)
    source = ["a", "b", "c", "d"]
    spans = [(i, j) for i in range(4) for j in range(i + 1, 5)]
    table = {
        " ".join(source[i:j]): [(tuple(rng.choices("xyz", k=rng.randint(1, 2))), (rng.uniform(-3, 0),)) for _ in range(2)]
        for i, j in spans
    }
    lm = decoder.LanguageModel(["x y z", "z z y x", "y x x"])
    weights = {"LM0": [0.7], "Distortion0": [0.4], "WordPenalty0": [-0.3], "PhrasePenalty0": [0.2], "TranslationModel0": [0.5]}
    best = dict[tuple[str, ...], float]()
    for cuts in itertools.product((False, True), repeat=3):
        ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), 4]
        for order in itertools.permutations(itertools.pairwise(ends)):
            for rows in itertools.product(*(table[" ".join(source[i:j])] for i, j in order)):
                tgt = tuple(word for words, _ in rows for word in words)
                jumps = sum(abs(i - end) for (i, _), end in zip(order, [0, *(j for _, j in order)], strict=False))
                total = 0.7 * lm.of(decoder.START, (*tgt, decoder.END)) - 0.4 * jumps + 0.3 * len(tgt) + 0.2 * len(order)
                best[tgt] = max(best.get(tgt, -math.inf), total + sum(0.5 * log for _, (log,) in rows))
    found = decoder.Decoder(table, lm, weights).n_best(source, 50)
    assert [total for total, _ in found] == pytest.approx(sorted(best.values(), reverse=True)[:50])
    for total, path in found:
        assert best[tuple(word for arc in path for word in arc.option.tgt)] == pytest.approx(total)


def test_the_language_model_sums_to_one(decoder: ModuleType) -> None:
    lm = decoder.LanguageModel(["x y z", "z z y x", "y x x"])
    for context in (("<s>", "<s>"), ("z", "y"), ("x", "x"), ("q", "q")):
        assert sum(math.exp(lm.log_p((*context, word))) for word in ("x", "y", "z", "</s>", "q")) == pytest.approx(1)


def test_phrase_pairs_and_scores_by_hand() -> None:
    extraction = importlib.import_module("extraction")
    # "c" has no link: it goes with either neighbour; "a b" against "y x" is whole, crossed
    rows = sorted(extraction.table_rows([["a", "b"], ["a"]], [["y", "c", "x"], ["w"]], [{(0, 2), (1, 0)}, {(0, 0)}]))
    assert rows == [
        "a b ||| y c x ||| 1 1 1 0.5 ||| 0-2 1-0 ||| 1 1 1 ||| |||",
        "a ||| c x ||| 1 1 0.333333 0.5 ||| 0-1 ||| 1 3 1 ||| |||",
        "a ||| w ||| 1 1 0.333333 0.5 ||| 0-0 ||| 1 3 1 ||| |||",
        "a ||| x ||| 1 1 0.333333 0.5 ||| 0-0 ||| 1 3 1 ||| |||",
        "b ||| y c ||| 1 1 0.5 1 ||| 0-0 ||| 1 2 1 ||| |||",
        "b ||| y ||| 1 1 0.5 1 ||| 0-0 ||| 1 2 1 ||| |||",
    ]


def test_alignments_of_a_language_that_is_turned_around() -> None:
    align = importlib.import_module("ibm_model1").align
    rng = random.Random(1)
    sources = [[f"s{rng.randrange(20)}" for _ in range(rng.randint(2, 4))] for _ in range(300)]
    targets = [["t" + word[1:] for word in (source[1], source[0], *source[2:])] for source in sources]
    right = [{(0, 1), (1, 0), *((i, i) for i in range(2, len(source)))} for source in sources]
    found = align(sources, targets)
    assert sum(one == other for one, other in zip(found, right, strict=True)) > 280


def invented_messages() -> list[tuple[str, str]]:
    """Messages in which word s7 is word t7, and what nothing is made of."""
    rng = random.Random(1)
    numbers = [[min(rng.randrange(40), rng.randrange(40)) for _ in range(rng.randint(1, 9))] for _ in range(600)]
    pairs = [(" ".join(f"s{chr(97 + n % 26)}{'x' * (n // 26)}" for n in line), line) for line in numbers]
    return [(src, " ".join(f"t{chr(97 + n % 26)}{'x' * (n // 26)}" for n in line)) for src, line in pairs]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts and the table of an invented package."""
    folder, downloads = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("downloads")
    messages = [*invented_messages(), ("markup <b>x</b>", "t"), ("Same twice!", "a"), ("same twice?", "b")]
    catalogue = "".join(f'msgid "{src}"\nmsgstr "{tgt}"\n\n' for src, tgt in messages)
    with zipfile.ZipFile(downloads / "invented-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("invented/locale/fr/LC_MESSAGES/invented.po", catalogue)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DEMO)
        build_table, catalogues = map(importlib.import_module, ("build_table", "catalogues"))
        patch.setattr(build_table, "PACKAGES", [catalogues.Package("invented", "1")])
        patch.setattr(build_table, "HELD_OUT", {"dev": 40, "test": 60})
        assert build_table.main(["--downloads", str(downloads), "-o", str(folder)]) == 0
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_what_is_held_out_is_not_in_train(built: Path, run: Run) -> None:
    train, dev, test = (lines(built / f"{name}.en") for name in ("train", "dev", "test"))
    assert (len(dev), len(test)) == (40, 60)
    assert not Counter(dev) & Counter(test)
    assert not set(train) & {*dev, *test}
    assert all(5 <= len(line.split()) <= 15 for line in (*dev, *test))
    assert {*train, *dev, *test} == {*(src for src, _ in invented_messages()), "same twice !", "same twice ?"}
    assert [re.sub(r"\bs", "t", line) for line in test] == lines(built / "test.fr")
    assert run("info", built / "phrase-table.gz").status == 0


def test_messages_that_differ_in_signs_stay_together() -> None:
    build_table = importlib.import_module("build_table")
    alike = ["the file has no name !", "the file has no name", "the file &apos; has no name ( %s )"]
    texts = build_table.split(Counter({(src, f"t{i}"): i + 1 for i, src in enumerate(alike)}), {"dev": 1, "test": 1})
    assert texts == ([], [(alike[2], "t2")], [])


def test_rescore_and_tune_read_the_list(built: Path, model_dir: str, run: Run, tmp_path: Path) -> None:
    ini, listed, scored = tmp_path / "ini", tmp_path / "dev.nbest.gz", tmp_path / "dev.rnn.nbest.gz"
    ini.write_text("LM0= 1\nDistortion0= 1\nWordPenalty0= 0\nPhrasePenalty0= 0\nTranslationModel0= 1 1 1 1\n")
    files = "--table", "phrase-table.gz", "--text", "train.fr", "--weights", ini, "-n", "10", "-o", listed
    subprocess.run([DEMO / "decoder.py", "dev.en", *files], cwd=built, check=True)
    done = run("rescore", listed, "-m", model_dir, "--source", built / "dev.en", "-o", scored)
    assert done.status == 0, done.err
    entries = [line.split(" ||| ") for line in gzip.decompress(scored.read_bytes()).decode().splitlines()]
    assert {int(entry[0]) for entry in entries} == set(range(40))
    # the model knows none of these words: the second value counts the words of the target
    assert all(entry[2].split()[-1] == str(len(entry[1].split())) for entry in entries)
    done = run("tune", scored, "--reference", built / "dev.fr", "-o", tmp_path / "weights")
    assert done.status == 0, done.err
    assert "TranslationModel0= " in (tmp_path / "weights").read_text()


@pytest.mark.slow
def test_the_whole_demo_and_a_second_run(built: Path, tmp_path: Path, warm_path: str) -> None:
    """From texts and table to the last table; the second run makes nothing again."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "bin").symlink_to(warm_path.split(os.pathsep)[0])
    work = tmp_path / "demo"
    work.mkdir()
    for path in built.iterdir():
        (work / path.name).write_bytes(path.read_bytes())
    env = {**os.environ, **dict.fromkeys(("PHRASES", "LM", "NMT"), "--max-steps 5")}

    def run_sh() -> str:
        done = subprocess.run(
            [DEMO / "run.sh", tmp_path / "venv", work], env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        return done.stdout

    first = run_sh()
    table = first.partition("== 5.")[2]
    assert [line.split()[0] for line in table.splitlines() if line[:1].isalpha()][:4] == ["system", "before", "columns", "both"]
    assert "p randomization" in table
    times = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    second = run_sh()
    assert second.partition("== 5.")[2] == table
    assert second.count("$ phrase-rescore") == 1  # the comparison, which is only shown
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()} == times
    (work / "rnn.ini").unlink()
    (work / "dev.rnn.nbest.gz").write_bytes(b"no list")
    done = subprocess.run([DEMO / "run.sh", tmp_path / "venv", work], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{work}/logs/rnn.ini.log" in done.stderr
    assert "dev.rnn.nbest.gz" in done.stderr
