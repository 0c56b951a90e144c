"""Cells, depths and encoders in training: resumed to the byte, warm started, clipped, in other precisions."""

from pathlib import Path

import pytest
from small_models import structure
from small_trainings import SMALL, Training, write_language
from structures import every_structure, largest_difference, trained_twice

TABLE = b"".join(
    b"s%d s%d ||| t%d ||| 0.5 0.25 ||| 0-0 ||| 4 2 1\n" % (i, j, k) for i in range(6) for j in range(5) for k in range(3)
)


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    write_language(tmp_path / "pairs.tsv", pairs=200)
    return [str(tmp_path / "pairs.tsv")]


def small(**changes: object):
    return SMALL.override(**{"hidden": 12, "max_steps": 6, "eval_every": 2, "held_out": 20, **changes})


@every_structure
def test_a_resumed_training_has_the_same_bytes_and_its_scores_are_the_oracle_s(inputs, tmp_path, chosen) -> None:
    checkpoint, same = trained_twice(inputs, tmp_path, small(**chosen))
    assert same
    assert structure(checkpoint) == chosen
    table = tmp_path / "table"
    table.write_bytes(TABLE)
    rows, difference = largest_difference(checkpoint, table, tmp_path / "out", tmp_path / "whole", 30, jobs=1, block_rows=40)
    assert rows == 90
    assert difference < 1e-4


@pytest.mark.gpu
@every_structure
def test_a_gpu_learns_as_the_cpu_does(tmp_path: Path, chosen: dict) -> None:
    write_language(tmp_path / "pairs.tsv")
    pairs = (str(tmp_path / "pairs.tsv"),)
    on_cpu, on_gpu = (
        Training(pairs, str(tmp_path / device), small(device=device, **chosen)).run().training["held_out"]["loss"]
        for device in ("cpu", "cuda")
    )
    assert on_gpu == pytest.approx(on_cpu, rel=1e-3)
