"""Commands whose paths are checked before they run, types of options, and the options that several commands share.

``option`` declares an option: its names, what it takes, its help. What it takes is a number of a Range, one of some words, or a
Value: a PathName with its role, TEXT, ….
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click
import cloup
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role, Use, check_new, check_paths, is_stream
from phrase_rescore.messages import shown
from phrase_rescore.ranges import BYTES, DIGITS, SECONDS, TABLE_ROWS, Range

DEFAULT_MODEL = "phrase-rescore-model"

Then = str | Callable[[dict[str, Any]], str]
Derived = Callable[[str, Mapping[str, Any]], Iterable[Use]]


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


class PathName(Value):
    """Takes the name of a file or directory, which must not be empty; the shell completes it.

    ``role`` is what the command does with the file (None: nothing, the name is only written). ``derived`` yields further files
    that the command touches, from the path and the values of all options. ``read`` and ``paths`` are for what is more than a
    path: from the text to a value, from the value to its paths. ``more``: ``made_by`` or ``may_be`` of each ``Use``.
    """

    def __init__(
        self, role: Role | None = Role.READ, derived: Derived | None = None, read: Callable[[Any], Any] = str,
        paths: Callable[[Any], Iterable[str]] = lambda path: [path], **more: str,
    ) -> None:  # fmt: skip
        super().__init__("FILE", read)
        self.role, self._derived, self._paths, self._more = role, derived, paths, more

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value = super().convert(value, param, ctx)
        if "" in self._paths(value):
            self.fail("the name is empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir" if self.role and self.role.is_directory else "file")]

    def uses(self, option: str, value: Any, values: Mapping[str, Any]) -> Iterator[Use]:
        """Yield what the command does with the paths in a value of the option, and with those derived from them."""
        for path in self._paths(value):
            if self.role:
                yield Use(option, path, self.role, **self._more)
            yield from self._derived(path, values) if self._derived else ()


_UNBREAKING, _BREAKING = str.maketrans(" -", "\xa0\u2011"), str.maketrans("\xa0\u2011", " -")


def _unbroken(help: str) -> str:
    """Return a help in which no line breaks within brackets."""
    return re.sub(r"\[[^]]{,45}\]", lambda found: found[0].translate(_UNBREAKING), help)


class Command(click.Command):
    """A command that checks all its paths before its body runs; files that are there already need --overwrite or --resume.

    (train has its own, for models.) At its end it says which files it wrote and what to type next: ``then``, or the text that
    ``then`` makes of the options, with values in braces; nothing if OUT is a stream.
    """

    def __init__(self, name: str | None, params: list[click.Parameter], then: Then = "", **attributes: Any) -> None:
        self._then = then
        self._refuses = any(isinstance(param.type, PathName) and param.type.role is Role.WRITE for param in params)
        if self._refuses:
            params.insert(-1, click.Option(["--overwrite"], is_flag=True, help="Replace files that are there already."))
        super().__init__(name, params=params, **attributes)

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).translate(_BREAKING)

    def invoke(self, ctx: click.Context) -> None:
        values = ctx.params
        overwrite = not self._refuses or values.pop("overwrite") or values.get("resume")
        check_paths(self._uses(values))
        if not overwrite:
            check_new(self._uses(values))
        super().invoke(ctx)
        if values.get("quiet", True):
            return
        from phrase_rescore.cli.terminal import say

        paths = [use.path for use in self._uses(values) if use.role is Role.WRITE]
        if written := [path for path in paths if os.path.isfile(path) and not is_stream(path)]:
            say(f"wrote {' and '.join(written)}")
        then = self._then(values) if callable(self._then) else self._then
        if then and not is_stream(values.get("out", "")):
            quoted = {name: shlex.quote(value) for name, value in values.items() if isinstance(value, str)}
            say(f"next: {then.format(**quoted)}")

    def _uses(self, values: Mapping[str, Any]) -> Iterator[Use]:
        """Yield all paths of the command, of one option after the other."""
        for param in self.params:
            value, kind = values.get(param.name or ""), param.type
            if value is None:
                continue
            several = value if param.multiple or param.nargs != 1 else [value]
            kinds = kind.types if isinstance(kind, click.Tuple) else [kind] * len(several)
            option = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name.removesuffix("...")
            for one, each in zip(kinds, several, strict=True):
                if isinstance(one, PathName):
                    yield from one.uses(option, each, values)


class GroupedCommand(Command, cloup.Command):
    """Such a command whose options stand in groups (``cloup.option_group``).

    If the ``usual`` options are named, --help shows these, and --help-all shows all.
    """

    def __init__(self, name: str | None, params: list[click.Parameter], usual: str = "", **attributes: Any) -> None:
        every = [param for param in params if isinstance(param, click.Option)]
        self._rest = [option for option in every if usual and option.name not in usual.split()]
        if self._rest:
            show_all: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": self._show_all}
            params.append(click.Option(["--help-all"], help=f"Show all {len(every)} options.", **show_all))
        super().__init__(name, params=params, **attributes)

    def _show_all(self, ctx: click.Context, param: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            click.echo(super().get_help(ctx))
            ctx.exit()

    def get_help(self, ctx: click.Context) -> str:
        self._hide(True)
        try:
            return super().get_help(ctx)
        finally:
            self._hide(False)

    def _hide(self, hidden: bool) -> None:
        for option in self._rest:
            option.hidden = hidden
        for group in self.option_groups:
            group.hidden = all(option.hidden for option in group.options)


command = partial(click.command, cls=Command)
grouped_command = partial(click.command, cls=GroupedCommand)


def number(wanted: Range) -> Value:
    """Return the type of a number of this range."""
    return Value("N", wanted.read)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else 0.0
    if seconds not in SECONDS:
        raise OptionError(f"{shown(text)} is not a duration; write 90s, 20m, 2h or 1d")
    return seconds


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,16})([KMG]?)i?B?", text)
    size = int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]] if match else 0
    if size not in BYTES:
        raise OptionError(f"{shown(text)} is not a size; write 500K, 15M or 2G")
    return size


def _rows_or_path(text: str) -> float | str:
    if not text:
        raise OptionError("write a number of rows, or name a file")
    return TABLE_ROWS.read(text) if text.isascii() and text.isdigit() else text


def _sidecar_of(table: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the description of an annotated table's columns, which is read if it is there."""
    from phrase_rescore.moses.columns import sidecar_path

    if os.path.isfile(sidecar := sidecar_path(table)):
        yield Use("the table's sidecar", sidecar, Role.READ)


