"""What somebody else, or a fault, left in the place of a training's state: nothing of it is followed, an error is one line."""

import contextlib
import json
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Run
from permissions import files_of_at_most
from safetensors.torch import save
from small_trainings import Stopped

from phrase_rescore import api
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.training import state as training_state
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import DivergedError, Trainer
from phrase_rescore.training.state import TrainingState

Train = Callable[..., dict[str, Any]]


@pytest.fixture(params=["train", "train_lm", "train_nmt"])
def train(request: pytest.FixtureRequest, tmp_path: Path) -> Train:
    """A training of a step of each kind into ``m``."""
    texts = {side: [f"{side}{i % 37} {side}{i % 11}\n" for i in range(300)] for side in "st"}
    rows = [f"{src.strip()}\t{tgt}" for src, tgt in zip(*texts.values(), strict=True)]
    for name, lines in (*texts.items(), ("tsv", rows)):
        (tmp_path / name).write_text("".join(lines))
    inputs = [tmp_path / name for name in {"train": ["tsv"], "train_lm": ["s"], "train_nmt": ["s", "t"]}[request.param]]
    sizes = {"hidden": 8, "embedding": 4, "max_steps": 1, "threads": 1}

    def train(**more: Any) -> dict[str, Any]:
        return getattr(api, request.param)(inputs, tmp_path / "m", **sizes | more)  # type: ignore[no-any-return]

    train.__name__ = request.param
    return train


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_the_place_of_the_log_is_replaced(tmp_path: Path, train: Train, link: Callable[..., None]) -> None:
    (tmp_path / "m.training").mkdir()
    (tmp_path / "victim").write_text("precious")
    link(tmp_path / "victim", tmp_path / "m.training" / "train.log.jsonl")
    train()
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "m" / "train.log.jsonl").read_text().count("\n") == 1


def test_a_link_in_the_place_of_the_state_is_refused(tmp_path: Path, train: Train) -> None:
    """At the end of a training all in it is deleted."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis").write_text("precious")
    (tmp_path / "m.training").symlink_to("victim")
    with pytest.raises(OptionError, match="m.training is a link"):
        train()
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["thesis"]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["state.json.new", "tensors-000000001.safetensors.new", "published.new"])
def test_links_in_the_place_of_what_is_saved_are_replaced(tmp_path: Path, train: Train, name: str) -> None:
    (tmp_path / "m.training").mkdir()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "m.training" / name).symlink_to(tmp_path / "victim")
    train()
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_log_that_cannot_be_written_says_what_is_kept(tmp_path: Path, train: Train) -> None:
    """Nothing before the first save."""
    log = tmp_path / "m.training" / "train.log.jsonl"

    def broken(record: dict[str, Any]) -> None:
        if not log.is_dir():
            log.unlink()
            log.mkdir()

    with pytest.raises(RescoreError, match=f"cannot write {log}") as caught:
        train(max_steps=2, eval_every=1, observer=Observer(on_record=broken))
    assert [note for note in caught.value.__notes__ if f"{log.parent} has the last save" in note]
    (log.parent / "state.json").unlink()
    with pytest.raises(RescoreError, match=f"cannot write {log}") as caught:
        train()
    assert not getattr(caught.value, "__notes__", [])


def changed(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a state, with the right checksum."""
    state = json.loads((directory / "state.json").read_bytes())
    del state["crc"]
    change(state)
    state["crc"] = training_state._crc(state)
    (directory / "state.json").write_text(json.dumps(state))


def entry(*names: Any, to: object) -> Callable[[dict[str, Any]], object]:
    def change(state: dict[str, Any]) -> None:
        for name in names[:-1]:
            state = state[name]
        state[names[-1]] = to

    return change


COMMANDS = [
    entry("command", to=[]), entry("command", to={}), entry("command", "preset", to="zz"), entry("command", "preset", to=[]),
    entry("command", "settings", to=[]), entry("command", "settings", to={"zzz": 1}), entry("command", "inputs", to=5),
    entry("command", "inputs", to=[1]), entry("command", "settings", "seed", to="x"), entry("run", to=5),
    entry("command", "settings", "device", to=5), entry("command", "settings", "threads", to=None),
    entry("limits", to={"epochs": "x"}), entry("limits", to={"zzz": 1}), entry("limits", to={"epochs": math.inf}),
    entry("step", to="x"), entry("tensors_crc", to=None), entry("figures", to=[]),
]  # fmt: skip
FIGURES = [
    entry("figures", to={}), entry("figures", "losses", to=[]), entry("figures", "best", to=[1]),
    entry("figures", "records", to=[{}]), entry("figures", "records", to=[5]), entry("figures", "zzz", to=1),
    entry("figures", "records", 0, "held_out", to=3), entry("figures", "seconds", to="x"), entry("tensors_crc", to=0),
]  # fmt: skip


