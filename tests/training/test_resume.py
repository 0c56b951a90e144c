"""A training killed at any moment goes on to the very same weights."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from safetensors.numpy import load_file
from small_trainings import Stopped, Training, command, files, write_language

from phrase_rescore import __version__
from phrase_rescore.errors import ModelError, OptionError, RescoreError
from phrase_rescore.training.config import Observer
from phrase_rescore.training.state import TrainingState

pytestmark = pytest.mark.slow


def test_kills_change_nothing(tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv")
    subprocess.run(command(tmp_path, "whole", "--threads", "1"), check=True, cwd=ROOT, capture_output=True)
    draw, killed = random.Random(3), 0
    for sitting in range(30):
        resumed = ("--resume",) if (tmp_path / "killed.training" / "state.json").exists() else ()
        process = subprocess.Popen(command(tmp_path, "killed", "--threads", "1", *resumed), cwd=ROOT, stderr=subprocess.PIPE)
        if sitting < 10:  # wait until it trains, then for a moment of chance's choosing
            state = tmp_path / "killed.training" / "state.json"
            before = state.stat().st_mtime_ns if state.exists() else 0
            while process.poll() is None and not (state.exists() and state.stat().st_mtime_ns > before):
                time.sleep(0.005)
            time.sleep(draw.random() * 0.05)
            process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, err.decode()
    assert killed == 10
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "train.log.jsonl").read_text().splitlines()]
    assert steps == list(range(4, 601, 4))
    assert not (tmp_path / "killed.training").exists()


def interrupted(training: Training, at: int) -> None:
    def stop(step: int, done: float, loss: float, items: int) -> None:
        if step == at:
            raise Stopped

    with pytest.raises(Stopped):
        training.run(Observer(on_step=stop))


@pytest.fixture
def training(tmp_path: Path) -> Training:
    write_language(tmp_path / "pairs.tsv", pairs=300)
    return Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "model")).but(max_steps=20, eval_every=5, held_out=20)


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.3), ("adadelta", 30.0)])
def test_the_best_model_and_the_averages_survive(training: Training, optimizer: str, rate: float) -> None:
    training = training.but(optimizer=optimizer, learning_rate=rate, clip=100.0, decay=False, threads=2, eval_every=2)
    whole = training.but(model_dir=f"{training.model_dir}.whole").run()
    assert whole.training["best_step"] < 20, "the best step should come before the end"
    for at in (7, 13):
        interrupted(training if at == 7 else training.but(resume=True), at)
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


def test_another_run_is_not_resumed(training: Training) -> None:
    interrupted(training, 12)
    for changed, told in (
        (training.but(seed=2), "seed was 1 and is 2 now"),
        (training.but(learning_rate=0.5), "learning_rate was"),
        (training.but(max_steps=30), "max_steps was 20 and is 30 now"),
        (training.but(held_out=10), "was"),
    ):
        with pytest.raises(OptionError, match=told):
            changed.but(resume=True).run()
    for overwrite in (False, True):
        with pytest.raises(OptionError, match="go on with --resume, or delete it to begin anew"):
            training.but(overwrite=overwrite).run()
    with open(training.inputs[0], "a") as stream:
        stream.write("s1 s1 s1\tt9\n")
    with pytest.raises(OptionError, match="inputs was"):
        training.but(resume=True).run()
    TrainingState(str(training.state_dir), {}).remove()
    training.run()


def test_a_state_of_the_first_format_is_resumed(training: Training) -> None:
    """What states of before the settings were in parts say of their run: these names and values, in whatever order."""
    training.but(model_dir=f"{training.model_dir}.whole").run()
    interrupted(training, 12)
    state = json.loads((training.state_dir / "state.json").read_bytes())
    numbers = json.loads(Path(f"{training.model_dir}.pairs", "pairs.json").read_bytes())["numbers"]
    status = os.stat(training.inputs[0])
    kept = {
        "form": None, "factors": [None, None], "drop_bad_rows": False, "shortlist": 15000, "held_out": 20, "min_count": 1,
        "max_length": None, "version": __version__,
    }  # fmt: skip
    inputs = [[training.inputs[0], status.st_size, status.st_mtime_ns]]
    run = {
        "version": __version__, "torch": torch.__version__,
        "inputs": {"inputs": inputs, "files": [None, None], "options": kept},
        "training": numbers["training"], "held_out": numbers["held_out"], "left_out": 0, "too_long": 0,
        "source_unk": numbers["source_unk"], "target_unk": numbers["target_unk"], "hidden": 32, "embedding": 16, "maxout": 16,
        "rank": 16, "shortlist": 15000, "batch_size": 32, "optimizer": "adam", "learning_rate": 0.008, "objective": "mean",
        "clip": 1.0, "decay": True, "warm_up": 0.02, "paper_initialisation": False, "group": 1, "epochs": 5.0, "seed": 1,
        "threads": 1, "precision": "float32", "max_time": None, "eval_every": 5, "init_from": None, "init": "all", "freeze": [],
        "final_pass": False, "inverse": False, "max_steps": 20, "processes": 1, "device": "cpu",
    }  # fmt: skip
    assert state["run"] == run
    assert list(state) == ["format_version", "run", "step", "tensors", "figures"]
    assert list(state["figures"]) == ["seconds", "best_step", "best", "records", "waited"]
    tensors = load_file(training.state_dir / state["tensors"])
    kinds = {re.match(r"module\.|best\.|optimizer\.\d+\.(step|exp_avg|exp_avg_sq)$", name)[0] for name in tensors}
    assert {"module.", "best.", "optimizer.0.step"} < kinds
    (training.state_dir / "state.json").write_text(json.dumps(state | {"run": run}) + "\n")
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


def test_nothing_to_resume(training: Training) -> None:
    with pytest.raises(OptionError, match="no training to go on with; leave --resume out"):
        training.but(resume=True).run()
    assert not Path(f"{training.model_dir}.pairs").exists(), "hours of preparing pairs would come before the message"


@pytest.mark.parametrize("damage", ["state", "tensors", "missing"])
def test_damaged_states_are_told(training: Training, damage: str) -> None:
    interrupted(training, 12)
    state = training.state_dir
    (tensors,) = state.glob("tensors-*")
    if damage == "missing":
        tensors.unlink()
    else:
        path = tensors if damage == "tensors" else state / "state.json"
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="is damaged, begin again without --resume"):
        training.but(resume=True).run()


def test_a_full_disk_leaves_the_last_state(tmp_path: Path) -> None:
    """Files of this process may grow to a little less than a state needs: as on a full disk, writing fails in the middle."""
    state = TrainingState(str(tmp_path / "state"), {"seed": 1})
    state.save(5, {"a": torch.arange(1000.0)}, {"seconds": 1.0})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
        with pytest.raises(RescoreError, match="the state of step 10 cannot be saved .*; the last one is intact"):
            state.save(10, {"a": torch.arange(1000.0) + 1}, {"seconds": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    step, tensors, figures = state.load()
    assert (step, figures) == (5, {"seconds": 1.0})
    assert tensors["a"].tolist() == list(range(1000))
    assert sorted(os.listdir(state.directory)) == ["state.json", "tensors-000000005.safetensors"]


def test_patience_ends_a_run_that_gets_no_better(training: Training) -> None:
    worse = training.but(learning_rate=1.0, decay=False, clip=100.0, max_steps=400, eval_every=2, patience=3)
    trained = worse.run().training
    assert trained["steps"] < 400
    assert trained["steps"] == trained["best_step"] + 6


def test_a_warm_start_is_measured_before_its_first_step(training: Training) -> None:
    """And kept, if training only makes it worse; frozen parts stay to the byte."""
    first = training.but(max_steps=200, eval_every=50).run()
    assert first.training["held_out"] is not None
    warm = training.but(model_dir=f"{training.model_dir}.warm", init_from=training.model_dir)
    again = warm.but(learning_rate=0.3, decay=False, clip=100.0).run()
    assert again.training["best_step"] == 0
    assert again.training["held_out"] == first.training["held_out"]
    said: list[str] = []
    frozen = warm.but(model_dir=f"{training.model_dir}.frozen", init="encoder", freeze=("encoder",))
    half = frozen.run(Observer(said.append))
    weights, kept = dict(half.model.named_weights()), dict(first.model.named_weights())
    same = {name for name in weights if torch.equal(weights[name], kept[name])}
    assert {name for name in weights if name.startswith("encoder.")} <= same
    assert not any(name.startswith(("decoder.", "output.G")) for name in same)
    assert any(line.startswith("source: 19 of 19 words start from the other model") for line in said), said
    with pytest.raises(OptionError, match="name a model to start from"):
        training.but(overwrite=True, freeze=("encoder",)).run()
