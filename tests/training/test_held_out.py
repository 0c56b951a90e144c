"""Trainings without held-out pairs."""

from pathlib import Path

import pytest
from small_trainings import Training, small_training

from phrase_rescore.errors import OptionError
from phrase_rescore.training.config import Observer

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return small_training(tmp_path, max_steps=6, eval_every=1)


def test_patience_is_refused_if_too_few_sources_are_there_to_hold_any_out(training: Training) -> None:
    steps: list[int] = []
    Path(training.inputs[0]).write_bytes(b"".join(b"%d\tx\n" % i for i in range(199)))
    with pytest.raises(OptionError, match="--patience 3 needs held-out data, but there are none; hold out more"):
        training.but(patience=3).run(Observer(on_step=lambda step, *_: steps.append(step)))
    assert not Path(training.model_dir).exists()
    assert not training.state_dir.exists()
    assert steps == []


def test_without_held_out_pairs_training_goes_to_its_end(training: Training) -> None:
    found = training.but(held_out=0).run().training
    assert (found["steps"], found["distinct_pairs"]["held_out"], found["held_out"]) == (6, 0, None)
