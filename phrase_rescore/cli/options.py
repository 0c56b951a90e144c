"""Commands whose paths are checked before they run, types of options, and the options that several commands share.

An option takes the name of a file with its role (``path_option``), a number with its range (``number_option`` and the types
after ``NumberType``), one of some words (``choice_option``, Subset), or any TEXT.
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

from phrase_rescore.errors import OptionError, shown
from phrase_rescore.files.paths import Role, Use, check_new, check_paths, is_stream
from phrase_rescore.ranges import BYTES, DIGITS, SECONDS, TABLE_ROWS, Range

DEFAULT_MODEL, DEFAULT_LM = "phrase-rescore-model", "phrase-rescore-lm"

Then = str | Callable[[dict[str, Any]], str]
Derived = Callable[[str, Mapping[str, Any]], Iterable[Use]]

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class AnyText(click.ParamType):
    """Takes any text, which the library reads."""

    name = "text"


TEXT = AnyText()


class PathName(click.ParamType):
    """Takes the name of a file or directory, which must not be empty; the shell completes it.

    ``role`` is what the command does with the file (None: nothing, the name is only written). ``derived`` yields further files
    that the command touches, from the path and the values of all options. ``made_by`` is the command that makes such a model.
    ``may_be`` names an option whose path may be the same. ``paths``: from a value that is more than a path to its paths.
    """

    name = "path"

    def __init__(
        self, role: Role | None, derived: Derived | None = None, made_by: str = "train TABLE", may_be: str | None = None,
        paths: Callable[[str], Iterable[str]] = lambda value: [value],
    ) -> None:  # fmt: skip
        self.role, self._derived, self._made_by, self._may_be, self._paths = role, derived, made_by, may_be, paths

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "" in self.paths(value):
            self.fail("the name is empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir" if self.role and self.role.is_directory else "file")]

    def paths(self, value: Any) -> Iterable[str]:
        """Return the paths in a converted value."""
        return self._paths(value)

    def uses(self, option: str, value: Any, values: Mapping[str, Any]) -> Iterator[Use]:
        """Yield what the command does with the paths in a value of the option, and with those derived from them."""
        for path in self.paths(value):
            if self.role:
                yield Use(option, path, self.role, self._made_by, self._may_be)
            yield from self._derived(path, values) if self._derived else ()


_UNBREAKING = str.maketrans({" ": "\xa0", "-": "\u2011"})
_BREAKING = {end: start for start, end in (("\x20", 0xA0), ("-", 0x2011))}


def _unbroken(option: click.Option) -> str:
    """Return the help of an option with its default, in which no line breaks."""
    text, value = option.help or "", option.default
    if option.show_default:
        text += f"  [default: {', '.join(value) if isinstance(value, list | tuple) else value}]"
    return re.sub(r"\[[^]]{,45}\]", lambda found: found[0].translate(_UNBREAKING), text)


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
        for param in params:
            if isinstance(param, click.Option):
                param.help, param.show_default = _unbroken(param), False
        super().__init__(name, params=params, **attributes)

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).translate(_BREAKING)

    def invoke(self, ctx: click.Context) -> Any:
        overwrite = not self._refuses or ctx.params.pop("overwrite") or ctx.params.get("resume")
        check_paths(self._uses(ctx.params))
        if not overwrite:
            check_new(self._uses(ctx.params))
        result = super().invoke(ctx)
        if not ctx.params.get("quiet", True):
            self._end(ctx.params)
        return result

    def _end(self, values: dict[str, Any]) -> None:
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


class NumberType(click.ParamType):
    """Takes a number of a range, as ``read`` returns it. click's own types take nan, ``1_000`` and digits of other scripts."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return self._read(value)
        except OptionError as error:
            self.fail(str(error), param, ctx)


def number(wanted: Range) -> NumberType:
    """Return the type of a number of this range."""
    return NumberType("number", wanted.read)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds not in SECONDS:
        raise OptionError(f"{shown(text)} is not a duration; write 90s, 20m, 2h or 1d")
    return seconds


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,16})([KMG]?)i?B?", text)
    size = int(match[1]) * _BYTES[match[2]] if match else 0
    if size not in BYTES:
        raise OptionError(f"{shown(text)} is not a size; write 500K, 15M or 2G")
    return size


