"""A training killed at any moment goes on to the very same weights."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from small_trainings import SMALL, Stopped, command, files, write_language

from phrase_rescore.errors import ModelError, OptionError, RescoreError
from phrase_rescore.training.options import Observer, Options
from phrase_rescore.training.run import train_model
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


def interrupted(options: Options, at: int) -> None:
    def stop(step: int, done: float, loss: float, items: int) -> None:
        if step == at:
            raise Stopped

    with pytest.raises(Stopped):
        train_model(options, Observer(on_step=stop))


@pytest.fixture
def options(tmp_path: Path) -> Options:
    write_language(tmp_path / "pairs.tsv", pairs=300)
    return Options((str(tmp_path / "pairs.tsv"),), str(tmp_path / "model"), SMALL, max_steps=20, eval_every=5, held_out=20)


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.3), ("adadelta", 30.0)])
def test_the_best_model_and_the_averages_survive(options: Options, optimizer: str, rate: float) -> None:
    settings = replace(SMALL, optimizer=optimizer, learning_rate=rate, clip=100.0, decay=False)
    options = replace(options, settings=settings, threads=2, eval_every=2)
    whole = train_model(replace(options, model_dir=f"{options.model_dir}.whole"))
    assert whole.training["best_step"] < 20, "the best step should lie behind the end"
    for at in (7, 13):
        interrupted(options if at == 7 else replace(options, resume=True), at)
    train_model(replace(options, resume=True))
    assert files(Path(options.model_dir)) == files(Path(f"{options.model_dir}.whole"))


def test_another_run_is_not_resumed(options: Options) -> None:
    interrupted(options, 12)
    for changed, told in (
        (replace(options, seed=2), "seed was 1 and is 2 now"),
        (replace(options, settings=replace(SMALL, learning_rate=0.5)), "learning_rate was"),
        (replace(options, max_steps=30), "max_steps was 20 and is 30 now"),
        (replace(options, held_out=10), "was"),
    ):
        with pytest.raises(OptionError, match=told):
            train_model(replace(changed, resume=True))
    for overwrite in (False, True):
        with pytest.raises(OptionError, match="go on with --resume, or delete it to begin anew"):
            train_model(replace(options, overwrite=overwrite))
    with open(options.inputs[0], "a") as stream:
        stream.write("s1 s1 s1\tt9\n")
    with pytest.raises(OptionError, match="inputs was"):
        train_model(replace(options, resume=True))
    TrainingState(options.state_dir, {}).remove()
    train_model(options)


def test_nothing_to_resume(options: Options) -> None:
    with pytest.raises(OptionError, match="no training to go on with; leave --resume out"):
        train_model(replace(options, resume=True))
    assert not Path(options.store_dir).exists(), "hours of preparing pairs would come before the message"


@pytest.mark.parametrize("damage", ["state", "tensors", "missing"])
def test_damaged_states_are_told(options: Options, damage: str) -> None:
    interrupted(options, 12)
    state = Path(options.state_dir)
    (tensors,) = state.glob("tensors-*")
    if damage == "missing":
        tensors.unlink()
    else:
        path = tensors if damage == "tensors" else state / "state.json"
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="is damaged, begin again without --resume"):
        train_model(replace(options, resume=True))


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


def test_patience_ends_a_run_that_gets_no_better(options: Options) -> None:
    settings = replace(SMALL, learning_rate=1.0, decay=False, clip=100.0)
    trained = train_model(replace(options, settings=settings, max_steps=400, eval_every=2, patience=3)).training
    assert trained["steps"] < 400
    assert trained["steps"] == trained["best_step"] + 6


def test_a_warm_start_is_measured_before_its_first_step(options: Options) -> None:
    """And kept, if training only makes it worse; frozen parts stay to the byte."""
    first = train_model(replace(options, max_steps=200, eval_every=50))
    assert first.training["held_out"] is not None
    bad = replace(SMALL, learning_rate=0.3, decay=False, clip=100.0)
    warm = replace(options, model_dir=f"{options.model_dir}.warm", settings=bad, init_from=options.model_dir)
    again = train_model(warm)
    assert again.training["best_step"] == 0
    assert again.training["held_out"] == first.training["held_out"]
    said: list[str] = []
    frozen = replace(warm, model_dir=f"{options.model_dir}.frozen", init="encoder", freeze=("encoder",), settings=SMALL)
    half = train_model(frozen, Observer(said.append))
    weights, kept = dict(half.model.named_weights()), dict(first.model.named_weights())
    same = {name for name in weights if torch.equal(weights[name], kept[name])}
    assert {name for name in weights if name.startswith("encoder.")} <= same
    assert not any(name.startswith(("decoder.", "output.G")) for name in same)
    assert any(line.startswith("source: 19 of 19 words start from the other model") for line in said), said
    with pytest.raises(OptionError, match="name a model to start from"):
        train_model(replace(options, overwrite=True, freeze=("encoder",)))
