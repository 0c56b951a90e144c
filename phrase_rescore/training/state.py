"""A training under way, on disk: enough to go on exactly where it stood. It is written whole or not at all, without pickle.

DIRECTORY/
    state.json                  step, figures so far, what the run was asked for, the name of the tensors' file
    tensors-STEP.safetensors    weights, the optimizer's running averages, the best weights so far
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor

from phrase_rescore.errors import ModelError, OptionError, RescoreError
from phrase_rescore.files.atomic import sync

FORMAT_VERSION = 1
STATE = "state.json"


class TrainingState:
    """The state directory of one training. ``run`` is what it was asked for; only the same run may go on from it."""

    def __init__(self, directory: str, run: dict[str, Any]) -> None:
        self.directory, self._run = directory, json.loads(json.dumps(run))

    def exists(self) -> bool:
        """Tell whether there is a state to go on from."""
        return os.path.exists(os.path.join(self.directory, STATE))

    def save(self, step: int, tensors: dict[str, Tensor], figures: dict[str, Any]) -> None:
        """Replace the last state. A kill at any moment leaves that one or this one.

        Raises RescoreError when it cannot be written, as on a full disk; the last state is then untouched.
        """
        name = f"tensors-{step:09d}.safetensors"
        state = {"format_version": FORMAT_VERSION, "run": self._run, "step": step, "tensors": name, "figures": figures}
        temporary = None
        try:
            os.makedirs(self.directory, exist_ok=True)
            temporary = tempfile.mkdtemp(dir=self.directory, prefix=".partial.")
            file, text = os.path.join(temporary, name), os.path.join(temporary, STATE)
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, file)
            Path(text).write_text(json.dumps(state) + "\n", encoding="utf-8")
            for path in (file, text):
                sync(path)
            os.replace(file, os.path.join(self.directory, name))
            sync(self.directory)
            os.replace(text, os.path.join(self.directory, STATE))  # from now on it counts
            sync(self.directory)
        except (OSError, safetensors.SafetensorError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise RescoreError(
                f"{self.directory}: the state of step {step:,} cannot be saved ({reason}); the last one is intact: "
                "make room and go on with --resume"
            ) from None
        finally:
            if temporary:
                shutil.rmtree(temporary, ignore_errors=True)
        for left in Path(self.directory).iterdir():  # older tensors, and what killed runs left
            with contextlib.suppress(OSError):
                if left.name.startswith(".partial."):
                    shutil.rmtree(left)
                elif left.name.startswith("tensors-") and left.name != name:
                    left.unlink()

    def load(self) -> tuple[int, dict[str, Tensor], dict[str, Any]]:
        """Return the step, tensors and figures of the last state.

        Raises OptionError when there is none or it is another run's, ModelError when it is damaged.
        """
        path = os.path.join(self.directory, STATE)
        try:
            state = json.loads(Path(path).read_bytes())
        except FileNotFoundError:
            raise OptionError(f"{self.directory}: no training to go on with; leave --resume out to begin one") from None
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}; the state is damaged, begin again without --resume") from None
        if not isinstance(state, dict) or state.get("format_version") != FORMAT_VERSION:
            raise ModelError(f"{path}: not a training state of this version; begin again without --resume")
        for key in sorted(self._run.keys() | state["run"].keys()):
            was, asked = state["run"].get(key), self._run.get(key)
            if was != asked:
                raise OptionError(f"--resume: {key} was {was!r} and is {asked!r} now; begin again without --resume")
        try:
            tensors = load_file(os.path.join(self.directory, state["tensors"]))
        except (OSError, KeyError, safetensors.SafetensorError) as error:
            raise ModelError(f"{self.directory}: {error}; the state is damaged, begin again without --resume") from None
        return state["step"], tensors, state["figures"]

    def remove(self) -> None:
        """Delete the directory, when the run is over."""
        shutil.rmtree(self.directory, ignore_errors=True)
