"""Every option of every command: its type says what a path is used for and which numbers it takes, and the command obeys."""

import dataclasses
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pytest
from conftest import Run

import phrase_rescore
from phrase_rescore.cli.main import COMMANDS, cli
from phrase_rescore.cli.options import BYTE_SIZE, DURATION, ROWS_OR_FILE, PathName, Value, number
from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role
from phrase_rescore.ranges import Checked, Range, Whole

ARGUMENTS = {  # what a command needs besides the option that is tested
    "train": ["table", "-m", "new"], "annotate": ["table", "-m", "model"], "strip": ["table", "--columns", "1", "--force"],
    "moses-ini": ["table", "--table", "table"], "evaluate": ["--set", "dev", "table", "a=table"],
    "score": ["-m", "model"], "generate": ["-m", "model"], "embed": ["-m", "model"], "info": ["table"],
    "report": ["table", "-m", "model"], "train-lm": ["table", "-m", "new"],
    "score-lm": ["table", "-m", "model"], "export-lm": ["-m", "model"], "rescore": ["table", "-m", "model"],
    "train-nmt": ["table", "table", "-m", "new"], "tune": ["table", "--reference", "table"],
}  # fmt: skip
VALUES = {  # of options whose value has more than the name of a file
    ("evaluate", "sets"): ("dev", "{}", "a=table"),
    ("train", "vocab_corpus"): ("table", "{}"),
}  # fmt: skip
ONLY_WRITTEN_DOWN = {("moses-ini", "path")}  # a name, of no file that is touched


class Parameter(NamedTuple):
    """An argument or option of a command."""

    command: str
    param: click.Parameter

    def types(self) -> list[Any]:
        return list(getattr(self.param.type, "types", [self.param.type]))

    def path(self) -> PathName | None:
        return next((kind for kind in self.types() if isinstance(kind, PathName)), None)

    def role(self) -> Role | None:
        path = self.path()
        return path.role if path else None

    def name(self) -> str:
        """How messages call it."""
        return self.param.opts[0] if isinstance(self.param, click.Option) else self.param.human_readable_name.strip(".")

    def line(self, path: str) -> list[str]:
        """Return a command line in which the parameter names this path."""
        words = [word.replace("{}", path) for word in VALUES.get((self.command, str(self.param.name)), ("{}",))]
        arguments = ARGUMENTS[self.command]
        if isinstance(self.param, click.Option):
            return [self.command, *arguments, self.param.opts[-1], *words]
        first, *rest = arguments
        return [self.command, f"a={path}" if first.startswith("a=") else path, *rest]


def parameters() -> Iterator[Parameter]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command
        yield from (Parameter(name, param) for param in command.params)


PATHS = [parameter for parameter in parameters() if parameter.role()]
READ_NO_FILE = ("embed", "export-lm")
WRITERS = [parameter for parameter in PATHS if parameter.role() is Role.WRITE and parameter.command not in READ_NO_FILE]


def identify(parameter: Parameter) -> str:
    return f"{parameter.command} {parameter.param.name}"


def test_every_option_has_a_type_that_says_what_it_takes() -> None:
    """A path with its role, a number with its range, a text; of click's types only choices and flags."""
    for parameter in parameters():
        for kind in parameter.types():
            assert isinstance(kind, Value | click.Choice) or parameter.param.is_flag, parameter
        only_written_down = (parameter.command, parameter.param.name) in ONLY_WRITTEN_DOWN
        assert not parameter.path() or parameter.role() or only_written_down, parameter


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table").write_text("a ||| b ||| 0.5 0.5 ||| 0-0 ||| 1 1 1\n")
    Path("model").mkdir()
    return tmp_path


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("parameter", PATHS, ids=identify)
@pytest.mark.parametrize("path", ["table/below", ""])
def test_a_path_that_cannot_be_used_ends_the_command_before_it_begins(run, here, parameter, path) -> None:
    before = listing(here)
    result = run(*parameter.line(path))
    assert (result.status, result.out) == (2, b"")
    assert "Traceback" not in result.err
    assert parameter.name() in result.last_line or not path
    if path:
        assert result.err.startswith(f"phrase-rescore: error: {parameter.name()} table/below: "), result.err
        assert result.err.count("\n") == 1
    assert listing(here) == before


