"""The way of every training, from its inputs to a model directory. What a kind of model does by itself stands in its room."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from phrase_rescore import runtime
from phrase_rescore.data.prepared import Store
from phrase_rescore.progress import Listener, Say, silent
from phrase_rescore.training.config import AnySettings, Observer, Settings
from phrase_rescore.training.log import shortfall
from phrase_rescore.training.loop import Task, Trainer
from phrase_rescore.training.processes import local_device
from phrase_rescore.training.session import Session, Source

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
    warns_if_short: bool = True  # whether a training of few steps is warned of


def on_this_machine(settings: AnySettings) -> AnySettings:
    """Return the settings with the device that this process computes on. Raises OptionError if it is not there."""
    device = local_device(runtime.resolve_device(settings.machine.device))
    return replace(settings, machine=replace(settings.machine, device=device))


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
        recipe = config.recipe.limited(session.limits(config.recipe.limits(), config.recipe.usual_limits()), items)
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
        if training.warns_if_short and (found := shortfall(model.training)):
            warn(f"{found}; train again with --overwrite and a larger --max-time")
        session.publish(lambda directory: training.save(model, directory))
    return model
