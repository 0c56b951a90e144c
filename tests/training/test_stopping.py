"""A training that is stopped keeps its steps: it continues to the same bytes, to another end, or becomes a model as it is."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Run
from small_trainings import SIZES, Stopped, Training, files, small_training, write_language

from phrase_rescore.api import train
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.training import loop
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.signals import FirstSignal
from phrase_rescore.training.state import TrainingState

Start = Callable[[list[str]], subprocess.Popen[str]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_waits_and_the_second_acts_at_once(number: signal.Signals) -> None:
    usual, met = signal.getsignal(number), list[int]()
    signal.signal(number, lambda number, frame: met.append(number))
    try:
        with FirstSignal() as stop:
            signal.raise_signal(number)
            assert (stop.number, met) == (number, [])
            signal.raise_signal(number)
            assert met == [number]
            stop.deliver(number)
        assert met == [number] * 2
        with FirstSignal():
            signal.raise_signal(number)
        assert met == [number] * 3, "at the end of the block"
        with pytest.raises(Stopped), FirstSignal():
            signal.raise_signal(number)
            raise Stopped
        assert met == [number] * 3, "what failed fails"
        with FirstSignal(waits=False) as stop:
            signal.raise_signal(number)
        assert (stop.number, met) == (0, [number] * 4)
    finally:
        signal.signal(number, usual)


def test_what_is_ignored_stays_ignored_and_other_threads_have_no_signals() -> None:
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with FirstSignal() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.number == 0
    finally:
        signal.signal(signal.SIGINT, usual)
    failed: list[Exception] = []

    def stay() -> None:
        try:
            with FirstSignal():
                pass
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=stay)
    thread.start()
    thread.join()
    assert not failed


@pytest.mark.parametrize(("settings", "steps", "seconds"), [
    ({}, 50, 3600.0), ({"max_steps": 9}, 9, None), ({"max_time": 9.0}, None, 9.0), ({"epochs": 2.0}, 20, None),
    ({"epochs": 2.0, "max_steps": 9}, 9, None), ({"epochs": 2.0, "max_steps": 99, "max_time": 9.0}, 20, 9.0),
    ({"epochs": 1e-9}, 1, None), ({"epochs": 1.01}, 11, None), ({"usual_time": 0.0}, 50, None),
    ({"epochs": 3.0, "batch_size": 200}, 3, None), ({"usual_steps": 49}, 50, 3600.0), ({"usual_steps": 51}, 51, 3600.0),
    ({"usual_steps": 51, "epochs": 2.0}, 20, None), ({"usual_steps": 9, "batch_size": 200}, 9, 3600.0),
])  # fmt: skip
def test_the_limits_of_a_training(settings: dict[str, float], steps: int | None, seconds: float | None) -> None:
    """Those that are given, of which the first counts; without one, five passes or an hour."""
    recipe = Recipe(**{"batch_size": 10, **settings})  # type: ignore[arg-type]
    limited = recipe.limited(recipe.limits() or recipe.usual_limits(100), 100)
    assert (limited.max_steps, limited.max_time) == (steps, seconds)
    assert recipe.passes(4, 100) == (4.0 if recipe.batch_size == 200 else 0.4)


@pytest.fixture
def start(tmp_path: Path, warm_path: str, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a command line in a process of its own, which does not ignore SIGINT as what a shell has in the background does."""
    monkeypatch.setenv("PATH", warm_path)
    program = "import signal; signal.signal(2, signal.default_int_handler); from phrase_rescore.cli.main import main; main()"
    return lambda line: subprocess.Popen(["python", "-c", program, *line], stderr=subprocess.PIPE, text=True)


def training_lines(tmp_path: Path) -> dict[str, list[str]]:
    """A command of each training, without -m."""
    write_language(tmp_path / "pairs.tsv", pairs=600)
    (tmp_path / "text").write_text("".join(f"a b c{i % 40} d{i % 7}\n" for i in range(900)))
    common = ["--max-steps", "400", "--eval-every", "50", "--threads", "1", "--device", "cpu"]
    lm = ["train-lm", str(tmp_path / "text"), "--order", "3", "--embedding", "8", "--hidden", "8", "--batch-size", "32"]
    return {"train": ["train", str(tmp_path / "pairs.tsv"), *SIZES, *common], "train-lm": [*lm, *common]}


