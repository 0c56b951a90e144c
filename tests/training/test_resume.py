"""A training killed at any moment, or stopped by numbers that are none, continues to the very same weights."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from conftest import Run
from permissions import files_of_at_most
from small_trainings import SIZES, Training, files, small_training

from phrase_rescore.errors import ModelError, OptionError, RescoreError
from phrase_rescore.nn import softmax
from phrase_rescore.training import loop
from phrase_rescore.training.config import Observer
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.pairs import PairTask, is_sampled
from phrase_rescore.training.state import TrainingState

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return small_training(tmp_path, max_steps=20, eval_every=5)


def log_steps(directory: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (directory / "train.log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.3), ("adadelta", 30.0)])
def test_the_best_model_and_the_averages_survive(training: Training, optimizer: str, rate: float) -> None:
    training = training.but(optimizer=optimizer, learning_rate=rate, clip=100.0, decay=False, threads=2, eval_every=2)
    whole = training.but(model_dir=f"{training.model_dir}.whole").run()
    assert whole.training["best_step"] < 20, "the best step should come before the end"
    for at in (7, 13):
        (training if at == 7 else training.but(resume=True)).stop_after(at)
        assert log_steps(training.state_dir) == [*range(2, at, 2)]
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


def stored(directory: str) -> dict[str, tuple[int, int]]:
    """Which files a directory has, and when they were written."""
    return {entry.name: (entry.inode(), entry.stat().st_mtime_ns) for entry in os.scandir(directory)}


def test_another_run_is_not_resumed(training: Training) -> None:
    """The message lists all that differs, and the interrupted run's pairs stay as they are."""
    training.stop_after(12)
    pairs = stored(f"{training.model_dir}.pairs")
    for changed, told in (
        (training.but(seed=2), "seed 1 → 2"),
        (training.but(inverse=True), "inverse false → true"),
        (training.but(learning_rate=0.5, patience=3), "learning_rate 0.008 → 0.5"),
        (training.but(max_steps=30, hidden=16, seed=2), "hidden 32 → 16, maxout 16 → 8, seed 1 → 2"),
        (training.but(held_out=10, min_count=2), "held_out 20 → 10, min_count 1 → 2"),
        (training.but(init_from=training.model_dir), ""),
    ):
        with pytest.raises(RescoreError, match=f"--resume: .* data: {told}; give the command as it was" if told else None):
            changed.but(resume=True).run()
        assert stored(f"{training.model_dir}.pairs") == pairs
    for overwrite in (False, True):
        with pytest.raises(OptionError, match="continue with --resume, keep it with --finish, or delete it to start over"):
            training.but(overwrite=overwrite).run()
    with open(training.inputs[0], "a") as stream:
        stream.write("s1 s1 s1\tt9\n")
    size = os.path.getsize(training.inputs[0])
    with pytest.raises(OptionError, match=rf'inputs 1 ".*pairs.tsv \({size - 12} bytes of .* → ".*pairs.tsv \({size} bytes of'):
        training.but(resume=True).run()
    assert stored(f"{training.model_dir}.pairs") == pairs
    TrainingState(str(training.state_dir), {}).remove()
    training.run()


