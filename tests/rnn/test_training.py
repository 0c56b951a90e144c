import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from in_memory_pairs import DistinctPairs, read_pairs
from small_models import encoded, scores_of, small_checkpoint
from small_trainings import Training, files, trained, write_language

from phrase_rescore.errors import OptionError
from phrase_rescore.info.model import ModelInfo
from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.rnn.network import CELLS
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.rnn.train import phrase_source
from phrase_rescore.training.config import Observer
from phrase_rescore.training.pairs import held_out_figures


@pytest.mark.slow
def test_the_invented_language_is_learnt(tmp_path):
    phrases = write_language(tmp_path / "pairs.tsv")
    trained(tmp_path, learning_rate=6e-3, batch_size=128, max_steps=500, held_out=100)
    checkpoint = load(str(tmp_path / "model"))
    rng = np.random.default_rng(1)
    sample = [phrases[i] for i in rng.permutation(len(phrases))[:50]]
    # every source prefers its own target among all one-word targets and its own words in another order
    scorer, words = Scorer(checkpoint), range(20)
    table = scores_of(scorer, [(b"s%d" % i, b"t%d" % j) for i in words for j in words]).reshape(20, 20)
    assert (table.argmax(1) == np.arange(20)).all()
    several = [p for p in sample if len(set(p)) > 1]
    sources = [" ".join(f"s{w}" for w in p).encode() for p in several]
    straight, turned = (
        scores_of(scorer, list(zip(sources, (" ".join(f"t{w}" for w in q).encode() for q in targets), strict=True)))
        for targets in (several, [(*p[1:], p[0]) for p in several])
    )
    assert (straight > turned).all()


@pytest.mark.slow
def test_the_same_input_and_seed_give_the_same_model_to_the_byte(tmp_path):
    write_language(tmp_path / "pairs.tsv", pairs=300)
    rows = (tmp_path / "pairs.tsv").read_text().splitlines()
    (tmp_path / "shuffled.tsv").write_text("\n".join(rows[::-1] + rows[:50]) + "\n")

    def made(name, seed, inputs="pairs.tsv", threads=2):
        directory = tmp_path / name
        Training((str(tmp_path / inputs),), str(directory)).but(max_steps=30, seed=seed, threads=threads).run()
        return files(directory)

    first, again, other = made("a", 1), made("b", 1), made("c", 2)
    assert first == again
    weights = "model-00001-of-00001.safetensors"
    assert first[weights] != other[weights]
    # order and repetition of rows count for nothing
    assert made("d", 1, "shuffled.tsv")[weights] == first[weights]


