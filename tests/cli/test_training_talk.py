"""What a training says of itself: when it will end, and, without a terminal, a line a minute."""

import re
import sys
from dataclasses import replace

import pytest

from phrase_rescore.cli import terminal
from phrase_rescore.cli.terminal import TrainingTalk
from phrase_rescore.training.config import Recipe

RECIPE = Recipe(batch_size=10)  # of 1,000 pairs: a pass has 100 steps


class Talk:
    """Tells a TrainingTalk of steps, at times of which this is the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, limits: dict[str, float], quiet: bool = False) -> None:
        self.now, self.step = 50.0, 0
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)
        self._talk, self._recipe = TrainingTalk((), quiet, "pair", "pairs"), recipe.limited(limits, 1000)

    def __enter__(self) -> "Talk":
        self.observer = self._talk.__enter__()
        self.observer.on_start(self._recipe, 1000)
        return self

    def __exit__(self, *raised: object) -> None:
        self._talk.__exit__(*raised)

    def steps(self, number: int, seconds: float, loss: float = 8.0) -> None:
        for _ in range(number):
            self.now += seconds
            recipe, spent = self._recipe, self.now - seconds - 50.0
            done = max(self.step / (recipe.max_steps or 1e9), spent / (recipe.max_time or 1e9))
            if done >= 1.0:
                break
            self.step += 1
            self.observer.on_step(self.step, done, loss, 10)


@pytest.mark.parametrize(("limits", "seconds", "plan"), [
    ({"epochs": 5.0, "max_time": 3600.0}, 2.0, "500 steps, 5 passes (--epochs), in about 16:30 at 5 pairs/s"),
    ({"epochs": 5.0, "max_time": 3600.0}, 20.0,
     "1:00:00 (--max-time), at about step 181, 1.8 of 5 passes, at 0 pairs/s; for all of them --max-time 3h"),
    ({"epochs": 5.0, "max_time": 600.0}, 2.0,
     "10:00 (--max-time), at about step 301, 3 of 5 passes, at 5 pairs/s; for all of them --max-time 17m"),
    ({"max_time": 600.0}, 2.0, "10:00 (--max-time), at about step 301, 3 passes, at 5 pairs/s"),
    ({"max_steps": 123}, 2.0, "123 steps, 1.23 passes (--max-steps), in about 03:56 at 5 pairs/s"),
    ({"epochs": 5.0, "max_steps": 123}, 2.0, "123 steps, 1.23 passes (--max-steps), in about 03:56 at 5 pairs/s"),
    ({"max_time": 8.0}, 2.0, ""),
])  # fmt: skip
def test_when_a_training_will_end(monkeypatch, capsys, limits: dict[str, float], seconds: float, plan: str) -> None:
    """It is said once, when its speed has been measured for ten seconds."""
    with Talk(monkeypatch, RECIPE, limits) as talk:
        talk.steps(1, seconds)
        assert "ends after" not in capsys.readouterr().err
        talk.steps(10, seconds)
    found = [line for line in capsys.readouterr().err.splitlines() if "ends after" in line]
    assert found == ([f"phrase-rescore: training ends after {plan}"] if plan else [])


def test_a_line_a_minute_of_a_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.0)  # after every step
    with Talk(monkeypatch, RECIPE, {"max_steps": 200}) as talk:
        talk.steps(20, 2.0)
        talk.observer.on_record({"step": 20, "seconds": 40.0, "held_out": {"loss": 9.5, "perplexity": 7.0}})
        talk.steps(1, 2.0, loss=9.0)
    said = capsys.readouterr().err.splitlines()
    for line in (
        "training: 0%, 00:00, ? left, step 1, 0.01 passes, 8.00 nats/pair, 0 pairs/s",
        "training: 2%, 00:08, 06:32 left, step 5, 0.05 passes, 8.00 nats/pair, 5 pairs/s",
        "training: 10%, 00:38, 06:02 left, step 20, 0.20 passes, 8.00 nats/pair, 5 pairs/s",
        "step 20, 00:40, held-out 9.500 nats/pair, perplexity 7.00",
        "training: 10%, 00:40, 06:00 left, step 21, 0.21 passes, 8.02 nats/pair, held-out 9.50, 5 pairs/s",
    ):
        assert f"phrase-rescore: {line}" in said


def test_the_time_left_hardly_moves_when_the_loss_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(terminal, "PLAN_SECONDS", float("inf"))

    def left() -> int:
        found = re.search(r"(?:(\d+):)?(\d+):(\d+) left", str(talk._talk._bar))
        assert found
        hours, minutes, seconds = (int(number or 0) for number in found.groups())
        return 3600 * hours + 60 * minutes + seconds

    with Talk(monkeypatch, replace(RECIPE, decay=False), {"max_steps": 4000}) as talk:
        talk.steps(400, 1.0)
        assert left() == pytest.approx(3601, abs=2)
        talk.now += 20.0
        talk.steps(1, 1.0)
        assert left() == pytest.approx(3600 * 1.05, rel=0.01)
        assert "8.00 nats/pair" in str(talk._talk._bar)


def test_a_quiet_training_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Talk(monkeypatch, RECIPE, {"max_steps": 200}, quiet=True) as talk:
        talk.steps(100, 2.0)
        talk.observer.on_record({"step": 100, "seconds": 200.0})
    assert capsys.readouterr().err == ""