def test_other_data_on_standard_input_is_refused(run, training, tmp_path, monkeypatch) -> None:
    """Though their number is the same; the pairs of the interrupted run stay, and its own data go on."""
    data = Path(training.inputs[0]).read_bytes()
    line = ("train", "-", *SIZES, "--max-steps", 20, "--eval-every", 5, "--held-out", 20, "--threads", 1, "-q", "-m")
    assert run(*line, tmp_path / "whole", stdin=data).status == 0
    step = Trainer.step

    def until_the_twelfth(trainer: Trainer, *given: object) -> None:
        if trainer.steps == 12:
            raise RescoreError("stopped")
        step(trainer, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", until_the_twelfth)
        assert run(*line, training.model_dir, stdin=data).status == 1
    pairs = stored(f"{training.model_dir}.pairs")
    refused = run(*line, training.model_dir, "--resume", stdin=data.replace(b"\tt1\n", b"\tt2\n"))
    assert refused.status == 2
    assert re.search(r'training had other options or data: pairs_content "\w{32}" → "\w{32}"', refused.last_line)
    assert stored(f"{training.model_dir}.pairs") == pairs
    assert run(*line, training.model_dir, "--resume", stdin=data).status == 0
    assert files(tmp_path / "model") == files(tmp_path / "whole")


def test_a_sampled_softmax_draws_the_same_words_after_a_resume(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phrase_rescore.training.pairs.WORTHWHILE", 1)
    monkeypatch.setattr(softmax, "SURE", 4)
    seeds: list[tuple[int, ...]] = []
    true_words = softmax.sampled_words

    def drawn(targets: torch.Tensor, K: int, seed: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        seeds.append(seed)
        return true_words(targets, K, seed)

    monkeypatch.setattr(softmax, "sampled_words", drawn)
    training = training.but(softmax="sampled", threads=2)
    whole = training.but(model_dir=f"{training.model_dir}.whole").run()
    assert whole.training["softmax"] == "sampled"
    assert sorted(seeds) == [(1, step, part) for step in range(19) for part in range(2)]  # of 20 steps; the rest are exact
    training.stop_after(12)
    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))
    training.but(model_dir=f"{training.model_dir}.auto", softmax="auto").run()
    assert files(Path(f"{training.model_dir}.auto")) == files(Path(f"{training.model_dir}.whole"))
    full = training.but(model_dir=f"{training.model_dir}.full", softmax="full").run()
    assert not torch.equal(whole.model.decoder.G_l, full.model.decoder.G_l)


@pytest.mark.parametrize(("kind", "words", "device", "sampled"), [
    ("auto", 6_000, "cpu", True), ("auto", 5_999, "cpu", False), ("auto", 15_002, "cuda:0", False),
    ("sampled", 6_000, "cuda:0", True), ("sampled", 5_999, "cpu", False), ("full", 15_002, "cpu", False),
])  # fmt: skip
def test_when_a_softmax_is_sampled(kind: str, words: int, device: str, sampled: bool) -> None:
    assert is_sampled(kind, words, device) is sampled


def test_what_does_not_change_the_weights_may_change_at_resume(training: Training) -> None:
    training.but(model_dir=f"{training.model_dir}.whole").run()
    training.stop_after(12)
    said: list[str] = []
    changed = training.but(drop_bad_rows=True, patience=9, memory=1 << 20)
    changed.but(resume=True).run(Observer(said.append))
    assert any("distinct pairs: found prepared" in line for line in said), said
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))


@pytest.mark.parametrize("text", [
    '{"format_version": 5}', '{"format_version": 6, "crc": 0}', "[3]", "{}", '{"format_version": 2, "run": {}}',
    "[" * 100_000, "\xff", "9" * 5000, "",
])  # fmt: skip
def test_a_state_that_is_none_is_one_line(run: Run, training: Training, tmp_path: Path, text: str) -> None:
    training.state_dir.mkdir()
    (training.state_dir / "state.json").write_bytes(text.encode("latin-1"))
    result = run("train", *training.inputs, "-m", tmp_path / "model", "--resume", "-q")
    assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1), result.err
    assert re.search(rf"{training.state_dir}/state.json: .*delete {training.state_dir} to start over\n", result.err)


def test_a_changed_state_is_told(training: Training) -> None:
    """Both files are found by their CRC-32."""
    training.stop_after(12)
    state, tensors = training.state_dir / "state.json", training.state_dir / "tensors-000000010.safetensors"
    damaged = f"the state is damaged, delete {training.state_dir} to start over"
    for path in (state, tensors):
        whole = path.read_bytes()
        for changed in (whole.replace(b"1", b"2", 1), whole[:-100]):
            path.write_bytes(changed)
            with pytest.raises(ModelError, match=damaged):
                training.but(resume=True).run()
        path.write_bytes(whole)
    tensors.unlink()
    with pytest.raises(ModelError, match=f"No such file.*{damaged}"):
        training.but(resume=True).run()


