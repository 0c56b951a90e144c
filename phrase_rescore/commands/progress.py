"""Progress on standard error: bars on a terminal, lines where somebody will read a log."""

from __future__ import annotations

import sys
from typing import Any

import click
from tqdm import tqdm

from phrase_rescore.files.streams import input_size


def say(message: str) -> None:
    """A line on standard error, above any bar."""
    with tqdm.external_write_mode(file=sys.stderr):
        click.echo(f"phrase-rescore: {message}", err=True)


def byte_bar(paths: tuple[str, ...], quiet: bool, what: str) -> tqdm[Any]:
    """A bar over the bytes of files on disk; update it with bytes read. Only on a terminal."""
    sizes = [input_size(path) for path in paths]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    return tqdm(total=total, unit="B", unit_scale=True, desc=what, disable=True if quiet else None, leave=False)


def pair_bar(quiet: bool) -> tqdm[Any]:
    """A count of pairs as they are prepared: each goes by twice. Only on a terminal."""
    return tqdm(unit=" pairs", unit_scale=True, desc="preparing", disable=True if quiet else None, leave=False)


def vector_bar(total: int | None, quiet: bool) -> tqdm[Any]:
    """A bar, or without a total a count, of phrases whose vectors are made. Only on a terminal."""
    return tqdm(total=total, unit=" phrases", unit_scale=True, desc="embedding", disable=True if quiet else None, leave=False)


def output_bar(outputs: int, quiet: bool) -> tqdm[Any]:
    """A bar over the outputs that are scored. Only on a terminal."""
    return tqdm(total=outputs, unit=" outputs", desc="scoring", disable=True if quiet else None, leave=False)


def phrase_bar(quiet: bool) -> tqdm[Any]:
    """A count of phrases that are done. Only on a terminal."""
    return tqdm(unit=" phrases", desc="generating", disable=True if quiet else None, leave=False)


class TrainingBar:
    """Share of the run done, loss per pair, pairs/s, time left."""

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
