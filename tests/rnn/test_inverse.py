"""Inverse models: p(source | target), with source and target everywhere those of the table."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import MakeModel, Run
from small_models import scores_of, small_checkpoint
from small_trainings import Training

from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.checkpoint import Checkpoint, load, save
from phrase_rescore.rnn.model import Model
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.training.config import Observer


def swapped(forward: Checkpoint) -> Checkpoint:
    """The same network as an inverse model of tables whose source is its output side."""
    return replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True, unk_shares=(0.2, 0.1))


def test_direction_and_factors_are_kept(tmp_path: Path) -> None:
    model = replace(swapped(small_checkpoint()), factors=(3, 2))
    save(model, str(tmp_path))
    found = load(str(tmp_path))
    assert (found.inverse, found.factors, found.unk_shares) == (True, (3, 2), (0.2, 0.1))
    assert found.signature.startswith("rnn-encoder-decoder|p(source|target)|source-factor:3|target-factor:2|hidden:7|")
    assert (tmp_path / "source.vocab").read_bytes().startswith(b"t0\t")
    assert found.vocabs == (found.tgt_vocab, found.src_vocab)
    assert Model(found).embed(["a|b|s3"]).shape == (1, 7)
    pairs = [(b"t1 t2", b"s3"), (b"t4", b"s1 s1")]
    np.testing.assert_array_equal(
        scores_of(Scorer(replace(found, factors=(None, None))), pairs), scores_of(Scorer(swapped(small_checkpoint())), pairs)
    )


def trained(folder: Path, name: str, **options: object) -> Checkpoint:
    inputs = (str(folder / str(options.pop("inputs", "pairs.tsv"))),)
    Training(inputs, str(folder / name)).but(shortlist=90, max_steps=20, held_out=0, **options).run()
    return load(str(folder / name))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pairs that stand in the same order whichever side they are sorted by, and the same turned round."""
    pairs = [(f"s{i:02} x", f"t{i:02}") for i in range(100)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
    (tmp_path / "turned.tsv").write_text("".join(f"{tgt}\t{src}\n" for src, tgt in pairs))
    return tmp_path


def test_training_is_that_of_the_turned_pairs(folder: Path) -> None:
    forward, inverse = trained(folder, "forward", inputs="turned.tsv"), trained(folder, "inverse", inverse=True)
    assert not forward.inverse
    assert inverse.inverse
    assert (inverse.src_vocab, inverse.tgt_vocab) == (forward.tgt_vocab, forward.src_vocab)
    assert inverse.unk_shares == forward.unk_shares[::-1]
    for (name, ours), (_, theirs) in zip(inverse.model.named_weights(), forward.model.named_weights(), strict=True):
        assert torch.equal(ours, theirs), name


def test_one_preparation_serves_both_directions(folder: Path) -> None:
    said: list[str] = []
    store = str(folder / "store")
    training = Training((str(folder / "pairs.tsv"),), str(folder / "forward")).but(max_steps=1, pairs_dir=store)
    training.run()
    training.but(model_dir=str(folder / "inverse"), inverse=True).run(Observer(said.append))
    assert said[0] == f"distinct pairs: found prepared in {store}"


@pytest.mark.slow
def test_a_start_from_another_model(folder: Path) -> None:
    trained(folder, "forward")
    first = trained(folder, "inverse", inverse=True)
    for name, inverse in (("forward", True), ("inverse", False)):
        with pytest.raises(
            OptionError, match=rf"--init-from .*{name}: has the other direction.*start from a model of the same"
        ):
            trained(folder, "more", inverse=inverse, init_from=str(folder / name))
    said: list[str] = []
    training = Training((str(folder / "pairs.tsv"),), str(folder / "more")).but(
        shortlist=90, max_steps=1, learning_rate=1e-9, held_out=0, inverse=True, init_from=str(folder / "inverse")
    )
    found = training.run(Observer(said.append))
    assert "source: 90 of 90 words start from the other model" in said
    weights = dict(first.model.named_weights())
    assert all(torch.allclose(weight, weights[name], atol=1e-6) for name, weight in found.model.named_weights())


TABLE = b"the house ||| das haus ||| 0.5 1 ||| 0-0 1-1 ||| 1 1 1 ||| |||\nthe zzz ||| haus ||| 0.5 1 ||| 0-0 ||| 1 1 1\n"


@pytest.fixture(scope="module")
def inverse_dir(make_model: MakeModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = str(tmp_path_factory.mktemp("inverse"))
    save(swapped(load(make_model(source=[b"das", b"haus"], target=[b"the", b"house"]))), directory)
    return directory


def columns_of(out: bytes) -> list[list[float]]:
    return [list(map(float, row.split(b"|||")[2].split())) for row in out.splitlines()]


def test_several_models_each_add_their_columns(run: Run, model_dir: str, inverse_dir: str, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(TABLE)
    alone = [run("annotate", tmp_path / "table", "-m", model) for model in (model_dir, inverse_dir)]
    both = run("annotate", tmp_path / "table", "-m", model_dir, "-m", inverse_dir, "-o", tmp_path / "out")
    assert both.status == 0, both.err
    forward, inverse = (columns_of(done.out) for done in alone)
    assert columns_of((tmp_path / "out").read_bytes()) == [a + b[2:] for a, b in zip(forward, inverse, strict=True)]
    # the model's own output side is counted: for the inverse one the source, of which zzz is unknown
    assert [row[3] for row in inverse] == [1, 2.718282]
    assert f"{inverse_dir}: unknown words: 0 of the target (0.00%), 1 of the source (25.00%)" in both.err
    scorer = Scorer(load(inverse_dir))
    assert np.log([row[2] for row in inverse]) == pytest.approx(
        scores_of(scorer, [(b"the house", b"das haus"), (b"the zzz", b"haus")]), abs=1e-6
    )
    described = json.loads((tmp_path / "out.columns.json").read_text())["columns"]
    assert [(c["column"], c["kind"]) for c in described] == [(3, "score"), (4, "count"), (5, "score"), (6, "count")]
    assert [c["predicts"] for c in described[::2]] == ["target", "source"]
    assert [c["side"] for c in described[1::2]] == ["target", "source"]
    assert both.err.count("phrase-rescore: model: rnn-encoder-decoder|") == 2


def test_a_model_is_named_once(run: Run, model_dir: str, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(TABLE)
    twice = run("annotate", tmp_path / "table", "-m", model_dir, "-m", f"{model_dir}/")
    said = "phrase-rescore: error: -m names the same model twice; name it once\n"
    assert (twice.status, twice.err) == (2, said)
