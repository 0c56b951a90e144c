"""Cells, depths and encoders in training: resumed to the byte, warm started, clipped, in other precisions."""

from pathlib import Path

import pytest
import torch
from conftest import Run
from small_models import scores_of, structure
from small_trainings import SMALL, Training, write_language
from structures import every_structure, largest_difference, named, trained_twice

from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.rnn.scorer import Scorer

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


@pytest.mark.parametrize(("chosen", "says"), [
    ({"cell": "lstm"}, "has cell gru, not lstm; train with --cell gru"),
    ({"layers": 2, "encoder": "reversed"}, "has layers 1, not 2, encoder forward, not reversed; train with "
     "--layers 1 --encoder forward"),
])  # fmt: skip
def test_a_start_from_another_structure_is_refused(inputs: list[str], tmp_path: Path, chosen: dict, says: str) -> None:
    first = Training((inputs[0],), str(tmp_path / "first"), small())
    first.run()
    with pytest.raises(OptionError, match=says):
        first.but(model_dir=str(tmp_path / "second"), init_from=str(tmp_path / "first"), **chosen).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [{"cell": "lstm", "layers": 2, "encoder": "bidirectional"}, {"cell": "rnn", "encoder": "reversed"}], ids=named
)
def test_commands_take_them(run: Run, inputs: list[str], tmp_path: Path, chosen: dict) -> None:
    options = [part for name, value in chosen.items() for part in (f"--{name}", value)]
    models = {name: tmp_path / name for name in ("forward", "inverse")}

    def done(*args: object, stdin: bytes = b"") -> bytes:
        result = run(*args, stdin=stdin)
        assert result.status == 0, result.err
        return result.out

    for name, model in models.items():
        done(
            "train", inputs[0], "-m", model, *options, *["--inverse"] * (name == "inverse"), "--hidden", 8, "--embedding", 6,
            "--maxout", 4, "--rank", 4, "--max-steps", 20, "--held-out", 20, "--threads", 1, "-q",
        )  # fmt: skip
    table, annotated, cluster = tmp_path / "table", tmp_path / "annotated", tmp_path / "cluster"
    table.write_bytes(TABLE)
    both = ["-m", models["forward"], "-m", models["inverse"], "-q", "--block-size", 20]
    done("annotate", table, *both, "-o", annotated)
    described = "".join(f"|{name}:{value}" for name, value in chosen.items())
    assert described in done("info", models["forward"]).decode()
    done("annotate", table, *both, "-o", cluster, "--cluster", "local:1")
    assert cluster.read_bytes() == annotated.read_bytes()

    rows = [row.split(b" ||| ") for row in annotated.read_bytes().splitlines()]
    columns = torch.tensor([[float(x) for x in row[2].split()[-4:]] for row in rows], dtype=torch.float64)
    scorers = {name: Scorer(load(str(models[name]))) for name in ("forward", "inverse")}
    pairs = [(row[0], row[1]) for row in rows]  # an inverse model takes them in the same order
    log_p = torch.stack([torch.as_tensor(scores_of(scorer, pairs)) for scorer in scorers.values()], 1)
    assert torch.allclose(columns[:, [0, 2]].log(), log_p.double(), atol=1e-4)

    proposed = done("generate", "-m", models["forward"], "-n", 3, stdin=b"s1 s2\ns4\n")
    lines = [line.split(b"\t") for line in proposed.splitlines()]
    assert len(lines) == 6
    log_p = scores_of(scorers["forward"], [(line[0], line[1]) for line in lines])
    assert [float(line[2]) for line in lines] == pytest.approx(log_p.tolist(), abs=1e-4)
    assert len(done("embed", "-m", models["forward"], stdin=b"s1 s2\ns4\n").splitlines()) == 2