@pytest.fixture
def stopped(tmp_path: Path, train: Train) -> Path:
    def stop(step: int, *_: object) -> None:
        if step == 2:
            raise Stopped

    with pytest.raises(Stopped):
        train(max_steps=3, eval_every=1, observer=Observer(on_step=stop))
    return tmp_path / "m.training"


@pytest.mark.parametrize("train", ["train_lm"], indirect=True)
@pytest.mark.parametrize("change", [*COMMANDS, *FIGURES])
def test_a_state_with_other_entries_is_one_line(run: Run, stopped: Path, train: Train, change: Callable[..., object]) -> None:
    changed(stopped, change)
    command = train.__name__.replace("_", "-")
    for ending in ("--resume", "--finish"):
        result = run(command, "-m", stopped.parent / "m", ending)
        assert result.status in (1, 2)
        error = [line for line in result.err.splitlines() if "error: " in line or "Traceback" in line]
        assert len(error) == 1
        assert str(stopped) in error[0]
        assert "Traceback" not in result.err


@pytest.mark.parametrize("train", ["train_lm"], indirect=True)
def test_a_tensor_that_does_not_fit_is_one_line(run: Run, stopped: Path, train: Train) -> None:
    (tensors,) = stopped.glob("tensors-*")
    for data in (save({"module.x": torch.zeros(1)}), b"junk"):
        tensors.write_bytes(data)
        changed(stopped, entry("tensors_crc", to=zlib.crc32(data)))
        result = run(train.__name__.replace("_", "-"), "-m", stopped.parent / "m", "--resume")
        assert (result.status, "Traceback" in result.err) == (1, False)
        assert str(stopped) in result.last_line


def test_what_is_there_without_a_training_is_named(run: Run, tmp_path: Path, train: Train) -> None:
    command, model = train.__name__.replace("_", "-"), tmp_path / "m"

    def said(*more: str) -> str:
        result = run(command, "-m", model, *more)
        assert result.status == 2
        return result.last_line

    for ending in ("--finish", "--resume"):
        assert f"no training in {model}.training; there is nothing of it" in said(ending)
    data = "text" if command == "train-lm" else "pairs"
    train()
    assert f"the model {model} is complete" in said("--finish")
    shutil.rmtree(model)
    assert f"only the prepared data are there, {model}.{data}" in said("--finish")
    Path(f"{model}.training").mkdir()
    assert "stopped before its first save" in said("--finish")
    with pytest.raises(OptionError, match="--finish: no training in .*stopped before its first save"):
        train(finish=True)


def test_a_first_save_that_fails_keeps_nothing(tmp_path: Path) -> None:
    state = TrainingState(str(tmp_path / "state"), {})
    with files_of_at_most(100), pytest.raises(RescoreError, match="cannot be saved") as caught:
        state.save(5, {"a": torch.arange(1000.0)}, {})
    assert "intact" not in str(caught.value)


class Absurd:
    """A task whose losses are finite and absurd."""

    module = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(0.0))])

    def __init__(self, perplexities: list[float]) -> None:
        self._perplexities = iter(perplexities)

    def batches(self, first: int) -> Iterator[list[float]]:
        return repeat([1.0])

    def parts(self, batch: list[float], parts: int, step: int = 0, done: float = 1.0) -> list[list[float]]:
        return [batch] * parts

    def pieces(self, part: list[float]) -> list[list[float]]:
        return [part]

    def loss(self, module: Any, piece: list[float]) -> torch.Tensor:
        return module[0] ** 2  # type: ignore[no-any-return]

    def evaluate(self) -> dict[str, float]:
        perplexity = next(self._perplexities)
        return {"loss": math.log(perplexity), "perplexity": perplexity}


@pytest.mark.parametrize(("perplexities", "diverged"), [([1e31, 1e300], True), ([1e31, 9.0], False), ([9.0, 1e31], False)])
def test_a_training_that_diverged_makes_no_model(perplexities: list[float], diverged: bool) -> None:
    trainer = Trainer(Absurd(perplexities), Recipe(max_steps=2, eval_every=1))
    with pytest.raises(DivergedError, match=f"{perplexities[0]:.0e}"[:3]) if diverged else contextlib.nullcontext():
        trainer.fit()


def test_a_training_that_diverged_names_the_learning_rate(tmp_path: Path, train: Train) -> None:
    with pytest.raises(RescoreError, match=r"smaller --learning-rate") as caught:
        train(learning_rate=1000.0, clip=1e9, decay=False, warm_up=0.0, max_steps=40, eval_every=40)
    assert "last good state" not in str(caught.value)
    assert not (tmp_path / "m").exists()
