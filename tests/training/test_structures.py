"""Cells, depths and encoders in training: resumed to the byte, warm started, clipped, in other precisions."""

from pathlib import Path

import pytest
import torch
from conftest import Run
from small_models import structure
from small_trainings import SMALL, Training, write_language
from structures import STRUCTURES, largest_difference, named, trained_twice

from phrase_rescore.errors import OptionError
from phrase_rescore.inference.scorer import Scorer
from phrase_rescore.models.checkpoint import load
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.train import PhrasePairs

TABLE = b"".join(
    b"s%d s%d ||| t%d ||| 0.5 0.25 ||| 0-0 ||| 4 2 1\n" % (i, j, k) for i in range(6) for j in range(5) for k in range(3)
)


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    write_language(tmp_path / "pairs.tsv", pairs=200)
    return [str(tmp_path / "pairs.tsv")]


def small(**changes: object):
    return SMALL.override(**{"hidden": 12, "max_steps": 6, "eval_every": 2, "held_out": 20, **changes})


@pytest.mark.parametrize("chosen", STRUCTURES, ids=named)
def test_a_resumed_training_has_the_same_bytes_and_its_scores_are_the_oracle_s(
    inputs: list[str], tmp_path: Path, chosen: dict
) -> None:
    checkpoint, same = trained_twice(inputs, tmp_path, small(**chosen))
    assert same
    assert structure(checkpoint) == chosen
    table = tmp_path / "table"
    table.write_bytes(TABLE)
    rows, difference = largest_difference(checkpoint, table, tmp_path / "out", tmp_path / "whole", 30, jobs=1, block_rows=40)
    assert rows == 90
    assert difference < 1e-4


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"cell": "lstm"}, "has cell gru and not lstm; train with --cell gru"),
        ({"layers": 2, "encoder": "reversed"}, "has layers 1 and not 2, encoder forward and not reversed; train with "
         "--layers 1 --encoder forward"),
    ],
)  # fmt: skip
def test_a_start_from_another_structure_is_refused(inputs: list[str], tmp_path: Path, chosen: dict, says: str) -> None:
    first = Training((inputs[0],), str(tmp_path / "first"), small())
    first.run()
    with pytest.raises(OptionError, match=says):
        first.but(model_dir=str(tmp_path / "second"), init_from=str(tmp_path / "first"), **chosen).run()


def test_a_decoder_starts_from_a_model_with_another_encoder(inputs: list[str], tmp_path: Path) -> None:
    first = Training((inputs[0],), str(tmp_path / "first"), small(cell="lstm", layers=2))
    donor = first.run().model
    again = first.but(
        model_dir=str(tmp_path / "second"), init_from=str(tmp_path / "first"), init="decoder", encoder="bidirectional",
        freeze=("decoder",),
    ).run()  # fmt: skip
    assert again.model.config.encoder == "bidirectional"
    for ours, theirs in zip(again.model.decoder.parameters(), donor.decoder.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("chosen", [{"cell": "lstm", "layers": 2}, {"cell": "rnn", "encoder": "bidirectional"}], ids=named)
def test_scores_in_fewer_digits_are_near(inputs: list[str], tmp_path: Path, chosen: dict) -> None:
    checkpoint = Training((inputs[0],), str(tmp_path / "model"), small(**chosen)).run()
    phrases = [(b"s1 s2 s3", b"t1 t2"), (b"s4", b"t4 t5 t6"), (b"s3 s3", b"nothing")]
    exact, rounded = (Scorer(checkpoint, precision=precision).score(phrases) for precision in ("float32", "bf16"))
    assert abs(exact - rounded).max() < 0.2
    assert (exact != rounded).any()


def test_the_clipped_norm_is_the_one_asked_for(inputs: list[str], tmp_path: Path) -> None:
    for clip in (0.01, 0.5):
        job = PhrasePairs(inputs, str(tmp_path / f"model{clip}"), small(cell="rnn", clip=clip))
        store = job.prepare(Observer(), lambda numbers: None)
        task = job.task(store, job.recipe(store), lambda line: None)
        trainer = Trainer(task, job.recipe(store), threads=1)
        trainer.step(next(task.batches(0)), 0.5)
        norm = torch.stack([p.grad.norm() for p in task.module.parameters()]).norm().item()
        assert norm == pytest.approx(clip, rel=1e-3)


def test_the_command_line_makes_and_shows_them(run: Run, inputs: list[str], tmp_path: Path) -> None:
    model = tmp_path / "model"
    result = run(
        "train", *inputs, "-m", model, "--cell", "lstm", "--layers", 2, "--encoder", "bidirectional", "--clip", "0.5",
        "--hidden", 8, "--embedding", 6, "--maxout", 4, "--rank", 4, "--max-steps", 3, "--held-out", 20, "--threads", 1,
    )  # fmt: skip
    assert result.status == 0, result.err
    assert structure(load(str(model))) == {"cell": "lstm", "layers": 2, "encoder": "bidirectional"}
    shown = run("info", model)
    assert "lstm, 2 layers, encoder bidirectional" in shown.out.decode()
    assert "|cell:lstm|layers:2|encoder:bidirectional|" in shown.out.decode()
    assert load(str(model)).training["clip"] == 0.5