@pytest.mark.parametrize("parameter", WRITERS, ids=identify)
def test_no_output_is_an_input(run: Run, here: Path, parameter: Parameter) -> None:
    Path("link.txt").symlink_to("table")
    result = run(*parameter.line("link.txt"))
    if (parameter.command, parameter.param.name) == ("moses-ini", "out"):
        assert "INI" not in result.err, "OUT may be INI"
    assert result.status == 2
    assert f"{parameter.name()} link.txt are the same; name another for one of them" in result.err


@pytest.mark.parametrize(("kind", "numbers"), [
    (number(Whole(1, 5)), {"1": 1, "+5": 5}), (number(Range(0, 2)), {"1e-3": 0.001, ".5": 0.5, "2.": 2.0}),
    (DURATION, {"90": 90.0, "1.5m": 90.0, "2h": 7200.0}), (BYTE_SIZE, {"500K": 500 << 10, "2GiB": 2 << 30}),
    (ROWS_OR_FILE, {"12": 12, "file": "file"}),
])  # fmt: skip
def test_what_is_a_number(kind: click.ParamType, numbers: dict[str, object]) -> None:
    assert {text: kind.convert(text, None, None) for text in numbers} == numbers
    wrong = ["", " ", "-1", "nan", "inf", "1e400", str(2**80), "9" * 10_000, "0x10", "1_0", "٣", "1\n", f"0.{'0' * 10_000}1"]
    for text in ["", "9" * 10_000] if kind is ROWS_OR_FILE else wrong:
        with pytest.raises(click.BadParameter) as caught:
            kind.convert(text, None, None)
        assert len(str(caught.value)) < 200


def test_a_number_that_is_none_names_its_option(run: Run, here: Path) -> None:
    result = run("annotate", "table", "--digits", "nan")
    assert result.status == 2
    assert result.last_line == "Error: Invalid value for '--digits': 'nan' is not a whole number from 2 to 17"


def checked_dataclasses() -> list[type]:
    importlib.import_module("phrase_rescore.api")
    direct = Checked.__subclasses__()
    return sorted({*direct, *(kind for of in direct for kind in of.__subclasses__())}, key=lambda kind: kind.__name__)


def test_every_number_of_the_settings_has_a_range() -> None:
    for kind in checked_dataclasses():
        for field in dataclasses.fields(kind):
            if field.type in ("int", "float", "int | None", "float | None"):
                assert isinstance(field.metadata.get("range"), Range), f"{kind.__name__}.{field.name}"


WRONG = [float("nan"), float("inf"), -float("inf"), 10**400, -(2**63) - 1, "1", True, b"1", [1], 1e300]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:10])
def test_a_setting_that_is_no_number_of_its_range(value: object) -> None:
    for kind in checked_dataclasses():
        defaults = {field.name: (field.default, field.default_factory) for field in dataclasses.fields(kind)}
        needed = {name: "path" for name, given in defaults.items() if set(given) == {dataclasses.MISSING}}
        for field in dataclasses.fields(kind):
            if "range" in field.metadata:
                with pytest.raises(OptionError, match=f"^{field.name}: .* is not a (?:whole )?number ") as caught:
                    kind(**needed, **{field.name: value})
                assert len(str(caught.value)) < 200


def test_no_number_reaches_a_training(tmp_path: Path) -> None:
    for name, value in (("learning_rate", float("nan")), ("epochs", float("inf")), ("seed", 2**63), ("factors", (101, None))):
        with pytest.raises(OptionError, match=f"^{name}: "):
            phrase_rescore.train(tmp_path / "none", tmp_path / "model", **{name: value})
    wrong = ("jobs", 0), ("threads", 1.5), ("block_rows", 10**30), ("expect_rows", "9" * 5000), ("expect_rows", -1)
    for name, value in wrong:
        with pytest.raises(OptionError):
            phrase_rescore.annotate(tmp_path / "none", tmp_path / "model", tmp_path / "out", **{name: value})
    assert os.listdir(tmp_path) == []


def test_numbers_of_numpy_are_numbers() -> None:
    assert np.int64(3) in Whole(1, 5)
    assert np.float32(0.5) in Range(0, 1)
    assert np.float64("nan") not in Range(0, 1)
