"""What a training says of itself: the loss and the time left; without a terminal, a line a minute."""

import re
import sys

import pytest

from phrase_rescore.cli import terminal
from phrase_rescore.cli.terminal import TrainingTalk

STEPS = 4000  # of the training


class Talk:
    """Tells a TrainingTalk of steps, at times of which this is the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quiet: bool = False) -> None:
        self.now, self.step = 50.0, 0
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)
        self.talk = TrainingTalk((), quiet, "pair")

    def __enter__(self) -> "Talk":
        self.observer = self.talk.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.talk.__exit__(*raised)

    def steps(self, number: int, seconds: float, loss: float = 8.0) -> None:
        for _ in range(number):
            self.now += seconds
            self.step += 1
            self.observer.on_step(self.step, (self.step - 1) / STEPS, loss)


def test_a_line_a_minute_of_a_training(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(terminal, "LOG_SECONDS", 0.0)  # after every step
    with Talk(monkeypatch) as talk:
        talk.steps(401, 2.0)
        talk.observer.on_record({"step": 401, "seconds": 802.0, "held_out": {"loss": 9.5, "perplexity": 7.0}})
        talk.steps(1, 2.0, loss=9.0)
    said = capsys.readouterr().err.splitlines()
    for line in (
        "training: 0%, 00:00, ? left, step 1, 8.00 nats/pair",
        "training: 10%, 13:20, 2:00:00 left, step 401, 8.00 nats/pair",
        "step 401, 13:22, held-out 9.500 nats/pair, perplexity 7.00",
        "training: 10%, 13:22, 1:59:58 left, step 402, 8.02 nats/pair, held-out 9.50",
    ):
        assert f"phrase-rescore: {line}" in said


def test_the_time_left_hardly_moves_when_the_loss_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def left() -> int:
        found = re.search(r"(\d+):(\d+):(\d+) left", str(talk.talk._bar))
        assert found
        hours, minutes, seconds = map(int, found.groups())
        return 3600 * hours + 60 * minutes + seconds

    with Talk(monkeypatch) as talk:
        talk.steps(400, 1.0)
        assert left() == pytest.approx(3601, abs=2)
        talk.now += 20.0
        talk.steps(1, 1.0)
        assert left() == pytest.approx(3600 * 1.05, rel=0.01)


def test_a_quiet_training_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Talk(monkeypatch, quiet=True) as talk:
        talk.steps(100, 2.0)
        talk.observer.on_record({"step": 100, "seconds": 200.0})
    assert capsys.readouterr().err == ""
