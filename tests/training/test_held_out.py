"""Trainings without held-out pairs."""

import random
from pathlib import Path

import pytest
from small_trainings import Training

from phrase_rescore.errors import OptionError
from phrase_rescore.training.config import Observer

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path: Path) -> Training:
    """400 sources of ten targets each, which nothing but learning them tells: two sources are held out."""
    draw = random.Random(1)
    kinds = [draw.randrange(20) for _ in range(400)]
    pairs = "".join(f"w{i}\tx{kinds[i]} y{k}\n" for i in range(400) for k in range(10))
    (tmp_path / "pairs.tsv").write_text(pairs)
    training = Training((str(tmp_path / "pairs.tsv"),), str(tmp_path / "model"))
    return training.but(learning_rate=1e-2, max_steps=200, eval_every=100, held_out=40)


def test_patience_is_refused_without_held_out_pairs(training: Training) -> None:
    steps: list[int] = []
    few = Path(training.inputs[0]).with_name("few.tsv")
    few.write_bytes(b"".join(b"%d\tx\n" % i for i in range(199)))
    changes: tuple[dict[str, object], ...] = ({"held_out": 0}, {"inputs": (str(few),)}, {"held_out": 9})
    for change in changes:
        with pytest.raises(OptionError, match="--patience 3 needs held-out data, but there are none; hold out more"):
            training.but(**change, patience=3).run(Observer(on_step=lambda step, *_: steps.append(step)))
        assert not Path(training.model_dir).exists()
        assert not training.state_dir.exists()
    assert steps == []


def test_without_held_out_pairs_training_goes_to_its_end(training: Training) -> None:
    found = training.but(held_out=0, max_steps=6, eval_every=1).run().training
    assert (found["steps"], found["distinct_pairs"]["held_out"], found["held_out"]) == (6, 0, None)