def stopped(process: subprocess.Popen[str], lock: Path, step: int, number: signal.Signals) -> list[str]:
    """Send a signal after the measurement of a step to the process that holds the lock, and return what was said."""
    said = []
    with process:
        assert process.stderr
        for line in process.stderr:
            said.append(line.rstrip("\n"))
            if f": step {step}," in line:
                os.kill(int(lock.read_text().split()[1]), number)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["train", "train-lm"])
def test_a_signal_saves_the_step_and_the_rest_is_the_same(run: Run, start: Start, tmp_path: Path, kind: str) -> None:
    line = training_lines(tmp_path)[kind]
    whole, model = tmp_path / "whole", tmp_path / "model"
    assert run(*line, "-m", whole, "-q").status == 0
    for resume, after, number, word, status in (
        ((), 50, signal.SIGINT, "interrupted", 130), (("--resume",), 150, signal.SIGTERM, "terminated", 143),
        (("--resume",), 250, signal.SIGKILL, "", -signal.SIGKILL),
    ):  # fmt: skip
        process = start([*line, "-m", str(model), *resume])
        said = stopped(process, Path(f"{model}.lock"), after, number)
        assert process.returncode == status, said
        step = json.loads((tmp_path / "model.training" / "state.json").read_bytes())["step"]
        assert not word or said[-3:] == [
            f"phrase-rescore: {word}",
            f"phrase-rescore: step {step:,} is saved in {model}.training; the same command with --resume continues",
            "phrase-rescore: to keep it as it is, the same command with --finish makes the model",
        ]
        assert not model.exists()
    assert step >= 200
    assert run(*line, "-m", model, "-q", "--resume").status == 0
    assert files(model) == files(whole)
    logs = [re.sub(r'"seconds": [\d.]+', "", (path / "train.log.jsonl").read_text()) for path in (model, whole)]
    assert logs[0] == logs[1], "the training loss too"


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return small_training(tmp_path, max_steps=20, eval_every=8)


def interrupt(training: Training, at: int, run: Callable[[Observer], object] | None = None) -> BaseException:
    """Send SIGINT after a step of it, or of ``run``."""

    def send(step: int, *_: object) -> None:
        if step == at:
            signal.raise_signal(signal.SIGINT)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt) as caught:
        (run or training.run)(Observer(on_step=send))
    signal.signal(signal.SIGINT, usual)
    assert json.loads((training.state_dir / "state.json").read_bytes())["step"] == at
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 11, 16, 20])
def test_a_state_between_measurements_gives_the_same_bytes(training: Training, at: int) -> None:
    training.but(model_dir=f"{training.model_dir}.whole").run()
    interrupt(training, at)
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


