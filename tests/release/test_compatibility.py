"""Models as 1.0.0 wrote them are read, and score as they did: docs/format.md promises it for all versions 1.Y.Z."""

from pathlib import Path

import pytest
from conftest import Run

import phrase_rescore as pr

MODELS = Path(__file__).with_name("made_by_1.0.0")


def test_a_model_of_phrase_pairs() -> None:
    scores = pr.load(str(MODELS / "pairs")).score(["s1 s2", "s3", "zebra"], ["t1 t2", "t7 t10", "t0"])
    assert scores.tolist() == pytest.approx([-18.634296, -19.573486, -13.486199], abs=1e-4)


def test_a_language_model() -> None:
    scores = pr.load_lm(str(MODELS / "text")).score(["the house", "a zebra ."])
    assert scores.tolist() == pytest.approx([-5.714146, -14.372768], abs=1e-4)


def test_a_translation_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("s0 s2\nzebra\n")
    (tmp_path / "nbest").write_text("0 ||| t0 t2 ||| LM0= -1 ||| -1\n1 ||| t1 zebra ||| LM0= -1 ||| -1\n")
    result = run("rescore", tmp_path / "nbest", "-m", MODELS / "sentences", "--source", tmp_path / "source")
    scores = [float(line.split(b"NMT0= ")[1].split()[0]) for line in result.out.splitlines()]
    assert scores == pytest.approx([-4.68238, -4.97493], abs=1e-4)
