"""Factored tables: a model reads one factor of every word, and the table's bytes stay."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from hypothesis import given
from hypothesis import strategies as st
from small_models import scores_of
from small_trainings import Training

from phrase_rescore.errors import InputError, RowError
from phrase_rescore.moses.table import have_factor, select_factor
from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.scorer import Scorer

phrase = st.lists(st.text(alphabet="ab|é", min_size=1, max_size=6), min_size=1, max_size=4).map(
    lambda words: " ".join(words).encode()
)


@given(st.lists(phrase, min_size=1, max_size=4), st.integers(0, 2))
def test_factors_are_those_between_the_bars(phrases: list[bytes], factor: int) -> None:
    split = [[word.split(b"|") for word in phrase.split(b" ")] for phrase in phrases]
    if all(len(word) > factor and word[factor] for words in split for word in words):
        assert have_factor(phrases, factor)
        assert select_factor(phrases, factor, "source") == [b" ".join(word[factor] for word in words) for words in split]
    else:
        assert not have_factor(phrases, factor)
        with pytest.raises(RowError, match=f"target word '.*' has no factor {factor}; factors are counted from 0"):
            select_factor(phrases, factor, "target")


ROWS = [(f"S{i % 60}|s{i % 60}|N x|x|D", f"t{i % 60}|V") for i in range(300)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "factored").write_text("".join(f"{src} ||| {tgt} ||| 0.5 1 ||| 0-0 ||| 3 2 1\n" for src, tgt in ROWS))
    plain = {(f"s{i % 60} x", f"t{i % 60}") for i in range(300)}
    (tmp_path / "plain.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in sorted(plain)))
    for name, form in (("factored.tsv", "{}\t{}\n"), ("factored.extract", "{} ||| {} ||| 0-0\n")):
        (tmp_path / name).write_text("".join(form.format(*row) for row in ROWS))
    return tmp_path


def weights(directory: Path) -> bytes:
    return (directory / "model-00001-of-00001.safetensors").read_bytes() + (directory / "source.vocab").read_bytes()


@pytest.mark.parametrize(
    "name", ["factored", *(pytest.param(f"factored.{kind}", marks=pytest.mark.slow) for kind in ("tsv", "extract"))]
)
def test_training_is_that_of_the_plain_pairs(folder: Path, name: str) -> None:
    training = Training((str(folder / "plain.tsv"),), str(folder / "plain")).but(max_steps=5)
    training.run()
    training.but(inputs=(str(folder / name),), model_dir=str(folder / "model"), factors=(1, 0)).run()
    assert weights(folder / "model") == weights(folder / "plain")
    assert load(str(folder / "model")).factors == (1, 0)


def test_a_row_without_the_factor(folder: Path) -> None:
    with (folder / "factored").open("a") as stream:
        stream.write("s1|s1 s2 ||| t1|V ||| 0.5 1 ||| 0-0 ||| 3 2 1\n")
    training = Training((str(folder / "factored"),), str(folder / "model")).but(max_steps=1, factors=(1, None))
    with pytest.raises(InputError, match=r"factored:301: source word 's2' has no factor 1"):
        training.run()
    training.but(drop_bad_rows=True).run()
    assert (folder / "model.dropped").read_bytes().endswith(b"s1|s1 s2 ||| t1|V ||| 0.5 1 ||| 0-0 ||| 3 2 1\n")


def test_annotation_reads_the_factor_and_keeps_the_bytes(run: Run, model_dir: str, tmp_path: Path) -> None:
    model = replace(load(model_dir), factors=(0, 1))
    factored = tmp_path / "model"
    factored.mkdir()
    save(model, str(factored))
    rows = [b"the|DT house|NN ||| ART|das N|haus ||| 0.5 1 ||| 0-0 1-1 ||| 1 1 1 ||| |||", b"zzz ||| x|y|z ||| 0.5 1 ||| 0-0"]
    (tmp_path / "table").write_bytes(b"\n".join(rows) + b"\n")
    done = run("annotate", tmp_path / "table", "-m", factored)
    assert done.status == 0, done.err
    expected = scores_of(Scorer(load(model_dir)), [(b"the house", b"das haus"), (b"zzz", b"y")])
    for row, found, log_p in zip(rows, done.out.splitlines(), expected, strict=True):
        columns = found.split(b"|||")[2].split()
        assert np.log(float(columns[2])) == pytest.approx(log_p, abs=1e-6)
        assert found.replace(b" " + b" ".join(columns[2:]), b"") == row
    (tmp_path / "bad").write_bytes(rows[0] + b"\na b ||| x ||| 0.5 1 ||| 0-0\n")
    bad = run("annotate", tmp_path / "bad", "-m", factored)
    assert bad.status == 1
    assert "bad:2: target word 'x' has no factor 1; factors are counted from 0 and stand between bars" in bad.err
    dropped = run("annotate", tmp_path / "bad", "-m", factored, "--on-bad-row", "drop", "-o", tmp_path / "d")
    assert (dropped.status, (tmp_path / "d").read_bytes().count(b"\n")) == (0, 1)
    both = run("annotate", tmp_path / "table", "-m", factored, "-m", model_dir)
    assert both.status == 0, "a model of whole words beside it"
    assert f"{factored}: unknown words: 1 of the target (33.33%), 1 of the source (33.33%)" in both.err
    assert f"{model_dir}: unknown words: 3 of the target (100.00%), 3 of the source (100.00%)" in both.err
