"""The way of every training, from its inputs to a model directory: ``train``, within a ``Session``, from a ``Source``.

What a kind of model does by itself stands in its room.
"""

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from phrase_rescore import runtime
from phrase_rescore._version import __version__
from phrase_rescore.data.prepared import Fingerprint, Layout, Store
from phrase_rescore.data.sorting import scratch_name
from phrase_rescore.errors import OptionError, RescoreError, writing
from phrase_rescore.files.locks import lock_name, locked
from phrase_rescore.files.outputs import check_replaceable, recover_directory, remove_directory
from phrase_rescore.files.paths import beside
from phrase_rescore.messages import Listener, Say, counted, silent
from phrase_rescore.nn.storage import LOG, atomic_directory, check_target, numbers_of
from phrase_rescore.training.config import AnySettings, Observer, Settings
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import DivergedError, NotFiniteError, Outcome, Task, Trainer
from phrase_rescore.training.processes import find_processes, local_device, process_group
from phrase_rescore.training.state import TrainingState


def check_like(own: object, donor: object, names: Sequence[str]) -> None:
    """Raise OptionError if a model to start from differs in attributes of these names, which are options, too."""
    if other := [name for name in names if getattr(own, name) != getattr(donor, name)]:
        values = {name: getattr(donor, name) for name in other}
        wanted = " ".join(f"--{name} {value}" if value is not None else f"no --{name}" for name, value in values.items())
        raise OptionError(f"the model to start from is another network; train with {wanted}")


class Source(ABC, Generic[Store]):
    """The files that the data of a training come from, and the directory in which they are prepared.

    ``fingerprints`` are those of data that will do, None if a file cannot be read twice; states of trainings have the first.
    """

    layout: Layout[Store]
    called: str  # the data, in messages
    scratch: str | None = None  # where they are sorted
    most_held_out: int  # items at most

    def __init__(self, inputs: Sequence[str], directory: str, *fingerprints: Fingerprint | None) -> None:
        self.inputs, self.directory, self.fingerprints = inputs, directory, fingerprints
        self._store: Store | None = None

    def find(self) -> Store | None:
        """Return the data if they are prepared already and nothing has changed since."""
        self._store = self._store or self.layout.open(self.directory, *self.fingerprints)
        return self._store

    def prepare(self, observer: Observer, check: Callable[[Any], None] = lambda numbers: None) -> Store:
        """Return the prepared data, or prepare them now under a lock. Raises InputError; OptionError if there are none."""
        store, found = self.find(), f"{self.called}: found prepared in {self.directory}"
        is_left = self.scratch is not None and os.path.lexists(scratch_name(self.scratch, self.directory))
        if store is None or is_left or os.path.lexists(lock_name(self.directory)):
            os.makedirs(os.path.dirname(os.path.realpath(self.directory)), exist_ok=True)
            with contextlib.ExitStack() as held:
                try:
                    remedy = f"wait until it ends: it prepares {self.layout.what} there"
                    held.enter_context(locked(self.directory, remedy, observer.say))
                except OptionError:
                    if store is None:
                        raise
                else:
                    recover_directory(self.directory)  # from here on what killed runs left is nobody's
                    if self.scratch is not None:
                        remove_directory(scratch_name(self.scratch, self.directory))
                    store = self.find()
                if store is None:
                    self.layout.check_target(self.directory)
                    self._store = store = self.make(observer, check)
                    found = ""
        if found:
            observer.say(found)
        check(store.numbers)
        self.report(store, observer)
        return store

    @abstractmethod
    def check(self) -> None:
        """Raise OptionError, InputError or RescoreError for unfit files, before hours of preparing data."""

    @abstractmethod
    def make(self, observer: Observer, check: Callable[[Any], None]) -> Store:
        """Prepare the data in the directory. The caller holds its lock."""

    @abstractmethod
    def report(self, store: Store, listener: Listener) -> None:
        """Report the size of the data. Raises OptionError if they cannot be trained on."""


