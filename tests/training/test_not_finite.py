"""Losses, gradients and weights that are no numbers: training stops and keeps the last good state."""

import json
from pathlib import Path

import pytest
import torch
from small_trainings import Training, files, small_training

from phrase_rescore.errors import RescoreError
from phrase_rescore.training.pairs import PairTask
from phrase_rescore.training.state import TrainingState

pytestmark = pytest.mark.slow

TINY = ("--hidden", 8, "--embedding", 4, "--maxout", 4, "--rank", 4, "--threads", 1)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return small_training(tmp_path, max_steps=20, eval_every=5)


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
    state = training.state_dir
    with monkeypatch.context() as broken:
        fail_at(broken, 13, what)
        with pytest.raises(RescoreError) as caught:
            training.run()
    assert str(caught.value) == (
        f"the loss is {what} and its gradient nan at step 13, {state} has the last good state; delete it and try a smaller "
        "--learning-rate; if the machine failed, continue with --resume"
    )
    assert not Path(training.model_dir).exists()
    assert json.loads((state / "state.json").read_bytes())["step"] == 10

    training.but(resume=True).run()
    assert files(Path(training.model_dir)) == files(Path(f"{training.model_dir}.whole"))
    assert not state.exists()


@pytest.mark.parametrize("held_out", [0, 20])
def test_weights_that_are_not_finite_never_replace_a_good_state(training, monkeypatch, held_out) -> None:
    """An update may overflow after the last gradient that was looked at."""
    step = torch.optim.Adam.step
    calls = [0]

    def overflowing(self, *args):
        step(self, *args)
        calls[0] += 1
        if calls[0] == 10:
            with torch.no_grad():
                self.param_groups[0]["params"][0].view(-1)[0] = float("inf")

    monkeypatch.setattr(torch.optim.Adam, "step", overflowing)
    with pytest.raises(RescoreError, match="at step 10, .* has the last good state; delete it and"):
        training.but(held_out=held_out).run()
    run = json.loads((training.state_dir / "state.json").read_text())["run"]
    saved, tensors, _ = TrainingState(str(training.state_dir), run).load()
    assert saved == 5
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
