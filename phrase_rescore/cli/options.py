"""Commands whose paths are checked before they run, types of options, and the options that several commands share.

``option`` declares an option: its names, what it takes, its help. What it takes is a number of a Range, one of some words, or a
type of click's: TEXT, FILE, OUTPUT, ….
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NoReturn

import click
import cloup
from click.core import ParameterSource

from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import check_apart, files_of, is_stream, unfinished
from phrase_rescore.messages import shown
from phrase_rescore.ranges import BYTES, DIGITS, SECONDS, THREADS, Range, SettingError

DEFAULT_MODEL = "phrase-rescore-model"


class Value(click.ParamType):
    """Takes what ``read`` makes of a text, or raises OptionError for. --help calls it ``name``.

    click's own numbers may be nan, ``1_000`` or in digits of other scripts.
    """

    def __init__(self, name: str, read: Callable[[Any], Any] = str) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int | float):  # a default
            return value
        try:
            return self._read(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)


def _called(param: click.Parameter | None) -> str:
    """Return what messages call an option or argument."""
    if isinstance(param, click.Option):
        return param.opts[0]
    return param.human_readable_name.removesuffix("...") if param else "a path"


class PathName(click.Path):
    """A path as click checks it. What is wrong with it is one line, which names the option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        if message.endswith("."):  # one of click's, which do not say what to do
            message = f"{message[:-1]}; check the path"
        raise OptionError(f"{_called(param)}: {message}")


class _Model(PathName):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value and not os.path.lexists(value):
            hint = unfinished(value) or "train, train-lm and train-nmt make such directories"
            self.fail(f"no model directory {value}; {hint}", param, ctx)
        return super().convert(value, param, ctx)


class _Output(PathName):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        directory = os.path.dirname(os.path.realpath(path))
        if not is_stream(path) and (path.endswith("/") or not os.access(directory, os.W_OK | os.X_OK, effective_ids=True)):
            self.fail(
                f"cannot write {path}: no directory for it, or no right to write there; make it, or write elsewhere", param, ctx
            )
        return path


FILE = PathName(exists=True, dir_okay=False, allow_dash=True)  # is read
MODEL = _Model(exists=True, file_okay=False)  # a directory that is read
NEW_DIRECTORY = PathName(file_okay=False)  # is made, or replaced as a whole
OUTPUT = _Output(dir_okay=False, readable=False, allow_dash=True)  # a file that takes its name when it is complete


Then = str | Callable[[Mapping[str, Any]], str]  # what to type next


class Command(cloup.Command):
    """A command that mixes up no files: what it writes is nothing that it reads, and is not there yet, but for --overwrite.

    (train has its own --overwrite, for models.) At its end it says which files it wrote, and what to type next: ``then``, or
    what it makes of the values of options, with those values in braces; nothing if OUT is a stream.
    """

    def __init__(self, name: str | None, params: list[click.Parameter], then: Then = "", **attributes: Any) -> None:
        self._then = then
        self._writes_files = any(param.type is OUTPUT for param in params)
        if self._writes_files:
            params.insert(-1, click.Option(["--overwrite"], is_flag=True, help="Replace files that are there already."))
        super().__init__(name, params=params, **attributes)

    def invoke(self, ctx: click.Context) -> None:
        values = ctx.params
        overwrite = not self._writes_files or values.pop("overwrite") or values.get("resume")
        inputs, outputs, replaced = (self._paths(values, kind) for kind in (FILE, OUTPUT, NEW_DIRECTORY))
        if not replaced:  # a training may start from the very model that it replaces
            inputs += [file for option, path in self._paths(values, MODEL) for file in files_of(option, path)]
        check_apart(inputs, outputs, replaced)
        files = [(option, path) for option, path in outputs if not is_stream(path)]
        for option, path in files:
            if not overwrite and os.path.exists(path) and os.path.getsize(path):
                raise OptionError(f"{option} {path} exists; name another file, or replace it with --overwrite")
        try:
            super().invoke(ctx)
        except SettingError as error:
            named = [param for param in self.params if param.name == error.name]
            if not named:
                raise
            raise click.BadParameter(error.found, ctx, named[0]) from None
        if not values.get("quiet", True):
            self._conclude(values, [path for _, path in files])

    def _conclude(self, values: dict[str, Any], files: Sequence[str]) -> None:
        """Say which files were written, and what to type next."""
        from phrase_rescore.cli.terminal import say

        if written := [path for path in files if os.path.isfile(path)]:
            say(f"wrote {' and '.join(written)}")
        if self._then and not is_stream(values.get("out", "")):
            quoted = {name: _quoted(value) for name, value in values.items() if isinstance(value, str)}
            then = self._then if isinstance(self._then, str) else self._then(values)
            say(f"next: {then.format(**quoted)}")

    def _paths(self, values: Mapping[str, Any], kind: PathName) -> list[tuple[str, str]]:
        """Return the paths of this type that were given, each with its option."""
        paths = list[tuple[str, str]]()
        for param in self.params:
            value = values[param.name] if param.type is kind else None
            several = value if param.multiple or param.nargs != 1 else [value]
            paths += [(_called(param), path) for path in several or () if path is not None]
        return paths


