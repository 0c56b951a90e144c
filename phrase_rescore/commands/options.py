"""Types of options, and the options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from phrase_rescore.moses.phrase_table import NUMBER

DEFAULT_MODEL = "phrase-rescore-model"

SMALLEST_SCORE, LARGEST_SCORE = 1.2e-38, 3.4e38  # between them 32-bit floats, as Moses has them, are normal numbers
POSITIVE = click.IntRange(min=1)

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Duration(click.ParamType):
    """Convert ``90s``, ``20m``, ``2h`` or ``1d`` to seconds, a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is not a duration; write 90s, 20m, 2h or 1d", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class ByteSize(click.ParamType):
    """Convert ``500K``, ``15M`` or ``2G`` to bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([1-9]\d*)([KMG]?)i?B?", str(value))
        if not match:
            self.fail(f"{value!r} is not a size; write 500K, 15M or 2G", param, ctx)
        return int(match[1]) * _BYTES[match[2]]


class Scores(click.ParamType):
    """Split ``0.1,0.2`` into scores above 0, each kept as the bytes in which it is written."""

    name = "scores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bytes, ...]:
        if isinstance(value, tuple):
            return value
        scores = tuple(str(value).encode().split(b","))
        for score in scores:
            if not re.fullmatch(NUMBER, score) or not SMALLEST_SCORE <= float(score) <= LARGEST_SCORE:
                self.fail(f"{score.decode()!r} is not a score above 0; write 0.001, or 0.1,0.2,0.1,0.2", param, ctx)
        return scores


class Subset(click.ParamType):
    """Split ``b,a`` into a tuple of known names, in the order of ``names``, or as typed if ``as_asked``."""

    name = "names"

    def __init__(self, names: Sequence[str], as_asked: bool = False) -> None:
        self._names, self._as_asked = names, as_asked

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        asked = value if isinstance(value, tuple) else tuple(dict.fromkeys(str(value).lower().split(",")))
        if unknown := [name for name in asked if name not in self._names]:
            self.fail(f"{unknown[0]!r} is not one of {', '.join(self._names)}", param, ctx)
        return asked if self._as_asked else tuple(name for name in self._names if name in asked)


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete names of files."""
    return [CompletionItem(incomplete, type="file")]


def complete_directory(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete names of directories."""
    return [CompletionItem(incomplete, type="dir")]


def file_option(*names: str, **attributes: Any) -> Any:
    """Declare an option whose value is the name of a file."""
    return click.option(*names, shell_complete=complete_file, **attributes)


def directory_option(*names: str, **attributes: Any) -> Any:
    """Declare an option whose value is the name of a directory."""
    return click.option(*names, shell_complete=complete_directory, **attributes)


def file_argument(name: str, **attributes: Any) -> Any:
    """Declare an argument that is the name of a file."""
    return click.argument(name, shell_complete=complete_file, **attributes)


def device_option(default: str) -> Any:
    return click.option(
        "--device", default=default, show_default=True, metavar="DEVICE", help="The device: auto, cpu, cuda or cuda:N."
    )


model_option = directory_option(
    "-m", "--model", "model_dir", metavar="MODEL_DIR", default=DEFAULT_MODEL, show_default=True, help="The model directory."
)
out_option = file_option(
    "-o", "--out", default="-", metavar="OUT", help="The file to write, gzip if it ends in .gz.  [default: standard output]"
)
on_bad_row_option = click.option(
    "--on-bad-row", type=click.Choice(["fail", "drop"]), default="fail", show_default=True,
    help="fail stops at a row that cannot be used, with its line number. drop leaves it out and keeps it in a .dropped file.",
)  # fmt: skip
digits_option = click.option(
    "--digits", type=click.IntRange(2, 17), default=7, show_default=True, metavar="N", help="Significant digits of the numbers."
)
flush_option = click.option(
    "--flush", is_flag=True,
    help="Answer every line at once, for a program that keeps this one open.  [default: at a terminal]",
)  # fmt: skip
lowercase_option = click.option("--lowercase", is_flag=True, help="Lower-case the typed text. Needs --tokenize.")
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Show no progress on standard error. Warnings and errors remain."
)
