"""A training under way, on disk: enough to resume it exactly. It is written whole or not at all, without pickle:
state.json                  step, figures, the run's options, its limits and pairs, command; CRC-32 of it and of the tensors
tensors-STEP.safetensors    weights, the optimizer's running averages, the best weights so far
published                   device and inode of the finished model's directory, just before it takes its name
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from phrase_rescore.errors import ModelError, OptionError, RescoreError, lacks_memory
from phrase_rescore.files.outputs import remove_directory, write_durably
from phrase_rescore.files.paths import is_stream
from phrase_rescore.messages import first_line, printable
from phrase_rescore.ranges import SettingError
from phrase_rescore.training.config import Recipe

FORMAT_VERSION = 6
STATE, PUBLISHED = "state.json", "published"
_ENTRIES = {  # of state.json: their types
    "run": dict, "limits": dict, "pairs": dict | None, "command": dict, "step": int, "tensors_crc": int, "figures": dict,
}  # fmt: skip


def differences(was: Any, now: Any, name: str = "") -> list[str]:
    """Return the entries in which two JSON values differ, ``name old → new`` each; a missing one counts as null."""
    if was == now:
        return []
    if isinstance(was, dict) and isinstance(now, dict):
        return [line for key in sorted(was.keys() | now.keys()) for line in differences(was.get(key), now.get(key), key)]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = zip(was, now, strict=True)
        return [line for i, (a, b) in enumerate(pairs, 1) for line in differences(a, b, f"{name} {i}".strip())]
    old, new = (printable(json.dumps(value, ensure_ascii=False), limit=300) for value in (was, now))
    return [f"{printable(name)} {old} → {new}"]


def _tensors_of(step: int) -> str:
    return f"tensors-{step:09d}.safetensors"


def _crc(state: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(state).encode())


def _identity_of(directory: str) -> bytes:
    found = os.stat(directory)
    return b"%d %d\n" % (found.st_dev, found.st_ino)


class TrainingState:
    """The state of a training on disk. Only a run with the same options ``run`` continues it; ``limits`` may change."""

    def __init__(self, directory: str, run: dict[str, Any]) -> None:
        self.directory, self._run = directory, json.loads(json.dumps(run))
        self._numbers: dict[str, Any] | None = None  # of the data
        self.limits: dict[str, Any] = {}
        self.command: dict[str, Any] = {}

    def check_directory(self) -> None:
        """Raise OptionError if the directory is a link, maybe somebody else's: at the end all in it would be deleted."""
        if os.path.islink(self.directory):
            raise OptionError(f"{self.directory} is a link, and none is followed; delete it, or name another with -m")

    def missing(self) -> str:
        """Return that there is no training, and what there is instead."""
        model_dir = self.directory.removesuffix(".training")
        there = "there is nothing of it"
        if os.path.exists(model_dir):
            there = f"the model {model_dir} is complete"
        elif os.path.isdir(self.directory):
            there = "it was stopped before its first save"
        elif left := [f"{model_dir}.{data}" for data in ("pairs", "text") if os.path.isdir(f"{model_dir}.{data}")]:
            there = f"only the prepared data are there, {left[0]}"
        return f"no training in {self.directory}; {there}"

    def exists(self) -> bool:
        """Return whether there is a state to continue from."""
        return os.path.lexists(os.path.join(self.directory, STATE))

    def check(self, numbers: Any = None) -> None:
        """Note this run's data by their numbers. Raises OptionError, with all that differs from the interrupted run."""
        if numbers is not None:
            self._numbers = asdict(numbers)
        if not self.exists():
            return
        state = self.read()
        found = differences(state["run"], self._run)
        if self._numbers is not None:
            found += differences(state["pairs"], self._numbers)
        if found:
            remedy = f"give the command as it was, or delete {self.directory} to start over"
            raise OptionError(f"--resume: the interrupted training had other options or data: {', '.join(found)}; {remedy}")

    def save(self, step: int, tensors: dict[str, Tensor], figures: dict[str, Any]) -> None:
        """Replace the last state: a kill, or a full disk (RescoreError), leaves that one or this one."""
        name = _tensors_of(step)
        try:
            data = save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})
            state = {
                "format_version": FORMAT_VERSION, "run": self._run, "limits": self.limits, "pairs": self._numbers,
                "command": self.command, "step": step, "tensors_crc": zlib.crc32(data), "figures": figures,
            }  # fmt: skip
            state["crc"] = _crc(state)
            os.makedirs(self.directory, exist_ok=True)
            write_durably(os.path.join(self.directory, name), data)
            write_durably(os.path.join(self.directory, STATE), json.dumps(state).encode() + b"\n")  # from now on it counts
        except OSError as error:
            found = f"the state of step {step:,} cannot be saved ({error.strerror or error})"
            intact = self.exists()
            remedy = "the last one is intact: make room and continue with --resume" if intact else "make room and start over"
            raise RescoreError(f"{self.directory}: {found}; {remedy}") from None
        for left in Path(self.directory).glob("tensors-*"):  # older ones, perhaps of killed runs
            with contextlib.suppress(OSError):
                if left.name != name:
                    left.unlink()

    def read(self) -> dict[str, Any]:
        """Return the contents of state.json. Raises ModelError if it is damaged or of another version."""
        path = os.path.join(self.directory, STATE)
        try:
            state = json.loads(Path(path).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise self.damaged(str(error), STATE) from None
        if not isinstance(state, dict) or state.get("format_version") != FORMAT_VERSION:
            remedy = f"use the version that made it, or delete {self.directory} to start over"
            raise ModelError(f"{path}: not a training state of this version; {remedy}")
        if state.pop("crc", None) != _crc(state):
            raise self.damaged("changed since it was written", STATE)
        if unfit := [name for name, kind in _ENTRIES.items() if not isinstance(state.get(name), kind)]:
            raise self.damaged(f"no usable {unfit[0]}", STATE)
        with self.restoring("limits"):
            Recipe(**state["limits"])
        return state

    def last_command(self) -> dict[str, Any]:
        """Return the inputs, preset and settings of the interrupted run. Raises OptionError, or ModelError, without them."""
        if not self.exists():
            raise OptionError(f"{self.missing()}; to train name the INPUT")
        command: dict[str, Any] = self.read()["command"]
        inputs, settings = command.get("inputs"), command.get("settings")
        if not (isinstance(inputs, list) and all(isinstance(path, str) for path in inputs) and isinstance(settings, dict)):
            raise self.damaged("its command cannot be used", STATE)
        if any(is_stream(path) for path in command["inputs"]):
            raise OptionError(f"the training in {self.directory} reads a stream; give the command as it was")
        return command

    def load(self) -> tuple[int, dict[str, Tensor], dict[str, Any]]:
        """Return the step, tensors and figures of the last state. Raises ModelError when it is damaged or missing."""
        state = self.read()
        name = _tensors_of(state["step"])
        try:
            data = Path(self.directory, name).read_bytes()
        except OSError as error:
            raise self.damaged(str(error)) from None
        if zlib.crc32(data) != state["tensors_crc"]:
            raise self.damaged("changed since it was written", name)
        with self.restoring("tensors"):
            return state["step"], load(data), state["figures"]

    @contextlib.contextmanager
    def restoring(self, what: str) -> Iterator[None]:
        """Use an entry in the ``with`` block. Raises ModelError where it has other types, names or sizes than are written."""
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, SettingError, SafetensorError) as error:
            if lacks_memory(error):
                raise
            raise self.damaged(f"no usable {what} ({first_line(error)})") from None

    def damaged(self, found: str, file: str = "") -> ModelError:
        """Return the error for a damaged state."""
        where = os.path.join(self.directory, file) if file else self.directory
        return ModelError(f"{where}: {found}; the state is damaged, delete {self.directory} to start over")

    def about_to_publish(self, directory: str) -> None:
        """Write down the directory that will become the model. Raises OSError if that cannot be written."""
        os.makedirs(self.directory, exist_ok=True)
        write_durably(os.path.join(self.directory, PUBLISHED), _identity_of(directory))

    def is_published(self, model_dir: str) -> bool:
        """Return whether the model of this training has its name already: then only ``remove`` is left to do."""
        with contextlib.suppress(OSError):
            return Path(self.directory, PUBLISHED).read_bytes() == _identity_of(model_dir)
        return False

    def remove(self) -> None:
        """Delete the directory when the run is over, the note of its end last: a later run can finish this."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, STATE))
            for left in Path(self.directory).iterdir():
                if left.name != PUBLISHED:
                    left.unlink()
        remove_directory(self.directory)