def _quoted(word: str) -> str:
    """Quote a word for a shell; one that cannot be printed as bash's $'…'."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(chr(c) if 32 <= c < 127 and c not in b"\\'" else f"\\{c:03o}" for c in os.fsencode(word)) + "'"


command = partial(click.command, cls=Command)


def unchecked(wanted: Range | Sequence[str]) -> Value | Sequence[str]:
    """Return the type of a setting, whose dataclass checks the range: a number, or one of some words."""
    return Value("N", wanted.number) if isinstance(wanted, Range) else wanted


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0.0
    if seconds not in SECONDS:
        raise OptionError(f"{shown(text)} is not a duration; write 90 or 90s, 20m, 2h or 1d")
    return seconds


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,16})([KMG]?)i?B?", text)
    size = int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]] if match else 0
    if size not in BYTES:
        raise OptionError(f"{shown(text)} is not a size; write 500K, 15M or 2G")
    return size


TEXT, DURATION, BYTE_SIZE = Value("TEXT"), Value("DURATION", _seconds), Value("SIZE", _bytes)


def subset(names: Sequence[str]) -> Value:
    """Return the type that splits ``b,a`` into a tuple of known names, in the order of ``names``."""

    def read(text: str) -> tuple[str, ...]:
        asked = text.lower().split(",")
        if unknown := [name for name in asked if name not in names]:
            raise OptionError(f"{unknown[0]!r} is not one of {', '.join(names)}")
        return tuple(name for name in names if name in asked)

    return Value(",".join(names), read)


def option(
    names: str, takes: Range | Sequence[str] | click.ParamType, help: str, metavar: str | None = None, **attributes: Any
) -> Any:
    """Declare an option by its names, with blanks between, what it takes, and its help. A default but 0 and ``-`` is shown."""
    if isinstance(takes, Range):
        takes = Value("N", takes.read)
    kind = takes if isinstance(takes, click.ParamType) else click.Choice(takes)
    metavar = metavar or (kind.name if isinstance(kind, Value) else None)
    if (default := attributes.get("default")) not in (None, 0, "-"):
        help += f"  [default: {default}]"
    return click.option(*names.split(), type=kind, help=help, metavar=metavar, **attributes)


def setting(of: type, name: str, help: str, metavar: str | None = None, called: str = "") -> Any:
    """Declare the option of a field of a ``Checked`` dataclass, which has its range or words, and its default."""
    declared = {item.name: item for item in fields(of)}[name]
    names = f"{called or f'--{name}'.replace('_', '-')} {name}"
    return option(names, unchecked(declared.metadata["range"]), help, metavar, default=declared.default)


def flag(names: str, help: str) -> Any:
    """Declare an option without a value."""
    return click.option(*names.split(), is_flag=True, help=help)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's parameters, by name, without those that are defaults."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


def device_option(default: str) -> Any:
    return option("--device", TEXT, "The device: auto, cpu, cuda or cuda:N.", "DEVICE", default=default)


threads_option = option("--threads", THREADS, "Cores to compute on.  [default: all usable ones, at most OMP_NUM_THREADS]")


def model_option(kind: PathName = MODEL) -> Any:
    return option("-m --model model_dir", kind, "The model directory.", "MODEL_DIR", default=DEFAULT_MODEL)


def lm_option(kind: PathName = MODEL) -> Any:
    return option("-m --model lm", kind, "The directory of the language model.", "LM", default="phrase-rescore-lm")


def out_option(more: str = ", gzip if it ends in .gz", metavar: str = "OUT") -> Any:
    return option("-o --out", OUTPUT, f"The file to write{more}.  [default: standard output]", metavar, default="-")


on_bad_row_option = option(
    "--on-bad-row", ("fail", "drop"), default="fail",
    help="fail stops at a bad row, with its line number. drop leaves bad rows out and keeps them in a .dropped file.",
)  # fmt: skip
force_option = flag("--force", "Go on though files hardly can belong together.")
digits_option = option("--digits", DIGITS, "Significant digits of the numbers, 2 to 17.", default=7)
flush_option = flag(
    "--flush", "Answer every line at once, for a program that writes lines and waits.  [default: at a terminal]"
)
quiet_option = flag("-q --quiet", "Show no progress on standard error. Warnings and errors remain.")