def test_the_log_has_a_line_for_every_evaluation_and_the_best_model_is_kept(tmp_path):
    write_language(tmp_path / "pairs.tsv")
    checkpoint = trained(tmp_path, learning_rate=0.02, max_steps=50, eval_every=20)
    records = [json.loads(line) for line in (tmp_path / "model" / "train.log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [20, 40, 50]
    best = min(records, key=lambda record: record["held_out"]["loss"])
    assert checkpoint.training["best_step"] == best["step"]
    assert checkpoint.training["held_out"] == best["held_out"]
    assert checkpoint.training["held_out_other_sources"]["loss"] > best["held_out"]["loss"]


def test_held_out_figures_are_those_of_the_scorer(tmp_path, monkeypatch):
    write_language(tmp_path / "pairs.tsv")
    monkeypatch.setattr("phrase_rescore.training.pairs._EVALUATED", 3)
    checkpoint = trained(tmp_path, max_steps=20, held_out=100)
    distinct = DistinctPairs.collect(read_pairs(str(tmp_path / "pairs.tsv")))
    held = [pair for pair, out in zip(distinct.pairs, distinct.held_out(100), strict=True) if out]
    assert len(held) == checkpoint.training["distinct_pairs"]["held_out"] > 0
    log_p = scores_of(Scorer(load(str(tmp_path / "model"))), held)
    words = sum(len(tgt.split()) + 1 for _, tgt in held)
    assert checkpoint.training["held_out"]["loss"] == pytest.approx(-log_p.mean(), abs=1e-4)
    assert checkpoint.training["held_out"]["perplexity"] == pytest.approx(math.exp(-log_p.sum() / words), rel=1e-4)


def test_without_held_out_pairs_training_goes_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes(b"".join(b"%d\tx\n" % i for i in range(199)))  # too few to hold any out
    warned = list[str]()
    checkpoint = trained(tmp_path, "model", Observer(warn=warned.append), max_steps=6, eval_every=1, learning_rate=1e-9)
    found, initial = checkpoint.training, checkpoint.model.decoder.b_G.exp()
    assert (found["steps"], found["distinct_pairs"]["held_out"], found["held_out"]) == (6, 0, None)
    assert any("too few sources to hold any out" in line for line in warned)
    assert (initial * 401).tolist() == pytest.approx([200, 1, 200]), "EOS, UNK and x, each once more than it is there"
    with pytest.raises(OptionError, match="--patience 3 needs held-out data, but there are none"):
        trained(tmp_path, "patient", max_steps=6, eval_every=1, patience=3)
    assert [path.name for path in tmp_path.glob("patient*")] == ["patient.pairs"]


def test_a_perplexity_beyond_all_numbers_is_the_largest() -> None:
    model = small_checkpoint().model
    with torch.no_grad():
        model.decoder.b_G[2] = -1e4
    found = held_out_figures(model, encoded([([2], [2])]))
    assert (found["loss"] > 5e3, found["perplexity"]) == (True, math.exp(700.0))


def test_a_cell_brings_its_rate_to_the_default_preset_alone_and_one_that_is_given_counts():
    default, paper = PRESETS["default"], PRESETS["paper"]
    rates = {cell: default.override(cell=cell).recipe.learning_rate for cell in CELLS}
    assert rates["rnn"] < rates["gru"] == default.recipe.learning_rate == default.override(layers=2).recipe.learning_rate
    assert default.override(cell="rnn", learning_rate=0.01).recipe.learning_rate == 0.01
    assert default.override(hidden=1).network.maxout == 1
    assert paper.override(cell="rnn").recipe == paper.recipe


@pytest.mark.parametrize(("belong", "steps", "held_out", "warned"), [
    (True, 100, 20, False), (True, 1, 20, True), (True, 1, 19, False),
    pytest.param(False, 100, 20, True, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_model_that_does_not_read_its_source_is_warned_of(tmp_path, belong, steps, held_out, warned) -> None:
    """Hardly trained, or of a file whose targets slipped from their sources; fewer than 20 pairs do not tell."""
    rng = np.random.default_rng(1)
    sources = [" ".join(f"s{i}" for i in rng.integers(0, 12, 2)) for _ in range(4000)]
    targets = [source.replace("s", "t") for source in sources]
    if not belong:
        rng.shuffle(targets)
    rows = (f"{source} x{i}\t{target}\n" for i, (source, target) in enumerate(zip(sources, targets, strict=True)))
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    said: list[str] = []
    trained(tmp_path, observer=Observer(warn=said.append), max_steps=steps, held_out=held_out, shortlist=12, learning_rate=0.02)
    assert any(line.startswith("the model hardly reads its source: ") for line in said) is warned


def test_what_changes_the_pairs_changes_their_fingerprint(tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=10)
    changes = {"factors": (0, None), "form": "tsv", "min_count": 2, "max_length": 3, "shortlist": 9, "held_out": 9}
    configs = PRESETS["default"], *(PRESETS["default"].override(**{name: value}) for name, value in changes.items())
    found = [phrase_source([str(tmp_path / "pairs.tsv")], "model", config).fingerprints[0] for config in configs]
    assert not any(fingerprint in found[:i] for i, fingerprint in enumerate(found))


@pytest.mark.slow
def test_a_training_that_was_too_short_says_so(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"s{i}\tt{i}\n" for i in range(3200)))
    said: list[str] = []

    def told(name: str, **settings: object) -> tuple[float, list[str]]:
        said.clear()
        found = trained(tmp_path, name, Observer(warn=said.append), held_out=0, pairs_dir=str(tmp_path / "pairs"), **settings)
        return found.training["passes"], [line for line in said if "--max-time" in line]

    remedy = "train again with --overwrite and a larger --max-time"
    assert told("a", max_time=1e-9) == (0.0, [f"only 0 steps made: the scores mean little; {remedy}"])
    assert told("b", max_steps=19) == (0.19, [f"only 19 steps made: the scores mean little; {remedy}"])
    assert told("c", max_steps=20) == (0.2, [f"only 20.0 % of the pairs were seen; {remedy}"])
    assert told("d", max_steps=100) == (1.0, [])
    assert told("e", max_steps=1, init_from=str(tmp_path / "d")) == (0.01, [])
    assert "warning      only 19 steps made: the scores mean little" in ModelInfo.read(str(tmp_path / "b")).lines()
    assert not [line for line in ModelInfo.read(str(tmp_path / "d")).lines() if "warning" in line]


def test_precision_is_recorded(tmp_path):
    write_language(tmp_path / "pairs.tsv", pairs=300)
    training = Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "m")).but(max_steps=12, eval_every=4)
    told: list[str] = []
    found = training.but(precision="bf16").run(Observer(warn=told.append))
    assert found.training["precision"] == "bf16"
    assert found.model.loss_dtype is None
    has_bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert any("no bf16 arithmetic" in line for line in told) != has_bf16
    for wrong in ("tf32", "int8", "float16"):
        with pytest.raises(OptionError, match="tf32 is for GPUs" if wrong == "tf32" else "precision: .* is not one of"):
            training.but(model_dir=str(tmp_path / "other"), precision=wrong).run()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_training_on_a_gpu(tmp_path, precision):
    write_language(tmp_path / "pairs.tsv")
    on_gpu = trained(tmp_path, max_steps=200, device="cuda", precision=precision)
    on_cpu = trained(tmp_path, "cpu", max_steps=200)
    found, expected = (checkpoint.training["held_out"]["loss"] for checkpoint in (on_gpu, on_cpu))
    assert found == pytest.approx(expected, rel=0.05)