DURATION, BYTE_SIZE = NumberType("duration", _seconds), NumberType("size", _bytes)


class RowsOrFile(PathName):
    """Takes a number of rows, or else the name of a file that has as many."""

    name = "rows"

    def paths(self, value: Any) -> Iterable[str]:
        return [value] if isinstance(value, str) else []

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("write a number of rows, or name a file", param, ctx)
        is_number = isinstance(value, str) and value.isascii() and value.isdigit()
        return number(TABLE_ROWS).convert(value, param, ctx) if is_number else value


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


def path_option(
    *names: str, role: Role | None = Role.READ, derived: Derived | None = None, made_by: str = "train TABLE",
    may_be: str | None = None, metavar: str = "FILE", **attributes: Any,
) -> Any:  # fmt: skip
    """Declare an option whose value is the name of a file or directory, with its role (see ``PathName``)."""
    return click.option(*names, type=PathName(role, derived, made_by, may_be), metavar=metavar, **attributes)


def path_argument(name: str, role: Role = Role.READ, derived: Derived | None = None, **attributes: Any) -> Any:
    """Declare an argument that is the name of a file or directory, with its role (see ``PathName``)."""
    return click.argument(name, type=PathName(role, derived), **attributes)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command's parameters, by name, without those that are defaults."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


def sidecar_of(table: str, values: Mapping[str, Any]) -> Iterator[Use]:
    """Yield the description of an annotated table's columns, which is read if it is there."""
    from phrase_rescore.moses.sidecar import sidecar_path

    if os.path.isfile(sidecar := sidecar_path(table)):
        yield Use("the table's sidecar", sidecar, Role.READ)


def number_option(*names: str, range: Range, metavar: str = "N", default: float | None = None, **attributes: Any) -> Any:
    """Declare an option whose value is a number of a range; a default other than 0 is shown."""
    kind, shown = number(range), bool(default)
    return click.option(*names, type=kind, metavar=metavar, default=default, show_default=shown, **attributes)


def choice_option(*names: str, values: Sequence[str], default: str | None = None, **attributes: Any) -> Any:
    """Declare an option whose value is one of some words."""
    kind, shown = click.Choice(values), default is not None
    return click.option(*names, type=kind, default=default, show_default=shown, **attributes)


def flag(*names: str, help: str) -> Any:
    """Declare an option without a value."""
    return click.option(*names, is_flag=True, help=help)


def model_option(role: Role = Role.READ_DIRECTORY, derived: Derived | None = None) -> Any:
    return path_option(
        "-m", "--model", "model_dir", role=role, derived=derived, metavar="MODEL_DIR", default=DEFAULT_MODEL, show_default=True,
        help="The model directory.",
    )  # fmt: skip


def lm_option(role: Role = Role.READ_DIRECTORY, derived: Derived | None = None) -> Any:
    return path_option(
        "-m", "--model", "lm", role=role, derived=derived, made_by="train-lm CORPUS", metavar="LM", default=DEFAULT_LM,
        show_default=True, help="The directory of the language model.",
    )  # fmt: skip


def out_option(derived: Derived | None = None) -> Any:
    return path_option(
        "-o", "--out", role=Role.WRITE, derived=derived, default="-", metavar="OUT",
        help="The file to write, gzip if it ends in .gz.  [default: standard output]",
    )  # fmt: skip


def device_option(default: str) -> Any:
    return click.option(
        "--device", type=TEXT, default=default, show_default=True, metavar="DEVICE",
        help="The device: auto, cpu, cuda or cuda:N.",
    )  # fmt: skip


on_bad_row_option = choice_option(
    "--on-bad-row", values=("fail", "drop"), default="fail",
    help="fail stops at a bad row, with its line number. drop leaves bad rows out and keeps them in a .dropped file.",
)  # fmt: skip
digits_option = number_option("--digits", range=DIGITS, default=7, help="Significant digits of the numbers, 2 to 17.")
flush_option = flag(
    "--flush", help="Answer every line at once, for a program that writes lines and waits.  [default: at a terminal]"
)
lowercase_option = flag("--lowercase", help="Lower-case the typed text. Needs --tokenize.")
quiet_option = flag("-q", "--quiet", help="Show no progress on standard error. Warnings and errors remain.")
