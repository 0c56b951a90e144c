"""Types of options, and the options that several commands share.

An option takes a name of a file (FILE, DIRECTORY), a number (Number and the types after it), one of some words (click.Choice,
Subset), or any TEXT. Types of click that take any string or number are not used: a path may be empty there, a number nan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from phrase_rescore.errors import OptionError, shown
from phrase_rescore.ranges import BYTES, DIGITS, SECONDS, TABLE_ROWS, Decimal, Range

DEFAULT_MODEL, DEFAULT_LM = "phrase-rescore-model", "phrase-rescore-lm"

SCORES = Decimal(1.2e-38, 3.4e38)  # between them 32-bit floats, as Moses has them, are normal numbers

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Text(click.ParamType):
    """Takes any text, of which the library makes something."""

    name = "text"


class PathName(click.ParamType):
    """Takes the name of a file or directory, which must not be empty; the shell completes it."""

    name = "path"

    def __init__(self, kind: str) -> None:
        self.kind = kind  # file or dir, as shells tell them apart

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type=self.kind)]


TEXT, FILE, DIRECTORY = Text(), PathName("file"), PathName("dir")


class NumberType(click.ParamType):
    """Takes a number, or text with numbers in it, all of which have a range."""

    def read(self, text: str) -> Any:
        """Make the value. Raises OptionError for anything else."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self.read(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)


class Number(NumberType):
    """Takes a number of a range."""

    name = "number"

    def __init__(self, wanted: Range) -> None:
        self.range = wanted

    def read(self, text: str) -> float:
        return self.range.read(text)


class Duration(NumberType):
    """Converts ``90s``, ``20m``, ``2h`` or ``1d`` to seconds, a float."""

    name = "duration"

    def read(self, text: str) -> float:
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if seconds not in SECONDS:
            raise OptionError(f"{shown(text)} is not a duration; write 90s, 20m, 2h or 1d")
        return seconds


class ByteSize(NumberType):
    """Converts ``500K``, ``15M`` or ``2G`` to bytes."""

    name = "size"

    def read(self, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,16})([KMG]?)i?B?", text)
        size = int(match[1]) * _BYTES[match[2]] if match else 0
        if size not in BYTES:
            raise OptionError(f"{shown(text)} is not a size; write 500K, 15M or 2G")
        return size


class Scores(NumberType):
    """Splits ``0.1,0.2`` into scores above 0, each kept as the bytes in which it is written."""

    name = "scores"

    def read(self, text: str) -> tuple[bytes, ...]:
        scores = text.split(",")
        for score in scores:
            try:
                SCORES.read(score)
            except OptionError:
                raise OptionError(f"{shown(score)} is not a score above 0; write 0.001, or 0.1,0.2,0.1,0.2") from None
        return tuple(score.encode() for score in scores)


class RowsOrFile(NumberType, PathName):
    """Takes a number of rows, or else the name of a file that has as many."""

    name = "rows"

    def read(self, text: str) -> int | str:
        if not text:
            raise OptionError("write a number of rows, or name a file")
        return int(TABLE_ROWS.read(text)) if text.isascii() and text.isdigit() else text


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


def file_option(*names: str, **attributes: Any) -> Any:
    """Declare an option whose value is the name of a file."""
    return click.option(*names, type=FILE, **attributes)


def directory_option(*names: str, **attributes: Any) -> Any:
    """Declare an option whose value is the name of a directory."""
    return click.option(*names, type=DIRECTORY, **attributes)


def file_argument(name: str, **attributes: Any) -> Any:
    """Declare an argument that is the name of a file."""
    return click.argument(name, type=FILE, **attributes)


def number_option(*names: str, range: Range, **attributes: Any) -> Any:
    """Declare an option whose value is a number of a range."""
    return click.option(*names, type=Number(range), **attributes)


def device_option(default: str) -> Any:
    return click.option(
        "--device",
        type=TEXT,
        default=default,
        show_default=True,
        metavar="DEVICE",
        help="The device: auto, cpu, cuda or cuda:N.",
    )


model_option = directory_option(
    "-m", "--model", "model_dir", metavar="MODEL_DIR", default=DEFAULT_MODEL, show_default=True, help="The model directory."
)
lm_option = directory_option(
    "-m", "--model", "lm", metavar="LM", default=DEFAULT_LM, show_default=True, help="The directory of the language model."
)
out_option = file_option(
    "-o", "--out", default="-", metavar="OUT", help="The file to write, gzip if it ends in .gz.  [default: standard output]"
)
on_bad_row_option = click.option(
    "--on-bad-row", type=click.Choice(["fail", "drop"]), default="fail", show_default=True,
    help="fail stops at a row that cannot be used, with its line number. drop leaves it out and keeps it in a .dropped file.",
)  # fmt: skip
digits_option = number_option(
    "--digits", range=DIGITS, default=7, show_default=True, metavar="N", help="Significant digits of the numbers, 2 to 17."
)
flush_option = click.option(
    "--flush", is_flag=True,
    help="Answer every line at once, for a program that keeps this one open.  [default: at a terminal]",
)  # fmt: skip
lowercase_option = click.option("--lowercase", is_flag=True, help="Lower-case the typed text. Needs --tokenize.")
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Show no progress on standard error. Warnings and errors remain."
)


def setting_option(
    name: str, presets: Mapping[str, Any], metavar: str | None, text: str, kind: click.ParamType | None = None
) -> Any:
    """Declare an option, by default a number, that overrides a setting of a preset; its help shows the presets' values."""
    values: dict[str, str] = {}
    for preset, settings in presets.items():
        values.setdefault(f"{settings.settings()[name]}", preset)
    shown = "; ".join(f"{preset}: {value}" for value, preset in values.items())
    kind = kind or Number(presets["default"].ranges()[name])
    return click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar=metavar, help=f"{text}  [{shown}]")
