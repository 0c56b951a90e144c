"""Write what commands say: progress and lines on standard error, results on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import click
from tqdm import tqdm

from phrase_rescore.files.inputs import input_size
from phrase_rescore.messages import in_one_line
from phrase_rescore.training.config import Observer

LOG_SECONDS = 60.0  # between lines of progress where there is no terminal


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


def write_out(blocks: Iterable[Iterable[bytes]]) -> None:
    """Write blocks of lines to standard output, each as soon as it comes."""
    for lines in blocks:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()


class Bar(tqdm):  # mypy knows it as generic, Python does not
    """A bar on a terminal. Elsewhere, as in a log, a line a minute with the share done and the time left."""

    def __init__(self, what: str, quiet: bool, **attributes: Any) -> None:
        self.in_log, self._next_line = not sys.stderr.isatty(), LOG_SECONDS
        if self.in_log:
            done = "{percentage:.0f}%, {elapsed}, {remaining} left" if attributes.get("total") else "{n_fmt}{unit}, {elapsed}"
            attributes |= {"bar_format": "{desc}: " + done + "{postfix}", "mininterval": LOG_SECONDS}
        super().__init__(desc=what, disable=quiet, leave=False, **attributes)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if not self.in_log:
            super().display(msg, pos)
        elif (elapsed := self.format_dict["elapsed"]) >= self._next_line:
            self._next_line = elapsed + LOG_SECONDS
            click.echo(f"phrase-rescore: {self}", err=True)

    def reach(self, done: float) -> None:
        """Show that so much of the total is done."""
        self.update(done - self.n)

    def clear(self, nolock: bool = False) -> None:
        if not self.in_log:
            super().clear(nolock)


def byte_bar(paths: tuple[str, ...], quiet: bool, what: str = "") -> Bar:
    """Return a bar over the bytes of files on disk, to be updated with bytes read; it is called as the first file."""
    sizes = [input_size(path) for path in paths]
    total = None if None in sizes else sum(filter(None, sizes))
    return Bar(what or os.path.basename(paths[0]), quiet, total=total, unit="B", unit_scale=True)


def count_bar(what: str, unit: str, quiet: bool, scale: bool = True) -> Bar:
    """Return a count of things done. ``scale`` writes 12k."""
    return Bar(what, quiet, unit=f" {unit}", unit_scale=scale)


def share_bar(what: str, quiet: bool, done: float = 0.0) -> Bar:
    """Return a bar over work of which only the share ``done`` is known, to ``reach`` 1."""
    form = "{l_bar}{bar}| {elapsed}, {remaining} left{postfix}"
    # the average since the first step, so that a pause to measure hardly moves the time left
    return Bar(what, quiet, total=1.0, initial=done, smoothing=0, miniters=0, bar_format=form)


class TrainingTalk:
    """Shows the progress of a training in a ``with`` block: the loss of an ``item`` in nats, and the time left."""

    def __init__(self, inputs: tuple[str, ...], quiet: bool, item: str) -> None:
        self._quiet, self._item = quiet, item
        self._reading, self._preparing = byte_bar(inputs, quiet, "reading"), count_bar("preparing", "", quiet)
        self._bar: Bar | None = None
        self._loss: float | None = None
        self._held_out = ""

    def __enter__(self) -> Observer:
        return Observer(
            say=partial(say, quiet=self._quiet), warn=warn, on_read=self._reading.update, on_pairs=self._preparing.update,
            on_step=self._on_step, on_record=self._on_record,
        )  # fmt: skip

    def __exit__(self, *raised: object) -> None:
        for bar in (self._reading, self._preparing, self._bar):
            if bar is not None:
                bar.close()

    def _on_step(self, step: int, done: float, loss: float) -> None:
        if self._bar is None:
            self._reading.close()
            self._preparing.close()
            self._bar = share_bar("training", self._quiet, done)
        self._loss = loss if self._loss is None else 0.98 * self._loss + 0.02 * loss
        shown = f"step {step:,}", f"{self._loss:.2f} nats/{self._item}", self._held_out
        self._bar.set_postfix_str(", ".join(filter(None, shown)), refresh=False)
        self._bar.reach(done)

    def _on_record(self, record: dict[str, Any]) -> None:
        parts = [f"step {record['step']:,}", Bar.format_interval(record["seconds"])]
        if "train_loss" in record:
            parts.append(f"training {record['train_loss']:.3f}")
        if "held_out" in record:
            figures = record["held_out"]
            self._held_out = f"held-out {figures['loss']:.2f}"
            parts.append(f"held-out {figures['loss']:.3f} nats/{self._item}, perplexity {figures['perplexity']:.2f}")
        say(", ".join(parts), self._quiet)
