"""The training loop. It knows steps, rates and the best model so far, and nothing of phrases or networks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from phrase_rescore.errors import OptionError, RescoreError


class Task(Protocol):
    """What can be trained: batches, loss and evaluation of a module."""

    @property
    def module(self) -> nn.Module:
        """What is trained."""

    def batches(self) -> Iterator[Any]:
        """Batches without end."""

    def loss(self, batch: Any) -> tuple[Tensor, int]:
        """The summed loss of a batch (a scalar with gradient) and the number of items it is over."""

    def evaluate(self) -> dict[str, float] | None:
        """Figures on held-out data; ``loss`` is the one that the best model has lowest. None without such data."""


@dataclass(frozen=True)
class Recipe:
    """How to train. The rate rises linearly for ``warm_up`` of the run and, with ``decay``, falls linearly to 0 at its end."""

    optimizer: str  # adam, adadelta
    learning_rate: float
    objective: str  # the gradient is that of the minibatch's sum or mean
    clip: float  # largest norm of that gradient
    decay: bool
    warm_up: float = 0.0  # share of the run
    max_steps: int | None = None
    max_time: float | None = None  # seconds
    eval_every: int = 1000  # steps

    def rate(self, done: float) -> float:
        """The learning rate when the share ``done`` (0 to 1) of the run lies behind."""
        rising = min(1.0, done / self.warm_up + 0.01) if self.warm_up else 1.0
        return self.learning_rate * rising * (1.0 - done if self.decay else 1.0)


@dataclass(frozen=True)
class Outcome:
    """``best`` are the evaluation's figures at ``best_step``, whose weights the module holds when training returns."""

    steps: int
    best_step: int
    best: dict[str, float] | None
    seconds: float


def _optimizer(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if recipe.optimizer == "adadelta":  # section 4.1; ε = 1e-6
        return torch.optim.Adadelta(parameters, lr=recipe.learning_rate, rho=0.95, eps=1e-6)
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.learning_rate, fused=True)
    raise OptionError(f"optimizer {recipe.optimizer!r}; known are adam and adadelta")


def train(
    task: Task,
    recipe: Recipe,
    log: Callable[[dict[str, Any]], None] = lambda record: None,
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None,
) -> Outcome:
    """Trains until ``max_steps`` or ``max_time``, whichever comes first, and leaves the best weights in the module.

    ``log`` gets a record at every evaluation; ``on_step`` gets step, share of the run done, loss per item and items.
    The weights depend on the task, the recipe and torch alone if ``max_steps`` ends the run.

    Raises OptionError without a limit, RescoreError when the loss is not finite.
    """
    if recipe.max_steps is None and recipe.max_time is None:
        raise OptionError("training needs --max-steps or --max-time")
    module = task.module
    parameters = list(module.parameters())
    optimizer = _optimizer(recipe, module)
    start, step, items, since = time.monotonic(), 0, 0, 0.0
    best_step, best, best_weights = 0, None, None

    def share_done() -> float:
        by_steps = step / recipe.max_steps if recipe.max_steps else 0.0
        by_time = (time.monotonic() - start) / recipe.max_time if recipe.max_time else 0.0
        return min(1.0, max(by_steps, by_time))

    def evaluate() -> None:
        nonlocal best_step, best, best_weights, since, items
        figures = task.evaluate()
        record: dict[str, Any] = {"step": step, "seconds": round(time.monotonic() - start, 1)}
        if items:
            record["train_loss"] = since / items
        if figures:
            record["held_out"] = figures
            if best is None or figures["loss"] < best["loss"]:
                best_step, best = step, figures
                best_weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        log(record)
        since, items = 0.0, 0

    for batch in task.batches():
        done = share_done()
        if done >= 1.0:
            break
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(done)
        loss, n = task.loss(batch)
        value = loss.item()
        if not math.isfinite(value):
            raise RescoreError(f"the loss is {value} at step {step + 1}; try a smaller --learning-rate")
        optimizer.zero_grad()
        (loss / n if recipe.objective == "mean" else loss).backward()
        nn.utils.clip_grad_norm_(parameters, recipe.clip)
        optimizer.step()
        step, items, since = step + 1, items + n, since + value
        on_step(step, done, value / n, n)
        if step % recipe.eval_every == 0:
            evaluate()
    if step == 0 or step % recipe.eval_every:
        evaluate()
    if best_weights is not None:
        module.load_state_dict(best_weights)
    return Outcome(step, best_step if best is not None else step, best, time.monotonic() - start)
