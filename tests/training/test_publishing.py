"""One training at a time into a directory; killed at any line of its end, it loses neither the old model nor the new one."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run
from small_trainings import SIZES, Training, files, small_training

from phrase_rescore.errors import OptionError
from phrase_rescore.files import locks, outputs
from phrase_rescore.files.paths import names_around
from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.training import state as training_state
from phrase_rescore.training.config import Observer

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return small_training(tmp_path, hidden=4, embedding=4, maxout=2, rank=2, max_steps=4, eval_every=2)


def at_step(wanted: int, action: Callable[[], object]) -> Observer:
    return Observer(on_step=lambda step, *_: action() if step == wanted else None)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_second_training_fails_at_once_and_says_who_holds_the_directory(training: Training, tmp_path: Path) -> None:
    """Before the first one's first measurement too; the directory may be spelt in another way."""
    told: list[str] = []
    (tmp_path / "link").symlink_to("model")

    def second() -> None:
        before = listing(tmp_path)
        for name in ("model", "model/", "./model", "link"):
            for more in ({}, {"overwrite": True}, {"resume": True}, {"pairs_dir": str(tmp_path / "others")}):
                with pytest.raises(OptionError) as caught:
                    training.but(model_dir=f"{tmp_path}/{name}", seed=2, **more).run()
                told.append(str(caught.value))
        assert listing(tmp_path) == before

    training.run(at_step(1, second))
    who = rf"process {os.getpid()} on {re.escape(os.uname().nodename)} since [-:\d ]{{19}} \(.*/model.lock\)"
    said = rf".* is in use by {who}; wait until it ends, or name another directory with -m"
    assert [bool(re.fullmatch(said, line)) for line in told] == [True] * 16
    assert listing(tmp_path) == ["link", "model", "model.pairs", "pairs.tsv"]


def test_one_store_is_prepared_by_one_training_at_a_time(training: Training, tmp_path: Path) -> None:
    """And read by many: who finds it whole needs no lock."""
    shared = training.but(pairs_dir=str(tmp_path / "shared"))
    told: list[str] = []

    def second(pairs: int) -> None:
        if not told:
            with pytest.raises(OptionError) as caught:
                shared.but(model_dir=str(tmp_path / "other"), inverse=True).run()
            told.append(str(caught.value))

    shared.run(Observer(on_pairs=second))
    said = rf"{tmp_path}/shared is in use by process {os.getpid()} on .*; wait until it ends: it prepares pairs there"
    assert re.fullmatch(said, *told)
    other = shared.but(model_dir=str(tmp_path / "other"), inverse=True)
    shared.but(model_dir=str(tmp_path / "third")).run(at_step(1, other.run))
    with locks.locked(str(tmp_path / "shared"), ""):
        shared.but(model_dir=str(tmp_path / "fourth")).run()
    assert listing(tmp_path) == ["fourth", "model", "other", "pairs.tsv", "shared", "third"]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("at", ["about_to_publish", "remove"])
def test_interrupted_at_its_end(training, tmp_path, monkeypatch, older, at) -> None:
    """Before the model has its name, and after it; at every other line: tests/faults/signals.py."""
    training.but(model_dir=str(tmp_path / "expected")).run()
    if older:
        training.but(seed=5, pairs_dir=str(tmp_path / "expected.pairs")).run()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(training_state.TrainingState, at, interrupt)
        training.but(overwrite=older).run()
    assert Path(training.model_dir).exists() == (older or at == "remove")
    training.but(overwrite=older, resume=True).run()
    assert files(Path(training.model_dir)) == files(tmp_path / "expected")
    assert listing(tmp_path) == ["expected", "expected.pairs", "model", "model.pairs", "pairs.tsv"]


def test_a_trailing_slash_is_no_part_of_the_name(run: Run, training: Training, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_bytes((tmp_path / "pairs.tsv").read_bytes() + b"oops\n")
    to = "train", tmp_path / "pairs.tsv", "-m", f"{tmp_path}/model//", *SIZES, "--max-steps", 2, "--on-bad-row", "drop"
    for more in ((), ("--overwrite",)):
        assert run(*to, *more).status == 0
        assert listing(tmp_path) == ["model", "model.dropped", "model.pairs", "pairs.tsv"]
        assert (tmp_path / "model.dropped").read_bytes() == b"oops\n"


def test_names_that_are_not_utf_8(training: Training, tmp_path: Path) -> None:
    """They stand in config.json, which is written at the very end."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n\xff.tsv")
    Path(training.inputs[0]).rename(odd)
    name = os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe9l")
    training.but(inputs=(odd,), model_dir=name).run()
    assert load(name).training["inputs"] == ["caf\udce9\n\udcff.tsv"]
    again = training.but(inputs=(odd,), model_dir=f"{name}2")
    again.stop_after(3)
    again.but(resume=True).run()
    assert files(Path(f"{name}2")) == files(Path(name))


def test_a_disk_that_fills_at_the_end_keeps_the_training(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str) -> None:
        if path.startswith(names_around(training.model_dir)[1]):
            raise OSError(28, "No space left on device")

    training.but(model_dir=f"{training.model_dir}.whole").run()
    with monkeypatch.context() as broken:
        broken.setattr(outputs, "sync", full)
        with pytest.raises(Exception, match="cannot write .*No space left on device; make room") as caught:
            training.but(pairs_dir=f"{training.model_dir}.whole.pairs").run()
    note = f"{training.state_dir} has the whole training; the same command with --resume continues"
    assert caught.value.__notes__ == [note]
    training.but(pairs_dir=f"{training.model_dir}.whole.pairs", resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


def test_what_a_failing_disk_keeps_of_a_training_goes_with_the_next(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(training_state.TrainingState, "remove", lambda state: None)
        training.run()
    assert load(training.model_dir)
    training.but(overwrite=True).run()
    assert not os.path.exists(f"{training.model_dir}.training")
