"""The frame of every training: prepare, build, fit, save. What differs from one kind of model to the other is a job's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol, TypeVar

import torch

from phrase_rescore import runtime
from phrase_rescore._version import __version__
from phrase_rescore.errors import OptionError
from phrase_rescore.files.locks import locked
from phrase_rescore.files.paths import beside
from phrase_rescore.nn.storage import DTYPES, LOG
from phrase_rescore.training.config import Machine, Observer, Output, Recipe
from phrase_rescore.training.log import LogWriter
from phrase_rescore.training.loop import Task, Trainer
from phrase_rescore.training.processes import ProcessGroup, find_processes, local_device, process_group
from phrase_rescore.training.publishing import can_begin, failure_explained, publish
from phrase_rescore.training.state import TrainingState

Store = TypeVar("Store")
Made = TypeVar("Made")


class Settings(Protocol):
    """What the settings of every training have."""

    @property
    def machine(self) -> Machine:
        """What computes."""

    @property
    def output(self) -> Output:
        """How the model is written."""


class Job(Protocol[Store, Made]):
    """What one kind of training does: ``Store`` is its data prepared on disk, ``Made`` the model with all that it needs."""

    inputs: Sequence[str]
    model_dir: str

    @property
    def config(self) -> Settings:
        """The settings, the device resolved."""

    def check_settings(self) -> None:
        """Raise OptionError for settings that cannot be, before hours of preparing data."""

    def identity(self) -> dict[str, Any]:
        """Return all settings that may change the weights."""

    def check_files(self, processes: ProcessGroup, say: Callable[[str], None]) -> None:
        """Raise OptionError, InputError or ModelError for paths and files that will not do, before hours of preparing data."""

    def prepare(self, observer: Observer, check: Callable[[Any], None]) -> Store:
        """Return the data prepared on disk; ``check`` sees their numbers before they replace any."""

    def find(self) -> Store | None:
        """Return the data if they are prepared already."""

    def numbers(self, store: Store) -> Any:
        """Return what the data are known by, a dataclass."""

    def recipe(self, store: Store) -> Recipe:
        """Return how the data are learnt, with an end. Raises OptionError if they cannot be learnt in this way."""

    def task(self, store: Store, recipe: Recipe, say: Callable[[str], None]) -> Task:
        """Return the model before its first step, with what it learns."""

    def fit(self, trainer: Trainer, resume: bool) -> dict[str, Any]:
        """Train, and return what config.json says of the outcome."""

    def made(self, store: Store, trainer: Trainer, outcome: dict[str, Any], say: Callable[[str], None]) -> Made:
        """Return the trained model."""

    def in_words(self, store: Store, batch: Any) -> bytes:
        """Return a minibatch as text that a person can read."""

    def save(self, made: Made, directory: str) -> None:
        """Write the files of the model into a directory."""

    def load(self) -> Made:
        """Return the model that is in the model directory."""


def on_this_machine(machine: Machine) -> Machine:
    """Return the machine with the device that this process computes on. Raises OptionError if it is not there."""
    return replace(machine, device=local_device(runtime.resolve_device(machine.device)))


def train(job: Job[Store, Made], observer: Observer | None = None) -> Made:
    """Do a job: write its model directory and return the model.

    The same inputs, settings and torch build give the same files, byte for byte, on a CPU if the run ends by ``max_steps``
    (the log aside), however often it was killed and resumed. Raises OptionError, InputError or RescoreError. Then no model
    directory is left, only, once training had begun, the state from which ``resume`` goes on.

    Every process that torchrun started calls this; the first one prepares the data, talks and writes. It holds the lock of
    the model directory (``files.locks``) from before its first write until the model has its name.
    """
    machine, output, model_dir = job.config.machine, job.config.output, job.model_dir
    if machine.precision not in runtime.PRECISIONS:
        raise OptionError(f"precision {machine.precision!r}; training knows {', '.join(runtime.PRECISIONS)}")
    if output.save_dtype not in DTYPES:
        raise OptionError(f"--save-dtype {output.save_dtype}; known are {', '.join(DTYPES)}")
    job.check_settings()
    slow = runtime.check_precision(machine.precision, machine.device)
    runtime.prepare(machine.threads)
    runtime.set_tf32(machine.precision, machine.device)
    processes, talk = find_processes(), observer or Observer()
    observer = talk if processes.is_first else Observer()
    if slow:
        observer.say(f"warning: {slow}")
    state = TrainingState(beside(model_dir, "training"), identity(job, processes))
    with contextlib.ExitStack() as held:
        prepared: list[Store] = []

        def begin() -> bool:
            """Prepare the data, with the lock that is held to the end; return whether anything is left to do."""
            job.check_files(processes, observer.say)
            os.makedirs(os.path.dirname(os.path.realpath(model_dir)), exist_ok=True)
            held.enter_context(locked(model_dir, "let it end, or name another directory with -m", observer.say))
            if not can_begin(model_dir, output, state, observer.say):
                return False
            prepared.append(job.prepare(observer, state.check_data))
            return True

        if not processes.first_alone(begin, talk.say):
            return job.load()
        store = prepared[0] if prepared else job.find()
        if store is None:
            raise OptionError("many processes need prepared data, and inputs, that all of them see under the same names")
        state.check_data(job.numbers(store))
        resume = state.exists()
        with process_group(machine.device, processes):
            return _learn(job, processes, observer, store, state, resume)


def identity(job: Job[Any, Any], processes: ProcessGroup) -> dict[str, Any]:
    """Return what a training must share with an interrupted one to go on with it: all that may change the weights.

    The state compares the data themselves.
    """
    return {
        **job.identity(),
        **asdict(job.config.machine),
        "version": __version__,
        "torch": torch.__version__,
        "processes": processes.size,
        "device": torch.device(job.config.machine.device).type,
    }


def _learn(
    job: Job[Store, Made], processes: ProcessGroup, observer: Observer, store: Store, state: TrainingState, resume: bool
) -> Made:
    machine, output = job.config.machine, job.config.output
    recipe = job.recipe(store)
    task = job.task(store, recipe, observer.say)
    together = f", {processes.size} processes" if processes.size > 1 else ""
    numbers = sum(weight.numel() for weight in task.module.parameters())
    observer.say(f"{numbers:,} parameters, {machine.threads} threads{together}, {machine.device}")
    log = LogWriter(os.path.join(state.directory, LOG), observer)
    threads = machine.threads if machine.device == "cpu" else 1  # a GPU is kept busy by the whole minibatch
    told = replace(observer, on_record=log.add)
    trainer = Trainer(task, recipe, threads=threads, processes=processes, state=state, observer=told)
    with failure_explained(state, processes, lambda batch: job.in_words(store, batch)):
        outcome = job.fit(trainer, resume)
    made = job.made(store, trainer, outcome, observer.say)
    if processes.is_first:

        def write(directory: str) -> None:
            job.save(made, directory)

        publish(write, job.model_dir, output, log, state, observer.say)
    return made
