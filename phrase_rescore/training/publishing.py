"""How a training begins and ends in its model directory: what may be there, how the model takes its name, what failure says."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from phrase_rescore.errors import OptionError, RescoreError, cannot_write
from phrase_rescore.files.directories import recover_directory
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.nn.storage import LOG, atomic_directory, check_target
from phrase_rescore.training.config import Output
from phrase_rescore.training.log import LogWriter
from phrase_rescore.training.loop import NotFiniteError
from phrase_rescore.training.processes import ProcessGroup
from phrase_rescore.training.state import TrainingState


def can_begin(model_dir: str, output: Output, state: TrainingState, say: Callable[[str], None]) -> bool:
    """Put right what killed runs left of the model, and check what is there. Return False if the training is over already.

    Raises OptionError if there is a model or a state that this run must not touch or cannot go on from.
    """
    recover_directory(model_dir)
    if state.is_published(model_dir):
        state.remove()
        if output.resume:
            say(f"{model_dir} is complete; what was left of its training is removed")
            return False
    check_target(model_dir, output.overwrite)
    if not state.exists():
        if output.resume:
            say(f"no training to go on with in {state.directory}; it begins anew")
    elif not output.resume:
        raise OptionError(f"{state.directory} holds an interrupted training; go on with --resume, or delete it to begin anew")
    else:
        state.check_run()
    return True


def publish(
    write: Callable[[str], None],
    model_dir: str,
    output: Output,
    log: LogWriter,
    state: TrainingState,
    say: Callable[[str], None],
) -> None:
    """Make the model directory of the files that ``write`` puts into it and of the log, then remove the state.

    Raises RescoreError if the directory cannot be written; then nothing is left of it, and the state stays.
    """
    try:
        with atomic_directory(model_dir, output.overwrite) as directory:
            log.copy_to(os.path.join(directory, LOG))
            write(directory)
            state.about_to_publish(directory)
        state.remove()
    except (RescoreError, KeyboardInterrupt) as error:
        error.add_note(f"{state.directory} has the whole training; the same command with --resume goes on")
        raise
    if os.path.lexists(state.directory):
        say(f"warning: {state.directory} cannot be removed; the model is complete, and nothing in it is needed")


@contextlib.contextmanager
def failure_explained(state: TrainingState, processes: ProcessGroup, in_words: Callable[[Any], bytes]) -> Iterator[None]:
    """Say after a failure or an interruption how to go on; keep, ``in_words``, the minibatch whose numbers were not finite."""
    try:
        yield
    except KeyboardInterrupt as error:
        if state.exists():
            error.add_note(f"{state.directory} has it as last measured; the same command with --resume goes on")
        raise
    except NotFiniteError as error:
        told = [f"{error.found} at step {error.step:,}"]
        if error.batch is not None and processes.is_first:
            path = os.path.join(state.directory, f"minibatch-{error.step:09d}.tsv")
            try:
                os.makedirs(state.directory, exist_ok=True)
                with atomic_output(path) as stream:
                    stream.write(in_words(error.batch))
                told.append(f"its minibatch is in {path}")
            except RescoreError as failure:
                told.append(str(failure))
            except OSError as failure:
                told.append(cannot_write(path, failure))
        remedy = "try a smaller --learning-rate"
        if state.exists():
            told.append(f"{state.directory} has the last good state")
            remedy = f"delete it and {remedy}, or, if the machine failed, go on with --resume"
        raise RescoreError(f"{', '.join(told)}; {remedy}") from None