TEXT, DURATION, BYTE_SIZE = Value("TEXT"), Value("DURATION", _seconds), Value("SIZE", _bytes)
FILE, ANNOTATED_TABLE = PathName(), PathName(derived=_sidecar_of)
ROWS_OR_FILE = PathName(read=_rows_or_path, paths=lambda value: [value] if isinstance(value, str) else [])


def subset(names: Sequence[str], as_asked: bool = False) -> Value:
    """Return the type that splits ``b,a`` into a tuple of known names, in the order of ``names`` unless ``as_asked``."""

    def read(text: str) -> tuple[str, ...]:
        asked = tuple(dict.fromkeys(text.lower().split(",")))
        if unknown := [name for name in asked if name not in names]:
            raise OptionError(f"{unknown[0]!r} is not one of {', '.join(names)}")
        return asked if as_asked else tuple(name for name in names if name in asked)

    return Value(",".join(names), read)


def option(
    names: str, takes: Range | Sequence[str] | click.ParamType, help: str, metavar: str | None = None, **attributes: Any
) -> Any:
    """Declare an option by its names, with blanks between, what it takes, and its help. A default but 0 and ``-`` is shown."""
    kind = takes if isinstance(takes, click.ParamType) else number(takes) if isinstance(takes, Range) else click.Choice(takes)
    metavar = metavar or (kind.name if isinstance(kind, Value) else None)
    if (default := attributes.get("default", 0)) not in (0, "-"):
        help += f"  [default: {default}]"
    return click.option(*names.split(), type=kind, help=_unbroken(help), metavar=metavar, **attributes)


def flag(names: str, help: str) -> Any:
    """Declare an option without a value."""
    return click.option(*names.split(), is_flag=True, help=_unbroken(help))


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's parameters, by name, without those that are defaults."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


def device_option(default: str) -> Any:
    return option("--device", TEXT, "The device: auto, cpu, cuda or cuda:N.", "DEVICE", default=default)


def model_option(role: Role = Role.READ_DIRECTORY, derived: Derived | None = None) -> Any:
    path = PathName(role, derived)
    return option("-m --model model_dir", path, "The model directory.", "MODEL_DIR", default=DEFAULT_MODEL)


def lm_option(role: Role = Role.READ_DIRECTORY, derived: Derived | None = None) -> Any:
    path = PathName(role, derived, made_by="train-lm CORPUS")
    return option("-m --model lm", path, "The directory of the language model.", "LM", default="phrase-rescore-lm")


def out_option(more: str = ", gzip if it ends in .gz", metavar: str = "OUT", **path: Any) -> Any:
    help = f"The file to write{more}.  [default: standard output]"
    return option("-o --out", PathName(Role.WRITE, **path), help, metavar, default="-")


on_bad_row_option = option(
    "--on-bad-row", ("fail", "drop"), default="fail",
    help="fail stops at a bad row, with its line number. drop leaves bad rows out and keeps them in a .dropped file.",
)  # fmt: skip
digits_option = option("--digits", DIGITS, "Significant digits of the numbers, 2 to 17.", default=7)
flush_option = flag(
    "--flush", "Answer every line at once, for a program that writes lines and waits.  [default: at a terminal]"
)
quiet_option = flag("-q --quiet", "Show no progress on standard error. Warnings and errors remain.")
