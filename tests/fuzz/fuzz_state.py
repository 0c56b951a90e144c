"""The state of a training: any bytes are refused in one line, or are gone on from to an end of finite numbers.

An input is state.json and the tensors.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import replace

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import RescoreError
    from phrase_rescore.training.config import Recipe
    from phrase_rescore.training.loop import Trainer
    from phrase_rescore.training.state import STATE, TrainingState

import torch
from harness import fuzz_files, joined, mutate_json, mutate_tensors, told, workplace

RUN = {"seed": 1, "inputs": {"inputs": [["/x", 1, 2]]}, "freeze": [], "max_time": None}
STEPS = 4
FILES = (STATE, f"tensors-{STEPS:09d}.safetensors")
RECIPE = Recipe(learning_rate=0.1, warm_up=0.0, max_steps=STEPS, eval_every=2)


class Line:
    """a x + b, which is to be 1 where x is 2: what the loop can train without knowing a network."""

    def __init__(self) -> None:
        self.module = torch.nn.ParameterDict({"a": torch.zeros(2), "b": torch.zeros(())})

    def batches(self, first: int) -> Iterator[list[int]]:
        while True:
            yield [1]

    def parts(self, batch: list[int], parts: int, step: int = 0, done: float = 1.0) -> list[list[int]]:
        return [batch] * parts

    def pieces(self, part: list[int]) -> list[list[int]]:
        return [part]

    def loss(self, module: torch.nn.Module, part: list[int]) -> torch.Tensor:
        return ((module["a"] * 2 + module["b"] - 1) ** 2).sum()  # type: ignore[index, operator]

    def evaluate(self) -> dict[str, float]:
        with torch.no_grad():
            return {"loss": self.loss(self.module, [1]).item()}


def trainer(directory: str, steps: int) -> Trainer:
    return Trainer(Line(), replace(RECIPE, max_steps=steps), state=TrainingState(directory, RUN))


def check_state(directory: str) -> None:
    resumed = trainer(directory, STEPS + 2)
    try:
        outcome = resumed.fit(resume=True)
    except RescoreError as error:
        told(error, 20_000)
        return
    assert outcome.steps >= outcome.best_step >= 0
    assert outcome.best is None or math.isfinite(outcome.best["loss"])
    assert all(bool(parameter.isfinite().all()) for parameter in resumed.module.parameters())


def main() -> None:
    directory = os.path.join(workplace(), "model.training")
    torch.set_num_threads(1)
    trainer(directory, STEPS).fit()
    seeds = [joined(directory, FILES)]
    changes = (0, mutate_json), (0, mutate_json), (1, mutate_tensors)
    fuzz_files(directory, FILES, lambda: check_state(directory), seeds, 8192, changes, memory=512 << 20)


if __name__ == "__main__":
    main()
