"""Write what commands say: progress and lines on standard error, results on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
from tqdm import tqdm

from phrase_rescore.errors import in_one_line
from phrase_rescore.files.streams import input_size


def say(message: str) -> None:
    """Write a line on standard error, above any bar."""
    with tqdm.external_write_mode(file=sys.stderr):
        click.echo(f"phrase-rescore: {in_one_line(message)}", err=True)


def write_out(blocks: Iterable[Iterable[bytes]]) -> None:
    """Write blocks of lines to standard output, each as soon as it is there."""
    for lines in blocks:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()


def byte_bar(paths: tuple[str, ...], quiet: bool, what: str) -> tqdm[Any]:
    """Return a bar over the bytes of files on disk, to be updated with bytes read. It is shown only on a terminal."""
    sizes = [input_size(path) for path in paths]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    return tqdm(total=total, unit="B", unit_scale=True, desc=what, disable=True if quiet else None, leave=False)


def count_bar(what: str, unit: str, quiet: bool, total: int | None = None, scale: bool = True) -> tqdm[Any]:
    """Return a bar, or without a total a count, of things done. It is shown only on a terminal. ``scale`` writes 12k."""
    return tqdm(total=total, unit=f" {unit}", unit_scale=scale, desc=what, disable=True if quiet else None, leave=False)


class TrainingBar:
    """A bar of a training: share of the run done, loss per pair in nats, pairs/s, time left."""

    def __init__(self, quiet: bool) -> None:
        form = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(total=1.0, desc="training", disable=True if quiet else None, bar_format=form, leave=False)
        self._pairs, self._loss = 0, 0.0

    def step(self, step: int, done: float, loss: float, pairs: int) -> None:
        self._pairs += pairs
        self._loss = loss if step == 1 else 0.98 * self._loss + 0.02 * loss
        if self._bar.disable:
            return
        elapsed = self._bar.format_dict["elapsed"]
        rate = self._pairs / elapsed if elapsed else 0.0
        self._bar.set_postfix_str(f"{self._loss:.2f} nats/pair, {rate:,.0f} pairs/s", refresh=False)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()
