"""What ``import phrase_rescore`` offers does what the commands do, and raises our exceptions."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, MakeModel, Run
from small_trainings import SIZES, files, write_language

import phrase_rescore as pr
from phrase_rescore import api

SOURCES, TARGETS = ["the house", "small", "the zebra"], ["das haus", "alt", "das zebra ist"]
TABLE = b"the house ||| das haus ||| 0.5 0.25 ||| 0-0 1-1\nthe zebra ||| das zebra ist ||| 0.5 0.25 ||| 0-0\n"


@pytest.fixture(scope="module")
def model(model_dir: str) -> pr.Model:
    return pr.load(model_dir)


def test_scores_and_unknown_words_are_those_of_the_command(model: pr.Model, model_dir: str, run: Run) -> None:
    log_p, unknown = model.score(SOURCES, TARGETS), model.unknown_words(SOURCES, TARGETS)
    assert (log_p.dtype, log_p.shape, unknown.tolist()) == (np.float32, (3,), [0, 0, 1])
    lines = "".join(f"{src}\t{tgt}\n" for src, tgt in zip(SOURCES, TARGETS, strict=True))
    written = [line.split(b"\t") for line in run("score", "-m", model_dir, stdin=lines.encode()).out.splitlines()]
    np.testing.assert_allclose(log_p, [float(columns[0]) for columns in written], rtol=1e-6)
    assert [int(columns[1]) for columns in written] == unknown.tolist()
    # text and bytes and odd blanks are the same phrase
    assert model.score(["the house"], ["das haus"]) == model.score([b" the  house "], [b"das haus"])
    assert model.score([], []).shape == (0,)


def test_hypotheses_are_those_of_the_command(model: pr.Model, model_dir: str, run: Run) -> None:
    (of_house, of_small) = model.generate(["the house", "small"], n=2)
    assert [len(of_house), len(of_small)] == [2, 2]
    assert of_house[0].log_p >= of_house[1].log_p
    written = run("generate", "-m", model_dir, "-n", 2, "--digits", 12, stdin=b"the house\nsmall\n").out.splitlines()
    columns = [line.split(b"\t") for line in written]
    assert [row[1] for row in columns] == [hypothesis.target for hypothesis in (*of_house, *of_small)]
    np.testing.assert_allclose([float(row[2]) for row in columns], [h.log_p for h in (*of_house, *of_small)], rtol=1e-6)


def test_vectors_are_those_of_the_command(model: pr.Model, model_dir: str, run: Run, tmp_path: Path) -> None:
    vectors = model.embed(["the house", "small"])
    assert (vectors.dtype, vectors.shape) == (np.float32, (2, 7))
    assert run("embed", "-m", model_dir, "-o", tmp_path / "c.tsv", stdin=b"the house\nsmall\n").status == 0
    rows = [line.split(b"\t")[1:] for line in (tmp_path / "c.tsv").read_bytes().splitlines()]
    np.testing.assert_array_equal(vectors, np.array(rows, float).astype(np.float32))


def test_an_inverse_model_takes_source_and_target_of_the_table(make_model: MakeModel) -> None:
    config = Path(make_model(), "config.json")  # it has as many words on either side, so that its weights fit
    config.write_text(config.read_text().replace('"inverse": false', '"inverse": true'))
    model = pr.load(config.parent)
    assert model.unknown_words([*SOURCES, "zebra"], [*TARGETS, "das"]).tolist() == [0, 0, 1, 1]
    assert model.embed(["das haus"]).shape == (1, 7)
    assert "p(source|target)" in model.signature


@pytest.mark.parametrize("sources", [[""], ["[X]"], ["a ||| b"]])
def test_what_is_not_a_phrase_is_an_error(model: pr.Model, sources: list[str]) -> None:
    for call in (lambda: model.score(sources, ["das"]), lambda: model.generate(sources), lambda: model.embed(sources)):
        with pytest.raises(pr.RowError):
            call()
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        model.score(["the", "house"], ["das"])


def test_annotated_tables_are_the_command_s(model_dir: str, run: Run, tmp_path: Path) -> None:
    table, ours, theirs = (tmp_path / name for name in ("table.gz", "ours.gz", "theirs.gz"))
    table.write_bytes(TABLE)
    summary = pr.annotate(table, model_dir, ours, jobs=1)
    assert summary.lines()[0].startswith("2 rows in ")
    assert run("annotate", table, "-m", model_dir, "-o", theirs).status == 0
    assert ours.read_bytes() == theirs.read_bytes()
    assert Path(f"{ours}.columns.json").read_bytes() == Path(f"{theirs}.columns.json").read_bytes()
    pr.annotate(ours, [model_dir], tmp_path / "again", columns=pr.ColumnFormat(replace=2, scale="log"))
    assert (tmp_path / "again").read_bytes().split(b"\n")[1].count(b" 1 |||") == 1


def test_errors_of_annotate(model_dir: str, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"a ||| b ||| \n")
    for model, device, error, told in (
        (model_dir, "cpu", pr.InputError, r"bad:1: the score field is empty"),
        (tmp_path / "none", "cpu", pr.ModelError, "none: no such model directory"), (model_dir, "tpu", pr.OptionError, "tpu"),
    ):  # fmt: skip
        with pytest.raises(error, match=told):
            pr.annotate(tmp_path / "bad", model, tmp_path / "out", device=device)
    assert not (tmp_path / "out").exists()


def test_trained_models_are_the_command_s(run: Run, tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=200)
    sizes = {option.removeprefix("--").replace("-", "_"): int(n) for option, n in zip(SIZES[::2], SIZES[1::2], strict=True)}
    summary = pr.train(tmp_path / "pairs.tsv", tmp_path / "ours", max_steps=5, eval_every=5, held_out=20, threads=1, **sizes)
    assert (summary["steps"], summary["max_steps"]) == (5, 5)
    arguments = ["--max-steps", 5, "--eval-every", 5, "--held-out", 20, "--threads", 1]
    assert run("train", tmp_path / "pairs.tsv", "-m", tmp_path / "theirs", *SIZES, *arguments).status == 0
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    with pytest.raises(TypeError, match="no setting 'hiden'"):
        pr.train(tmp_path / "pairs.tsv", tmp_path / "x", hiden=3)
    with pytest.raises(pr.OptionError):
        pr.train(tmp_path / "pairs.tsv", tmp_path / "ours", max_steps=5)


@pytest.mark.parametrize("settings", [
    {"pairs_dir": "m"}, {"pairs_dir": "m.training"}, {"source_vocab": "m/words"},
    {"target_vocab": "m/words"}, {"scratch": "m/words"}, {"pairs_dir": "m.dropped", "drop_bad_rows": True},
])  # fmt: skip
def test_a_training_replaces_nothing_that_it_reads_or_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pairs").write_text("a\tb\n")
    with pytest.raises(pr.OptionError, match="are the same|is inside"):
        pr.train("pairs", "m", **settings)
    with pytest.raises(pr.OptionError, match="is inside"):
        pr.train_lm("pairs", "m", vocab="m.text/words")
    assert [path.name for path in tmp_path.iterdir()] == ["pairs"]
    Path("m.dropped").touch()
    with pytest.raises(pr.InputError, match="is empty"):  # rows of an earlier training, mended, say: none are dropped now
        pr.train("m.dropped", "m")


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    (folder / "text").write_text("the house is small\nthe small house\na house is a house\n" * 20)
    sizes = {"order": 3, "embedding": 4, "hidden": 6, "batch_size": 16, "shortlist": 5}
    summary = pr.train_lm(folder / "text", folder / "lm", max_steps=10, threads=1, held_out=0, **sizes)
    assert (summary["steps"], summary["held_out"]) == (10, None)
    return folder / "lm"


def test_sentences_are_scored_as_the_command_does(lm: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.lm.scorer._SENTENCES", 2)
    model, sentences = pr.load_lm(lm), ["the house", "a  zebra", ""]
    log_p = model.score(sentences)
    written = run("score-lm", "-m", lm, stdin="\n".join([*sentences, ""]).encode()).out.splitlines()
    np.testing.assert_allclose(log_p, [float(line.split(b"\t")[0]) for line in written], rtol=1e-6)
    by_word = model.score_words(sentences)
    assert [len(found) for found in by_word] == [3, 3, 1]
    np.testing.assert_allclose([found.sum() for found in by_word], log_p)
    assert model.perplexity(sentences) == pytest.approx(np.exp(-log_p.sum() / 7))
    np.testing.assert_array_equal(model.score([sentence.encode() for sentence in sentences]), log_p)
    assert (model.score([]).shape, model.score_words([])) == ((0,), [])
    assert np.isnan(model.perplexity([]))
    assert model.signature.startswith("feedforward-lm|")


def test_a_model_of_the_other_kind_is_named(model_dir: str) -> None:
    with pytest.raises(pr.ModelError, match="made by train; this takes a model of text"):
        pr.load_lm(model_dir)


@pytest.mark.parametrize(("setting", "value"), [("inverse", True), ("factors", (0, None)), ("form", "tsv"), ("min_count", 2)])
def test_a_setting_of_another_training_is_refused_by_its_name(tmp_path: Path, setting: str, value: object) -> None:
    (tmp_path / "text").write_text("a b\n")
    for train, inputs in ((pr.train_nmt, [tmp_path / "text"] * 2), (pr.train_lm, tmp_path / "text")):
        if (train, setting) != (pr.train_lm, "min_count"):
            with pytest.raises(TypeError, match=f"no setting '{setting}'"):
                train(inputs, tmp_path / "x", **{setting: value})


def test_paths_may_be_path_objects_and_are_text(tmp_path: Path) -> None:
    """In the state of a training, too."""
    write_language(tmp_path / "pairs.tsv", pairs=200)
    (tmp_path / "words").write_text("".join(f"s{i}\t9\n" for i in range(20)))
    settings = {"source_vocab": tmp_path / "words", "pairs_dir": tmp_path / "kept", "max_steps": 1, "hidden": 8, "threads": 1}
    assert pr.train(tmp_path / "pairs.tsv", tmp_path / "m", **settings)["steps"] == 1
    with pytest.raises(pr.OptionError, match="source_vocab"):
        pr.train(tmp_path / "pairs.tsv", tmp_path / "m", source_vocab=5)


def test_the_documented_functions_have_these_arguments() -> None:
    text = (ROOT / "docs" / "library.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    named = re.findall(r"`([a-z_]+)\(([^`…]*?)(?:, )?…?\)`", "\n".join(row.split(" | ")[0] for row in rows))
    assert {"train", "train_lm", "train_nmt", "rescore", "report", "info", "embed", "load_lm"} <= {name for name, _ in named}
    for name, arguments in named:
        parameters = list(inspect.signature(getattr(api, name)).parameters)
        given = arguments.replace("(source, target)", "inputs").split(", ")
        assert parameters[: len(given)] == given, name
    declared = pr.PRESETS["default"].settings().keys()
    assert {"form", "factors", "drop_bad_rows", "pairs_dir"} <= declared
    assert "text_dir" in pr.LM_PRESETS["default"].settings()


@pytest.mark.slow
def test_importing_is_quick_and_complete() -> None:
    code = "import sys, phrase_rescore as pr; assert 'torch' not in sys.modules; [getattr(pr, name) for name in pr.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    heavy = (
        "import sys; from phrase_rescore.api import annotate; assert not {'torch', 'sacrebleu', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", heavy], check=True, cwd=ROOT)
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        pr.scores  # noqa: B018


@pytest.mark.slow
def test_the_documented_example_is_typed(tmp_path: Path) -> None:
    """``mypy --strict`` finds nothing in it, and finds what is wrong in a wrong one."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "library.md").read_text(), re.MULTILINE | re.DOTALL)
    wrong = 'import phrase_rescore as pr\n\npr.load("model").score("one", 2)\n'
    for name, text, status in (("right.py", example, 0), ("wrong.py", wrong, 1)):
        (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "mypy", str(tmp_path / name)]  # strict by pyproject.toml, with what lint remembers
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