class Session(contextlib.ExitStack):
    """A training's stay in its model directory, a ``with`` block: ``prepare``, ``learned``, ``publish`` in this order.

    An error leaves no model directory, only the state from which ``resume`` continues, if training had begun. Every process has
    a session; the first prepares the data, reports, writes, and holds the lock of the model directory until the block ends.
    ``identity`` has all settings that may change the weights; the state compares the data themselves.
    """

    def __init__(self, model_dir: str, settings: Settings, identity: dict[str, Any], observer: Observer | None) -> None:
        super().__init__()
        machine = settings.machine
        slow = runtime.check_precision(machine.precision, machine.device)
        runtime.prepare(machine.threads)
        runtime.set_tf32(machine.precision, machine.device)
        self._talk = observer or Observer()
        self.processes = find_processes()
        kind = torch.device(machine.device).type
        identity |= {"version": __version__, "torch": torch.__version__, "processes": self.processes.size, "device": kind}
        self.state = TrainingState(beside(model_dir, "training"), identity)
        self.observer = replace(self._talk, on_record=self._add_to_log) if self.processes.is_first else Observer()
        self._log = list[str]()  # its lines
        if slow:
            self.observer.warn(slow)
        self.resumes, self.finish = False, settings.output.finish
        self.threads = machine.threads if machine.device == "cpu" else 1  # a GPU is kept busy by the whole minibatch
        self._model_dir, self._settings = model_dir, settings

    def prepare(self, source: Source[Store], check: Callable[[], None] = lambda: None) -> Store | None:
        """Take the lock and return the data, prepared by the first process; None if all is done. Raises before it writes."""
        say = self.observer.say

        def begin() -> bool:
            check_replaceable(self._model_dir)
            self.state.check_directory()
            check()
            if self.processes.size > 1 and source.fingerprints[0] is None:
                remedy = "name files, not pipes or standard input"
                raise OptionError(f"several processes need inputs that can be read twice: {remedy}")
            source.check()
            os.makedirs(os.path.dirname(os.path.realpath(self._model_dir)), exist_ok=True)
            self.enter_context(locked(self._model_dir, "wait until it ends, or name another directory with -m", say))
            if not self._can_begin():
                return False
            source.prepare(self.observer, self.state.check)
            return True

        if not self.processes.first_alone(begin):
            return None
        store = source.find()
        if store is None:
            raise OptionError("several processes need inputs and prepared data on a disk that they share, under the same names")
        self.state.check(store.numbers)
        self.resumes = self.state.exists()
        settings = self._settings
        self.state.command = {"inputs": source.inputs, "preset": settings.preset, "settings": settings.lasting()}
        self.enter_context(process_group(settings.machine.device, self.processes))
        return store

    def _can_begin(self) -> bool:
        """Clean up after killed runs; return whether there is work to do. Raises OptionError for what must not be replaced."""
        state, output = self.state, self._settings.output
        resume = output.resume or self.finish
        recover_directory(self._model_dir)
        if state.is_published(self._model_dir):
            state.remove()
            if resume:
                self.observer.say(f"{self._model_dir} is complete; the rest of its training is removed")
                return False
        if self.finish and not state.exists():
            raise OptionError(f"--finish: {state.missing()}; to train leave --finish out")
        check_target(self._model_dir, output.overwrite)
        if resume and not state.exists():
            self.observer.say(f"no training to continue in {state.directory}; starting over")
        if state.exists() and not resume:
            found = f"{state.directory} holds an interrupted training"
            raise OptionError(f"{found}; continue with --resume, keep it with --finish, or delete it to start over")
        state.check()
        return True

    def limits(self, given: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
        """Return the limits of this run: those given, else the interrupted training's, else the usual ones."""
        if self.resumes and (self.finish or not given):
            given = self.state.read()["limits"]
        self.state.limits = given or usual
        return self.state.limits

    @contextlib.contextmanager
    def learned(self, trainer: Trainer, evaluate_first: bool = False) -> Iterator[Outcome]:
        """Train, and yield the outcome while the best weights are measured in float32; on errors say how to continue."""
        state, machine, network = self.state, self._settings.machine, trainer.task.module
        processes = f", {self.processes.size} processes" if self.processes.size > 1 else ""
        used = f"{counted(machine.threads, 'thread')}{processes}, {machine.device}"
        self.observer.say(f"{numbers_of(network):,} parameters, {used}")
        try:
            network.loss_dtype = torch.bfloat16 if machine.precision == "bf16" else None  # type: ignore[assignment]
            outcome = trainer.fit(self.resumes, evaluate_first, self.finish)
            network.loss_dtype = None  # type: ignore[assignment]
            yield outcome
        except KeyboardInterrupt as error:
            if (step := trainer.saved) is not None and self.processes.is_first:
                error.add_note(f"step {step:,} is saved in {state.directory}; the same command with --resume continues")
                error.add_note("to keep it as it is, the same command with --finish makes the model")
            raise
        except NotFiniteError as error:
            found, remedy = str(error), "try a smaller --learning-rate"
            if isinstance(error, DivergedError):
                remedy = f"delete {state.directory} and {remedy}"
            elif state.exists():
                found += f", {state.directory} has the last good state"
                remedy = f"delete it and {remedy}; if the machine failed, continue with --resume"
            raise RescoreError(f"{found}; {remedy}") from None

    def _add_to_log(self, record: dict[str, Any]) -> None:
        """Append a record to the log in the state's directory; the first one starts it over. Raises RescoreError."""
        path, line = os.path.join(self.state.directory, LOG), json.dumps(record) + "\n"
        if not self._log:
            self.observer.say(f"the log is in {path} and moves to {self._model_dir} at the end")
        with self._kept(), writing(path):
            os.makedirs(self.state.directory, exist_ok=True)
            if not self._log:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # an earlier run's, or anybody's link
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | (0 if self._log else os.O_EXCL)
            with open(os.open(path, flags, 0o666), "a", encoding="utf-8", newline="\n") as stream:
                stream.write(line)
        self._log.append(line)
        self._talk.on_record(record)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Say what is kept if a file cannot be written."""
        try:
            yield
        except RescoreError as error:
            if self.state.exists():
                error.add_note(f"{self.state.directory} has the last save; the same command with --resume continues")
            raise

    def publish(self, save: Callable[[str], None]) -> None:
        """Make the model directory of the log and what ``save`` writes, then remove the state, which a RescoreError leaves."""
        if not self.processes.is_first:
            return
        state = self.state
        try:
            with atomic_directory(self._model_dir, self._settings.output.overwrite) as directory:
                Path(directory, LOG).write_text("".join(self._log), encoding="utf-8", newline="\n")
                save(directory)
                state.about_to_publish(directory)
            state.remove()
        except (RescoreError, KeyboardInterrupt) as error:
            error.add_note(f"{state.directory} has the whole training; the same command with --resume continues")
            raise


AnyTask = TypeVar("AnyTask", bound=Task)
Model = TypeVar("Model", bound=Any)  # which has ``training``, the training summary


@dataclass(frozen=True)
class Training(Generic[Store, AnyTask, Model]):
    """The training of a kind of model."""

    config: Settings  # with the device of this machine
    source: Source[Store]
    identity: dict[str, Any]  # the settings that may change the weights; the data have a fingerprint of their own
    summarized: tuple[str, ...]  # settings that the training summary of config.json records
    task: Callable[[Store, Listener], AnyTask]  # from the data to the model before its first step, with its minibatches
    # From the task with the best weights, the data, the summary so far and what hears warnings
    model: Callable[[AnyTask, Store, dict[str, Any], Say], Model]
    load: Callable[[str], Model]
    save: Callable[[Model, str], None]
    init_from: str | None = None  # the model to start from
    check_start: Callable[[], None] = silent  # raises OptionError or ModelError if that does not fit
    unit: str = "pairs"  # what the data are counted in


def on_this_machine(settings: AnySettings) -> AnySettings:
    """Return the settings with the device and precision of this process. Raises OptionError if there is no such device."""
    device = local_device(runtime.resolve_device(settings.machine.device))
    precision = runtime.resolve_precision(settings.machine.precision, device)
    return replace(settings, machine=replace(settings.machine, device=device, precision=precision))


def train(training: Training[Store, AnyTask, Model], model_dir: str, observer: Observer | None) -> Model:
    """Prepare the data, train, and write and return the model. Raises RescoreError."""
    config, source = training.config, training.source
    config.recipe.check_held_out(source.most_held_out)
    with Session(model_dir, config, training.identity | {"data": source.fingerprints[0]}, observer) as session:
        store = session.prepare(source, training.check_start)
        if store is None:  # an earlier run ended just before it cleaned up
            return training.load(model_dir)
        items, warn = len(store.train), session.observer.warn
        config.recipe.check_held_out(len(store.held_out))
        recipe = config.recipe.limited(session.limits(config.recipe.limits(), config.recipe.usual_limits(items)), items)
        task = training.task(store, session.observer)
        trainer = Trainer(
            task, recipe, threads=session.threads, processes=session.processes, state=session.state, observer=session.observer
        )
        with session.learned(trainer, evaluate_first=training.init_from is not None) as outcome:
            summary = {
                "inputs": [os.path.basename(path) for path in source.inputs],
                **store.summary(),
                **replace(config, recipe=recipe).summary(training.summarized),
                **outcome.summary(recipe.passes(outcome.steps, items)),
            }
            model = training.model(task, store, summary, warn)
        if found := shortfall(model.training, training.unit):
            warn(f"{found}; train again with --overwrite and a larger --max-time")
        session.publish(lambda directory: training.save(model, directory))
    return model
