"""Write what commands say: progress and lines on standard error, results on standard output."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import click
from tqdm import tqdm

from phrase_rescore.files.inputs import input_size
from phrase_rescore.messages import in_one_line
from phrase_rescore.training.config import Observer, Recipe

LOG_SECONDS = 60.0  # between lines of progress where there is no terminal
PLAN_SECONDS = 10.0  # of training, until its speed tells when it will end
_PACE_SECONDS = 300.0  # over which a training's speed is measured, so that the time left is steady


def say(message: str, quiet: bool = False) -> None:
    """Write a line on standard error, above any bar; nothing if ``quiet``."""
    if quiet:
        return
    with tqdm.external_write_mode(file=sys.stderr):
        click.echo(f"phrase-rescore: {in_one_line(message)}", err=True)


def warn(*messages: str) -> None:
    """Write warnings on standard error."""
    for message in messages:
        say(f"warning: {message}")


def tell(lines: Iterable[str], quiet: bool = False) -> None:
    """Write lines on standard error; nothing if ``quiet``."""
    for line in lines:
        say(line, quiet)


def command_line() -> str:
    """Return the command line as it was typed, to be shown."""
    return shlex.join(["phrase-rescore", *sys.argv[1:]])


def write_out(blocks: Iterable[Iterable[bytes]]) -> None:
    """Write blocks of lines to standard output, each as soon as it comes."""
    for lines in blocks:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()


class Bar(tqdm):  # mypy knows it as generic, Python does not
    """A bar on a terminal. Elsewhere, as in a log, a line a minute with the share done and the time left."""

    def __init__(self, what: str, quiet: bool, log_format: str = "", **attributes: Any) -> None:
        self.in_log, self._next_line = not sys.stderr.isatty(), LOG_SECONDS
        if self.in_log:
            done = "{percentage:.0f}%, {elapsed}, {remaining} left" if attributes.get("total") else "{n_fmt}{unit}, {elapsed}"
            log_format = log_format or "{desc}: " + done + "{postfix}"
            attributes |= {"bar_format": log_format, "mininterval": LOG_SECONDS}
        super().__init__(desc=what, disable=quiet, leave=False, **attributes)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if not self.in_log:
            super().display(msg, pos)
        elif (elapsed := self.format_dict["elapsed"]) >= self._next_line:
            self._next_line = elapsed + LOG_SECONDS
            click.echo(f"phrase-rescore: {self}", err=True)

    def clear(self, nolock: bool = False) -> None:
        if not self.in_log:
            super().clear(nolock)


def byte_bar(paths: tuple[str, ...], quiet: bool, what: str = "") -> Bar:
    """Return a bar over the bytes of files on disk, to be updated with bytes read; it is called as the first file."""
    sizes = [input_size(path) for path in paths]
    total = None if None in sizes else sum(filter(None, sizes))
    return Bar(what or os.path.basename(paths[0]), quiet, total=total, unit="B", unit_scale=True)


def count_bar(what: str, unit: str, quiet: bool, total: int | None = None, scale: bool = True) -> Bar:
    """Return a bar, or without a total a count, of things done. ``scale`` writes 12k."""
    return Bar(what, quiet, total=total, unit=f" {unit}", unit_scale=scale)


def _hours(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class TrainingTalk:
    """Shows the progress of a training in a ``with`` block: when it will end, loss of an ``item`` in nats, the time left."""

    def __init__(self, inputs: tuple[str, ...], quiet: bool, item: str, prepared: str) -> None:
        self._quiet, self._item = quiet, item
        self._reading, self._preparing = byte_bar(inputs, quiet, "reading"), count_bar("preparing", prepared, quiet)
        self._bar: Bar | None = None
        self._loss: float | None = None
        self._held_out = ""
        self._plan_at = math.inf
        self._marks = deque[tuple[float, int, float]]()  # time, step, share done

    def __enter__(self) -> Observer:
        return Observer(
            partial(say, quiet=self._quiet), warn, self._reading.update, self._preparing.update, self._on_start, self._on_step,
            self._on_record,
        )  # fmt: skip

    def __exit__(self, *raised: object) -> None:
        for bar in (self._reading, self._preparing, self._bar):
            if bar is not None:
                bar.close()

    def _on_start(self, recipe: Recipe, items: int) -> None:
        self._recipe, self._all = recipe, items
        self._reading.close()
        self._preparing.close()

    def _on_step(self, step: int, done: float, loss: float, items: int) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if self._bar is None:
            form = "{l_bar}{bar}| {elapsed}{postfix}"
            self._bar = Bar("training", False, "{desc}", total=1.0, bar_format=form)
            self._plan_at = now + PLAN_SECONDS
        self._loss = loss if self._loss is None else 0.98 * self._loss + 0.02 * loss
        speed, left = self._pace(now, step, done)
        rate = f"{speed * items:,.0f} {self._item}s/s"
        if now < self._plan_at < math.inf:
            left = 0.0  # not known yet
        elif left and self._plan_at < math.inf:
            self._plan_at = math.inf
            say(self._plan(step, done, speed, left, rate))
        nats, time_left = f"{self._loss:.2f} nats/{self._item}", f"{_hours(left)} left" if left else ""
        if self._bar.in_log:
            passes = f"{self._recipe.passes(step, self._all):.2f} passes"
            parts = [f"training: step {step:,}", passes, nats, self._held_out, time_left]
            self._bar.set_description_str(", ".join(filter(None, parts)), refresh=False)
            self._bar.display()
        else:
            self._bar.set_postfix_str(", ".join(filter(None, [nats, rate, time_left])), refresh=False)
            self._bar.update(done - self._bar.n)

    def _pace(self, now: float, step: int, done: float) -> tuple[float, float]:
        """Return steps a second and the seconds left, as of the last minutes; zeros at the first step."""
        marks = self._marks
        if not marks or now > marks[-1][0] + 1.0:
            marks.append((now, step, done))
        while now > marks[0][0] + _PACE_SECONDS and len(marks) > 1:
            marks.popleft()
        then, first, share = marks[0]
        return ((step - first) / (now - then), (1.0 - done) * (now - then) / (done - share)) if done > share else (0.0, 0.0)

    def _plan(self, step: int, done: float, speed: float, left: float, rate: str) -> str:
        """Say which limit will end the training, and when at this speed."""
        recipe, steps = self._recipe, self._recipe.max_steps or 0
        passes = recipe.passes(steps, self._all)
        if not steps or done > step / steps:
            assert recipe.max_time
            end = round(step + left * speed)
            found, more = f"{recipe.passes(end, self._all):.2g} passes", ""
            if steps:
                minutes = math.ceil((done * recipe.max_time + (steps - step) / speed) / 60)
                enough = f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60)}h"
                found, more = found.replace(" ", f" of {passes:.3g} "), f"; for all of them --max-time {enough}"
            after = f"training ends after {_hours(recipe.max_time)} (--max-time)"
            return f"{after}, at about step {end:,}, {found}, at {rate}{more}"
        option = "--epochs" if recipe.epochs and passes > recipe.epochs - 1e-6 else "--max-steps"
        return f"training ends after {steps:,} steps, {passes:.3g} passes ({option}), in about {_hours(left)} at {rate}"

    def _on_record(self, record: dict[str, Any]) -> None:
        parts = [f"step {record['step']:,}", _hours(record["seconds"])]
        if "train_loss" in record:
            parts.append(f"training {record['train_loss']:.3f}")
        if "held_out" in record:
            found = record["held_out"]
            self._held_out = f"held-out {found['loss']:.2f}"
            parts.append(f"held-out {found['loss']:.3f} nats/{self._item}, perplexity {found['perplexity']:.2f}")
        say(", ".join(parts), self._quiet)
