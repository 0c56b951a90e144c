"""The loop: steps by hand, rates, clipping, what ends it; minibatches of no pairs."""

import math
from dataclasses import replace

import pytest
import torch

from phrase_rescore.data.ragged import EncodedPairs, Ragged
from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.loop import Trainer
from phrase_rescore.training.pairs import with_other_sources


class Parabola:
    """(x - 3)²: what the loop can train without knowing a network."""

    def __init__(self):
        self.module = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(0.0))])

    def batches(self, first):
        while True:
            yield [1.0, 1.0]

    def parts(self, batch, parts, step=0, done=1.0):
        return [sum(batch) / parts] * parts

    def pieces(self, part):
        return [part]

    def loss(self, module, part):
        return part * (module[0] - 3.0) ** 2

    def evaluate(self):
        return {"loss": (self.module[0].item() - 3.0) ** 2}


RECIPE = Recipe(learning_rate=0.1, warm_up=0.0, max_steps=200, eval_every=50)


def test_the_paper_s_first_step_by_hand():
    """Adadelta: Δx = -√(0 + ε) / √(0.05 g² + ε) g, the gradient of the *sum* clipped at norm 1 first."""
    task = Parabola()
    Trainer(task, replace(PRESETS["paper"].recipe, max_steps=1)).fit()
    g = -1.0  # 2 · 2 · (0 - 3) = -12, clipped
    assert task.module[0].item() == pytest.approx(-math.sqrt(1e-6) / math.sqrt(0.05 * g * g + 1e-6) * g, rel=1e-4)


@pytest.mark.parametrize(("clip", "gradient"), [(0.01, -0.01), (0.5, -0.5), (1e6, -6.0)])  # a shorter one stays as it is
def test_the_clipped_norm_is_the_one_asked_for(clip, gradient):
    task = Parabola()
    Trainer(task, replace(RECIPE, clip=clip)).step([1.0, 1.0], 0.5)
    assert task.module[0].grad.item() == pytest.approx(gradient, rel=1e-3)


@pytest.mark.parametrize("done", [0.0, 0.9])
def test_a_step_has_the_rate_of_its_moment(done):
    """Adam's first step is as long as the rate."""
    task = Parabola()
    Trainer(task, RECIPE).step([1.0, 1.0], done)
    assert task.module[0].item() == pytest.approx(RECIPE.rate(done), rel=1e-4)


def test_rates():
    recipe = replace(RECIPE, warm_up=0.1)
    assert recipe.rate(0.0) == pytest.approx(0.001)
    assert recipe.rate(0.5) == pytest.approx(0.05)
    assert recipe.rate(1.0) == 0.0
    assert replace(RECIPE, decay=False).rate(0.9) == pytest.approx(0.1)


def test_what_stops_training():
    with pytest.raises(OptionError, match="--max-steps or --max-time"):
        Trainer(Parabola(), replace(RECIPE, max_steps=None))
    with pytest.raises(RescoreError, match=r"the loss is (nan|inf) and its gradient (nan|inf) at step 1"):
        task = Parabola()
        task.module[0].data.fill_(math.inf)
        Trainer(task, RECIPE).fit()
    assert Trainer(Parabola(), replace(RECIPE, max_steps=None, max_time=0.05)).fit().steps > 0


@pytest.mark.parametrize(("losses", "steps", "best"), [
    ([9, 8, 7, 6, 5, 4, 3, 2, 1], 9, 9), ([3, 2, 4, 2], 4, 2), ([3, 2, 2, 1, 1, 1], 6, 4), ([None] * 9, 9, 9),
])  # fmt: skip
def test_patience_waits_for_measurements_alone_and_anew_after_a_better_one(losses, steps, best) -> None:
    task, measured = Parabola(), iter(losses)
    task.evaluate = lambda: None if (loss := next(measured)) is None else {"loss": loss}
    outcome = Trainer(task, replace(RECIPE, patience=2, max_steps=9, eval_every=1)).fit()
    assert (outcome.steps, outcome.best_step) == (steps, best)


@pytest.mark.parametrize(("keep_last", "patience", "step"), [(False, None, 1), (True, None, 3), (True, 2, 1)])
def test_the_best_weights_or_the_last_ones(keep_last: bool, patience: int | None, step: int) -> None:
    """The figures are those of the weights that are kept. A run that patience ends keeps the best: its rate has not fallen."""
    task, weights = Parabola(), []
    task.evaluate = lambda: weights.append(task.module[0].item()) or {"loss": float(len(weights))}  # type: ignore[func-returns-value]
    outcome = Trainer(task, replace(RECIPE, max_steps=3, eval_every=1, keep_last=keep_last, patience=patience)).fit()
    assert (outcome.best_step, outcome.best, task.module[0].item()) == (step, {"loss": step}, weights[step - 1])


def test_the_log_has_the_mean_loss_since_the_last_record() -> None:
    losses, records = [], []
    observer = Observer(on_step=lambda step, done, loss: losses.append(loss), on_record=records.append)
    Trainer(Parabola(), replace(RECIPE, max_steps=4, eval_every=2), observer=observer).fit()
    assert [record["train_loss"] for record in records] == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2])


def test_the_control_exchanges_sources_of_equal_length():
    sources = [[2], [3], [4, 5], [6, 7], [4, 5], [8, 9, 9]]
    pairs = EncodedPairs(Ragged.of(sources), Ragged.of([[i] for i in range(2, 8)]))
    exchanged, rows = with_other_sources(pairs)
    assert rows.tolist() == [0, 1, 2, 3, 4]
    assert exchanged.tgt.ids.tolist() == [2, 3, 4, 5, 6]  # the only source of three words is left out
    new = [tuple(exchanged.src.ids[a:b]) for a, b in zip(exchanged.src.offsets, exchanged.src.offsets[1:], strict=False)]
    assert new == [(3,), (2,), (6, 7), (4, 5), (6, 7)]
