"""The training loop. It knows steps, rates and the best model so far, and nothing of phrases or networks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.training.distributed import ALONE, Ranks
from phrase_rescore.training.gradients import Gradients
from phrase_rescore.training.state import TrainingState


class Task(Protocol):
    """What can be trained: batches, loss and evaluation of a module."""

    @property
    def module(self) -> nn.Module:
        """What is trained."""

    def batches(self, first: int) -> Iterator[Any]:
        """Batches without end, from number ``first`` (0, 1, …) on; each depends on its number alone."""

    def size(self, batch: Any) -> int:
        """The number of items of a batch."""

    def parts(self, batch: Any, parts: int) -> list[Any]:
        """The batch cut into ``parts`` of like work, in an order of its own; none is empty unless the batch is too small."""

    def loss(self, module: nn.Module, part: Any) -> Tensor:
        """The summed loss of a part: a scalar with gradient. ``module`` is ``self.module``, perhaps wrapped."""

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
    eval_every: int = 500  # steps
    patience: int | None = None  # evaluations without a better one before training ends

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


class NotFiniteError(RescoreError):
    """A loss, gradient or weight that is infinite or no number. ``batch`` was the last, that of ``step``; None before any."""

    def __init__(self, found: str, step: int, batch: Any) -> None:
        super().__init__(found, step, batch)
        self.found, self.step, self.batch = found, step, batch

    def __str__(self) -> str:
        return f"{self.found} at step {self.step:,}; try a smaller --learning-rate"


def optimizer_of(recipe: Recipe, module: nn.Module) -> torch.optim.Optimizer:
    """The recipe's optimizer of all parameters that learn."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if recipe.optimizer == "adadelta":  # section 4.1; ε = 1e-6
        return torch.optim.Adadelta(parameters, lr=recipe.learning_rate, rho=0.95, eps=1e-6)
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.learning_rate, fused=True)
    raise OptionError(f"optimizer {recipe.optimizer!r}; known are adam and adadelta")