def test_a_state_is_on_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, on_disk = os.fsync, set[int]()
    monkeypatch.setattr(os, "fsync", lambda handle: (fsync(handle), on_disk.add(os.fstat(handle).st_ino)))
    state = TrainingState(str(tmp_path / "state"), {})
    state.save(5, {"a": torch.zeros(3)}, {})
    state.about_to_publish(str(tmp_path))
    files = tmp_path / "state" / "state.json", tmp_path / "state" / "published", *tmp_path.glob("state/tensors*")
    assert {path.stat().st_ino for path in (tmp_path / "state", *files)} == on_disk


def test_a_full_disk_leaves_the_last_state(tmp_path: Path) -> None:
    state = TrainingState(str(tmp_path / "state"), {"seed": 1})
    state.save(5, {"a": torch.arange(1000.0)}, {"seconds": 1.0})
    told = "the state of step 10 cannot be saved .*; the last one is intact"
    with files_of_at_most(2000), pytest.raises(RescoreError, match=told):  # a little less than a state needs
        state.save(10, {"a": torch.arange(1000.0) + 1}, {"seconds": 2.0})
    step, tensors, figures = state.load()
    assert (step, figures) == (5, {"seconds": 1.0})
    assert tensors["a"].tolist() == list(range(1000))
    assert sorted(os.listdir(state.directory)) == ["state.json", "tensors-000000005.safetensors"]


def test_a_warm_start_is_measured_before_its_first_step(training: Training) -> None:
    """And kept, if training only makes it worse."""
    first = training.but(max_steps=200, eval_every=50).run()
    assert first.training["held_out"] is not None
    warm = training.but(model_dir=f"{training.model_dir}.warm", init_from=training.model_dir)
    warm = warm.but(learning_rate=0.3, decay=False, clip=100.0)
    warm.stop_after(12)
    again = warm.but(resume=True).run()
    assert log_steps(Path(warm.model_dir)) == [0, 5, 10, 15, 20]
    assert again.training["best_step"] == 0
    assert again.training["held_out"] == first.training["held_out"]


def fail_at(monkeypatch: pytest.MonkeyPatch, call: int, what: float) -> None:
    """From this call on (one a step, from 1) losses are ``what``: as of a broken machine, for no reason in data or options."""
    loss, calls = PairTask.loss, [0]

    def broken(self, module, part):
        calls[0] += 1
        return loss(self, module, part) * (what if calls[0] >= call else 1.0)

    monkeypatch.setattr(PairTask, "loss", broken)


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
def test_training_stops_and_goes_on_from_the_last_good_state(training, monkeypatch, what) -> None:
    training.but(model_dir=f"{training.model_dir}.whole").run()
    with monkeypatch.context() as broken:
        fail_at(broken, 13, what)
        said = f"the loss is {what} and its gradient nan at step 13, {training.state_dir} has the last good state"
        with pytest.raises(RescoreError, match=said):
            training.run()
    assert not Path(training.model_dir).exists()
    assert json.loads((training.state_dir / "state.json").read_bytes())["step"] == 10

    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))
    assert not training.state_dir.exists()


@pytest.mark.parametrize(("held_out", "at", "seconds", "good"), [(0, 10, 300.0, 5), (20, 10, 300.0, 5), (20, 9, 0.0, 8)])
def test_weights_that_are_not_finite_never_replace_a_good_state(training, monkeypatch, held_out, at, seconds, good) -> None:
    """An update may overflow after the last gradient that was looked at."""
    step = torch.optim.Adam.step
    calls = [0]

    def overflowing(self, *args):
        step(self, *args)
        calls[0] += 1
        if calls[0] == at:
            with torch.no_grad():
                self.param_groups[0]["params"][0].view(-1)[0] = float("inf")

    monkeypatch.setattr(torch.optim.Adam, "step", overflowing)
    monkeypatch.setattr(loop, "SAVE_SECONDS", seconds)
    with pytest.raises(RescoreError, match=f"at step {at}, .* has the last good state; delete it and"):
        training.but(held_out=held_out).run()
    saved, tensors, _ = TrainingState(str(training.state_dir), {}).load()
    assert saved == good
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
