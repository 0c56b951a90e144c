"""The training loop: steps, rates and the weights that are kept. It does not depend on phrases or networks."""

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.training.config import Observer, Recipe
from phrase_rescore.training.processes import ALONE, Gradients, ProcessGroup
from phrase_rescore.training.signals import FirstSignal
from phrase_rescore.training.state import TrainingState

SAVE_SECONDS = 300.0  # of training from one state to the next, if nothing is measured for so long
_ABSURD = 1e30  # a perplexity: that of guessing is the number of words


class Task(Protocol):
    """A module to train, its minibatches, their loss and a held-out measure."""

    @property
    def module(self) -> nn.Module:
        """The module to train."""

    def batches(self, first: int) -> Iterator[Any]:
        """Yield minibatches, all with a length, without end, from number ``first`` (0, 1, …); each depends on that alone."""

    def parts(self, batch: Any, parts: int, step: int = 0, done: float = 1.0) -> list[Any]:
        """Cut the minibatch of ``step``, after the share ``done`` of the run, into parts of like work, if it can."""

    def pieces(self, part: Any) -> list[Any]:
        """Cut a part into pieces that memory holds one at a time; nearly always it is one."""

    def loss(self, module: nn.Module, piece: Any) -> Tensor:
        """Return the summed loss of a piece, a scalar with gradient. ``module`` is ``self.module``, perhaps wrapped."""

    def evaluate(self) -> dict[str, float] | None:
        """Return figures on held-out data, None without such data."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    steps: int
    best_step: int  # whose weights the module has now
    best: dict[str, float] | None  # its figures

    def summary(self, passes: float) -> dict[str, Any]:
        """Return what the training summary of config.json says of it; ``passes`` over the data were made."""
        return {"steps": self.steps, "passes": round(passes, 4), "best_step": self.best_step, "held_out": self.best}


class NotFiniteError(RescoreError):
    """A loss, gradient or weight is infinite or NaN."""


class DivergedError(NotFiniteError):
    """The losses are finite and absurd."""


@dataclass
class Figures:
    """The figures of a training so far, as its state keeps them."""

    seconds: float = 0.0  # of training, when they were saved
    best_step: int = 0
    best: dict[str, float] | None = None
    records: list[dict[str, Any]] = field(default_factory=list)  # of the log
    waited: int = 0  # evaluations since the best one
    losses: list[float] = field(default_factory=list)  # of each process since the last evaluation, summed
    items: int = 0  # since the last evaluation


def make_optimizer(name: str, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of a name (``config.OPTIMIZERS``). Every step sets its rate."""
    if name == "adadelta":  # section 4.1; ε = 1e-6
        return torch.optim.Adadelta(parameters, rho=0.95, eps=1e-6)
    return torch.optim.Adam(parameters, fused=True)


