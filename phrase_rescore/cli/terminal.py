"""Write what commands say: progress and lines on standard error, results on standard output."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import click
from tqdm import tqdm

from phrase_rescore.errors import in_one_line
from phrase_rescore.files.inputs import input_size
from phrase_rescore.training.config import Observer

LOG_SECONDS = 60.0  # between lines of progress where there is no terminal


def say(message: str) -> None:
    """Write a line on standard error, above any bar."""
    with tqdm.external_write_mode(file=sys.stderr):
        click.echo(f"phrase-rescore: {in_one_line(message)}", err=True)


def warn(message: str) -> None:
    """Write a warning on standard error."""
    say(f"warning: {message}")


def tell(lines: Iterable[str], quiet: bool) -> None:
    """Write lines on standard error; only the warnings of them if the command is to be quiet."""
    for line in lines:
        if not quiet or line.startswith("warning"):
            say(line)


def command_line() -> str:
    """Return the command line as it was typed, to be shown."""
    return shlex.join(["phrase-rescore", *sys.argv[1:]])


def write_out(blocks: Iterable[Iterable[bytes]]) -> None:
    """Write blocks of lines to standard output, each as soon as it is there."""
    for lines in blocks:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()


class Bar(tqdm):  # mypy knows it as generic, Python does not
    """A bar on a terminal; elsewhere, as in a log, a line a minute."""

    def __init__(self, what: str, quiet: bool, **attributes: Any) -> None:
        self._in_log, self._next_line = not sys.stderr.isatty(), LOG_SECONDS
        if self._in_log:
            done = "{percentage:.0f}%, {elapsed}, {remaining} left" if attributes.get("total") else "{n_fmt}{unit}, {elapsed}"
            attributes |= {"bar_format": "{desc}: " + done + "{postfix}", "mininterval": LOG_SECONDS}
        super().__init__(desc=what, disable=quiet, leave=False, **attributes)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if not self._in_log:
            super().display(msg, pos)
        elif (elapsed := self.format_dict["elapsed"]) >= self._next_line:
            self._next_line = elapsed + LOG_SECONDS
            click.echo(f"phrase-rescore: {self}", err=True)

    def clear(self, nolock: bool = False) -> None:
        if not self._in_log:
            super().clear(nolock)


def byte_bar(paths: tuple[str, ...], quiet: bool, what: str) -> Bar:
    """Return a bar over the bytes of files on disk, to be updated with bytes read."""
    sizes = [input_size(path) for path in paths]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    return Bar(what, quiet, total=total, unit="B", unit_scale=True)


def count_bar(what: str, unit: str, quiet: bool, total: int | None = None, scale: bool = True) -> Bar:
    """Return a bar, or without a total a count, of things done. ``scale`` writes 12k."""
    return Bar(what, quiet, total=total, unit=f" {unit}", unit_scale=scale)


class TrainingTalk:
    """Shows how a training goes in a ``with`` block: share done, loss of an ``item`` in nats, items/s, the time left."""

    def __init__(self, inputs: tuple[str, ...], quiet: bool, item: str, prepared: str) -> None:
        self._quiet, self._item = quiet, item
        self._reading, self._preparing = byte_bar(inputs, quiet, "reading"), count_bar("preparing", prepared, quiet)
        self._bar: Bar | None = None
        self._items, self._loss = 0, 0.0

    def __enter__(self) -> Observer:
        return Observer(
            lambda line: tell([line], self._quiet), self._reading.update, self._preparing.update, self._on_step, self._on_record
        )

    def __exit__(self, *raised: object) -> None:
        for bar in (self._reading, self._preparing, self._bar):
            if bar is not None:
                bar.close()

    def _on_step(self, step: int, done: float, loss: float, items: int) -> None:
        if self._bar is None:
            form = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
            self._bar = Bar("training", self._quiet, total=1.0, bar_format=form)
        self._items += items
        self._loss = loss if step == 1 else 0.98 * self._loss + 0.02 * loss
        if self._bar.disable:
            return
        elapsed = self._bar.format_dict["elapsed"]
        rate = self._items / elapsed if elapsed else 0.0
        self._bar.set_postfix_str(f"{self._loss:.2f} nats/{self._item}, {rate:,.0f} {self._item}s/s", refresh=False)
        self._bar.update(done - self._bar.n)

    def _on_record(self, record: dict[str, Any]) -> None:
        if self._quiet:
            return
        parts = [f"step {record['step']:,}", str(timedelta(seconds=round(record["seconds"])))]
        if "train_loss" in record:
            parts.append(f"training {record['train_loss']:.3f}")
        if "held_out" in record:
            found = record["held_out"]
            parts.append(f"held-out {found['loss']:.3f} nats/{self._item}, perplexity {found['perplexity']:.2f}")
        say(", ".join(parts))