@dataclass
class _Run:
    """Where a training stands. Everything here and in the module and the optimizer is what a state on disk holds."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0  # of earlier sittings
    best_step: int = 0
    best: dict[str, float] | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    waited: int = 0  # evaluations since the best one

    def save(self, state: TrainingState, seconds: float) -> None:
        tensors = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best_weights.items()}
        for i, averages in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{name}": value for name, value in averages.items()}
        figures = {
            "seconds": seconds, "best_step": self.best_step, "best": self.best, "records": self.records, "waited": self.waited
        }  # fmt: skip
        state.save(self.step, tensors, figures)

    def load(self, state: TrainingState) -> None:
        self.step, tensors, figures = state.load()
        parts: dict[str, dict[str, Tensor]] = {"module": {}, "best": {}, "optimizer": {}}
        for key, value in tensors.items():
            part, _, name = key.partition(".")
            parts[part][name] = value
        self.module.load_state_dict(parts["module"])
        now = self.module.state_dict()
        self.best_weights = {name: value.to(now[name].device) for name, value in parts["best"].items()}
        averages: dict[int, dict[str, Tensor]] = {}
        for key, value in parts["optimizer"].items():
            i, _, name = key.partition(".")
            averages.setdefault(int(i), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": averages})
        for name in ("seconds", "best_step", "best", "records", "waited"):
            setattr(self, name, figures[name])


def train(
    task: Task,
    recipe: Recipe,
    log: Callable[[dict[str, Any]], None] = lambda record: None,
    on_step: Callable[[int, float, float, int], None] = lambda step, done, loss, items: None,
    *,
    threads: int = 1,
    ranks: Ranks = ALONE,
    state: TrainingState | None = None,
    resume: bool = False,
    measure_first: bool = False,
    optimizer: Callable[[Recipe, nn.Module], torch.optim.Optimizer] = optimizer_of,
) -> Outcome:
    """Trains until ``max_steps``, ``max_time`` or ``patience``, whichever ends first; leaves the best weights in the module.

    ``log`` gets a record at every evaluation, those of earlier sittings first; ``on_step`` gets step, share of the run done,
    loss per item and items. ``state`` is saved at every evaluation; with ``resume`` training goes on from it, and then
    ends with the very weights that it would have had, if ``max_steps`` ends it. ``measure_first``: before the first step too,
    for weights that may be hard to better. ``optimizer`` makes another than the recipe's.

    The weights depend on the task, the recipe, ``threads``, the number of processes and torch alone if ``max_steps`` ends
    the run.

    Raises OptionError without a limit or for a state of another run, NotFiniteError when loss, gradient or weights are not
    finite; ``state`` is then that of the last evaluation, when they still were.
    """
    if recipe.max_steps is None and recipe.max_time is None:
        raise OptionError("training needs --max-steps or --max-time")
    module = task.module
    run = _Run(module, optimizer(recipe, module))
    if resume:
        assert state is not None
        run.load(state)
        for record in run.records:
            log(record)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    gradients = Gradients(module, task.loss, threads, ranks)
    all_parts, mine = gradients.parts * ranks.world, slice(ranks.rank * gradients.parts, (ranks.rank + 1) * gradients.parts)
    start, items, since = time.monotonic() - run.seconds, 0, 0.0
    last: Any = None  # batch

    def share_done() -> float:
        by_steps = run.step / recipe.max_steps if recipe.max_steps else 0.0
        by_time = ranks.agreed((time.monotonic() - start) / recipe.max_time) if recipe.max_time else 0.0
        return min(1.0, max(by_steps, by_time))

    def evaluate() -> None:
        nonlocal since, items
        figures = task.evaluate()
        seconds = time.monotonic() - start
        record: dict[str, Any] = {"step": run.step, "seconds": round(seconds, 1)}
        total = ranks.total(since)
        if items:
            record["train_loss"] = total / items
        run.waited += 1
        if figures:
            figures["loss"] = ranks.agreed(figures["loss"])
            if not math.isfinite(figures["loss"]):
                raise NotFiniteError(f"the held-out loss is {figures['loss']}", run.step, last)
        if not all(bool(parameter.isfinite().all()) for parameter in parameters):
            raise NotFiniteError("a weight is infinite or no number", run.step, last)
        if figures:
            record["held_out"] = figures
            if run.best is None or figures["loss"] < run.best["loss"]:
                run.best_step, run.best, run.waited = run.step, figures, 0
                run.best_weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        run.records.append(record)
        since, items = 0.0, 0
        if ranks.first:
            log(record)
            if state is not None:
                run.save(state, seconds)

    try:
        if measure_first and run.step == 0:
            evaluate()
        for batch in task.batches(run.step):
            done = share_done()
            if done >= 1.0 or (recipe.patience is not None and run.waited >= recipe.patience):
                break
            for group in run.optimizer.param_groups:
                group["lr"] = recipe.rate(done)
            n, last = task.size(batch), batch
            value = gradients(task.parts(batch, all_parts)[mine], n if recipe.objective == "mean" else 1.0)
            norm = nn.utils.clip_grad_norm_(parameters, recipe.clip)
            if not math.isfinite(norm):  # the same in every process
                found = f"the loss is {value / n} and its gradient {norm.item()}"
                raise NotFiniteError(found, run.step + 1, batch)
            run.optimizer.step()
            run.step, items, since = run.step + 1, items + n, since + value
            on_step(run.step, done, value * ranks.world / n, n)
            if run.step % recipe.eval_every == 0:
                evaluate()
    finally:
        gradients.close()
    if not run.records or run.records[-1]["step"] != run.step:  # it has them already when a finished run is resumed
        evaluate()
    if run.best_weights:
        module.load_state_dict(run.best_weights)
    best_step = run.best_step if run.best is not None else run.step
    return Outcome(run.step, best_step, run.best, time.monotonic() - start)