class Trainer:
    """Trains the module of a task by a recipe: ``fit`` repeats ``step``, and at times ``evaluate``, which calls ``save``.

    If ``max_steps`` ends the run on a CPU, the weights depend to the bit only on task, recipe, torch, threads and processes.
    Raises OptionError for a recipe without a limit.
    """

    def __init__(
        self, task: Task, recipe: Recipe, *, threads: int = 1, processes: ProcessGroup = ALONE,
        state: TrainingState | None = None, observer: Observer | None = None,
    ) -> None:  # fmt: skip
        if recipe.max_steps is None and recipe.max_time is None:
            raise OptionError("training needs --max-steps or --max-time")
        self.task, self.recipe, self.module = task, recipe, task.module
        self.processes, self.state, self.observer = processes, state, observer or Observer()
        self.parameters = list(self.module.parameters())
        self.optimizer = make_optimizer(recipe.optimizer, self.parameters)
        self.gradients = Gradients(self.module, task, threads, processes)
        self.steps, self.figures = 0, Figures()
        self.saved: int | None = None  # the step of the state on disk
        self.best_weights: dict[str, Tensor] = {}
        self._started = time.monotonic()
        self._loss, self._items = 0.0, 0  # since the last evaluation

    def fit(self, resume: bool = False, evaluate_first: bool = False, finish: bool = False) -> Outcome:
        """Train until ``max_steps``, ``max_time`` or ``patience`` ends it, once, and leave the weights to keep in the module.

        ``resume``: from the state, to the same weights to the bit if ``max_steps`` ends it. ``evaluate_first``: the
        first may be the best. ``finish``: make no step. The first SIGINT or SIGTERM acts when its minibatch is saved. Raises
        ModelError for a damaged state; NotFiniteError: the state is then the last good one.
        """
        try:
            if resume:
                self.resume()
            figures = self.figures
            with FirstSignal(self.state is not None) as stop:
                if evaluate_first and not figures.records:
                    self.evaluate()
                if not finish:
                    self._learn(stop)
                if not figures.records or figures.records[-1]["step"] != self.steps:  # a finished run that is resumed has it
                    self.evaluate()
        finally:
            self.gradients.close()
        if self.best_weights:
            self.module.load_state_dict(self.best_weights)
        if figures.best and (perplexity := figures.best.get("perplexity", 1.0)) > _ABSURD:
            raise DivergedError(f"the training diverged: the held-out perplexity is {perplexity:.3g} at best")
        return Outcome(self.steps, self.steps if figures.best is None else figures.best_step, figures.best)

    def _learn(self, stop: FirstSignal) -> None:
        """Make the steps, and save the state when that is due or a signal came, to whichever process."""
        recipe, figures = self.recipe, self.figures
        batches = self.task.batches(self.steps)
        for batch in _ahead(batches) if self.parameters[0].is_cuda else batches:
            (seconds, _), *_ = shared = self.processes.gather(self.seconds(), stop.number)
            number = int(max(number for _, number in shared))
            if number or seconds >= figures.seconds + SAVE_SECONDS:
                figures.seconds = seconds
                self._check_weights()
                self.save()
            if number:
                stop.deliver(number)
            done = max(self.steps / (recipe.max_steps or math.inf), seconds / (recipe.max_time or math.inf))  # share of the run
            if done >= 1.0 or (recipe.patience is not None and figures.waited >= recipe.patience):
                break
            self.step(batch, done)
            if self.steps % recipe.eval_every == 0:
                self.evaluate()

    def step(self, batch: Any, done: float) -> None:
        """Train on a minibatch, at the rate after the share ``done`` (0 to 1) of the run."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate(done)
        items = len(batch)
        threads, rank = self.gradients.parts, self.processes.rank
        parts = self.task.parts(batch, threads * self.processes.size, self.steps, done)  # one for every thread of every process
        own = parts[rank * threads : (rank + 1) * threads]
        loss = self.gradients(own, items if self.recipe.objective == "mean" else 1.0)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip)
        if not math.isfinite(norm):  # the same in every process
            raise NotFiniteError(f"the loss is {loss / items} and its gradient {norm.item()} at step {self.steps + 1:,}")
        self.optimizer.step()
        self.steps += 1
        self._loss += loss
        self._items += items
        self.observer.on_step(self.steps, done, loss * self.processes.size / items)

    def evaluate(self) -> None:
        """Measure, remember the weights to keep, log a record, save the state. Raises NotFiniteError before all that."""
        held_out = self.task.evaluate()
        shared = self.processes.gather(self.seconds(), self._loss, held_out["loss"] if held_out else 0.0)
        (seconds, _, held_out_loss), *_ = shared  # what the first process measured
        record: dict[str, Any] = {"step": self.steps, "seconds": round(seconds, 1)}
        if self._items:
            record["train_loss"] = sum(loss for _, loss, _ in shared) / self._items
        if held_out:
            held_out["loss"] = held_out_loss
            if not math.isfinite(held_out_loss):
                raise NotFiniteError(f"the held-out loss is {held_out} at step {self.steps:,}")
        self._check_weights()
        figures = self.figures
        if held_out:
            record["held_out"] = held_out
            figures.waited += 1
            last = self.recipe.keep_last and self.recipe.patience is None
            if last or figures.best is None or held_out["loss"] < figures.best["loss"]:
                figures.best_step, figures.best, figures.waited = self.steps, held_out, 0
                self.best_weights = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        figures.records.append(record)
        figures.seconds = seconds
        self._loss, self._items = 0.0, 0
        self.observer.on_record(record)
        self.saved = None  # the state is older than this record
        self.save()

    def _check_weights(self) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise NotFiniteError(f"a weight is infinite or NaN at step {self.steps:,}")

    def save(self) -> None:
        """Write the state, if it is wanted and missing."""
        if self.state is None or self.saved == self.steps:
            return
        self.figures.losses, self.figures.items = [loss for (loss,) in self.processes.gather(self._loss)], self._items
        if self.processes.is_first:
            tensors = {f"module.{name}": value for name, value in self.module.state_dict().items()}
            tensors |= {f"best.{name}": value for name, value in self.best_weights.items()}
            for i, averages in self.optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{i}.{name}": value for name, value in averages.items()}
            self.state.save(self.steps, tensors, asdict(self.figures))
        self.saved = self.steps

    def resume(self) -> None:
        """Continue from the state on disk; the observer hears the records of earlier sittings. Raises ModelError."""
        assert self.state
        self.steps, tensors, figures = self.state.load()
        with self.state.restoring("figures or tensors"):
            self._restore(tensors, Figures(**figures))
        self.saved = self.steps
        for record in self.figures.records:
            self.observer.on_record(record)

    def _restore(self, tensors: dict[str, Tensor], figures: Figures) -> None:
        for record in figures.records:
            measured = [found for found in (record.get("held_out"), figures.best) if found is not None]
            numbers = record["step"], record["seconds"], *(n for found in measured for n in (found["loss"], *found.values()))
            if not all(map(math.isfinite, numbers)):
                raise ValueError("figures that are not numbers")
        self.figures = figures
        self._loss, self._items = figures.losses[self.processes.rank], figures.items
        self.module.load_state_dict(_under("module.", tensors))
        averages = {i: found for i in range(len(self.parameters)) if (found := _under(f"optimizer.{i}.", tensors))}
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": averages})
        device = self.parameters[0].device
        self.best_weights = {name: value.to(device) for name, value in _under("best.", tensors).items()}
        self._started = time.monotonic() - figures.seconds

    def seconds(self) -> float:
        """Return the seconds of training so far, those of earlier sittings included."""
        return time.monotonic() - self._started


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield minibatches, each made while the one before is in work, as on a GPU."""
    with ThreadPoolExecutor(1) as executor:
        following = executor.submit(next, batches)
        while True:
            batch = following.result()
            following = executor.submit(next, batches)
            yield batch


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with the prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
