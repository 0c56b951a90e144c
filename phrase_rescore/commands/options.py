"""Option types and defaults that commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from phrase_rescore.moses.phrase_table import NUMBER

DEFAULT_MODEL = "phrase-rescore-model"

SMALLEST_SCORE, LARGEST_SCORE = 1.2e-38, 3.4e38  # between them 32-bit floats, as Moses has them, are normal numbers

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Duration(click.ParamType):
    """``90s``, ``20m``, ``2h``, ``1d``: seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is no duration; write 90s, 20m, 2h or 1d", param, ctx)
        return float(match[1]) * _SECONDS[match[2]]


class ByteSize(click.ParamType):
    """``500K``, ``15M``, ``2G``: bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"([1-9]\d*)([KMG]?)i?B?", str(value))
        if not match:
            self.fail(f"{value!r} is no size; write 500K, 15M or 2G", param, ctx)
        return int(match[1]) * _BYTES[match[2]]


class Scores(click.ParamType):
    """``0.001`` or ``0.1,0.2``: scores as a table has them, greater than 0, in the bytes in which they are written."""

    name = "scores"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[bytes, ...]:
        if isinstance(value, tuple):
            return value
        scores = tuple(str(value).encode().split(b","))
        for score in scores:
            if not re.fullmatch(NUMBER, score) or not SMALLEST_SCORE <= float(score) <= LARGEST_SCORE:
                self.fail(f"{score.decode()!r} is no score above 0; write 0.001, or 0.1,0.2,0.1,0.2", param, ctx)
        return scores


class Subset(click.ParamType):
    """Some of the names that there are, commas between: a tuple of them, in the order of ``names`` or ``as_asked``."""

    name = "names"

    def __init__(self, names: Sequence[str], as_asked: bool = False) -> None:
        self._names, self._as_asked = names, as_asked

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        asked = value if isinstance(value, tuple) else tuple(dict.fromkeys(str(value).lower().split(",")))
        if unknown := [name for name in asked if name not in self._names]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(self._names)}", param, ctx)
        return asked if self._as_asked else tuple(name for name in self._names if name in asked)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return ",".join(self._names)


def on_bad_row_option(function: Any) -> Any:
    return click.option(
        "--on-bad-row", type=click.Choice(["fail", "drop"]), default="fail", show_default=True,
        help="A row that cannot be used: stop with its line number, or leave it out and keep it in a .dropped file.",
    )(function)  # fmt: skip


def quiet_option(function: Any) -> Any:
    return click.option("-q", "--quiet", is_flag=True, help="No progress on standard error; warnings and errors remain.")(
        function
    )


def model_option(function: Any) -> Any:
    return click.option(
        "-m", "--model", "model_dir", metavar="MODEL_DIR", default=DEFAULT_MODEL, show_default=True, help="The model directory."
    )(function)