@pytest.mark.slow
def test_states_are_saved_by_time(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a training does not measure; a kill between two states loses nothing else."""
    training.but(model_dir=f"{training.model_dir}.whole").run()
    steps: list[int] = []

    def look(step: int, *_: object) -> None:
        if (training.state_dir / "state.json").exists():
            steps.append(json.loads((training.state_dir / "state.json").read_bytes())["step"])
        if step == 13:
            raise Stopped

    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    with pytest.raises(Stopped):
        training.run(Observer(on_step=look))
    assert steps == list(range(13))
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


@pytest.mark.slow
@pytest.mark.parametrize(("given", "steps"), [
    ({}, 20), ({"max_steps": 30}, 30), ({"max_steps": 13}, 13), ({"max_steps": 5}, 11), ({"epochs": 2.0}, None),
    ({"max_steps": 25, "max_time": 5400.0}, 25),
])  # fmt: skip
def test_the_end_may_change_at_resume(training: Training, given: dict[str, float], steps: int | None) -> None:
    """And what is not given stays: the limits of the stopped training, not the usual ones."""
    interrupt(training, 11)
    found = training.but(max_steps=None, resume=True).but(**given).run().training
    assert found["steps"] == (steps or -(-2 * found["distinct_pairs"]["training"] // 32))
    assert found["max_seconds"] == given.get("max_time")
    assert not training.state_dir.exists()


@pytest.mark.slow
def test_the_time_of_a_training_is_that_of_all_its_sittings(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = itertools.count()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 60.0 * next(minutes)))
    interrupt(training.but(max_steps=None, max_time=1200.0), 11)
    assert training.but(max_steps=None, resume=True).run().training["steps"] < 20
    log = [json.loads(line) for line in (Path(training.model_dir) / "train.log.jsonl").read_text().splitlines()]
    seconds = [record["seconds"] for record in log]
    assert seconds == sorted(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("at", [3, 11, 16])
def test_a_stopped_training_is_finished_as_it_is(run: Run, training: Training, at: int) -> None:
    """With the best weights that were measured; they are measured now if there are none, or newer ones."""
    note = interrupt(training, at).__notes__
    assert note[1] == "to keep it as it is, the same command with --finish makes the model"
    found = training.but(finish=True, max_steps=99).run()
    assert (found.training["steps"], found.training["max_steps"]) == (at, 20)
    log = [json.loads(line) for line in (Path(training.model_dir) / "train.log.jsonl").read_text().splitlines()]
    assert [record["step"] for record in log] == [*range(8, at, 8), at]
    assert found.training["held_out"] == min((record["held_out"] for record in log), key=lambda figures: figures["loss"])
    assert load(training.model_dir)
    assert not training.state_dir.exists()
    for more in ({}, {"model_dir": f"{training.model_dir}.other"}):
        other = training.but(finish=True, **more)
        with pytest.raises(OptionError, match=f"--finish: no training in {other.state_dir}; "):
            other.run()


@pytest.mark.slow
def test_what_is_not_given_is_that_of_the_interrupted_training(run: Run, training: Training, tmp_path: Path) -> None:
    """Inputs and options. What is given must be as it was; a stream cannot be read again."""
    pairs, model, directory = training.inputs[0], training.model_dir, str(training.state_dir)
    settings = {"hidden": 8, "max_steps": 20, "held_out": 20, "threads": 1, "source_factor": 0, "batch_size": 32}
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert run("train", pairs, "-m", f"{model}.whole", *words).status == 0
    given = {name: value for name, value in settings.items() if name != "source_factor"} | {"factors": (0, None)}
    interrupt(training, 9, lambda observer: train(pairs, model, observer=observer, preset="default", **given))
    assert "hidden 8 → 9" in run("train", "-m", model, "--resume", "--hidden", "9").err
    assert run("train", "-m", model, "--resume").status == 0
    assert files(Path(model)) == files(Path(f"{model}.whole"))
    none = f"no training in {directory}; the model {model} is complete; "
    assert none in run("train", "-m", model, "--finish").err
    assert "no file to train on is given; only --resume and --finish do without\n" in run("train", "-m", model).err
    shutil.rmtree(model)
    interrupt(training, 9, lambda observer: train(pairs, model, observer=observer, preset="default", **given))
    state = json.loads((training.state_dir / "state.json").read_bytes())
    assert run("train", "-m", model, "--finish").status == 0
    assert json.loads((Path(model) / "config.json").read_bytes())["training"]["steps"] == 9
    stream = TrainingState(directory, state["run"])
    stream.command = state["command"] | {"inputs": ["-"]}
    stream.save(9, {}, {})
    with pytest.raises(OptionError, match="reads a stream; give the command as it was"):
        train((), model, resume=True)


def test_minibatches_are_made_ahead_by_one() -> None:
    """As on a GPU. The order stays; an error comes at its minibatch."""

    def batches() -> Iterator[int]:
        yield from range(3)
        raise RescoreError("the data end")

    ahead = loop._ahead(batches())
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RescoreError, match="the data end"):
        next(ahead)
