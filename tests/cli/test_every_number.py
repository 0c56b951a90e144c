"""Every option that takes a number or a text, with every kind of number: it works, or one line names the option."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import every_option
import numpy as np
import pytest
from conftest import MakeModel, Run
from every_option import Outcome, Parameter, Server, digest, line, make_folder, parameters, tokens_of

import phrase_rescore
from phrase_rescore.cli.options import NumberType, PathName, Subset, Text
from phrase_rescore.errors import OptionError
from phrase_rescore.ranges import Checked, Decimal, Whole

NUMBERS = [
    "0", "-1", "1", "nan", "inf", "1e400", "1e-400", str(2**63), "9" * 10_000, "0." + "0" * 10_000 + "1", "", " ", "\t\n",
    "0x10", "1_0", "٣", "1.5", "1e3", "cuda:" + "9" * 30,
]  # fmt: skip


def takes_number(parameter: Parameter) -> bool:
    return any(isinstance(kind, NumberType | Text) for kind in parameter.types())


NUMBERED = [parameter for parameter in parameters() if takes_number(parameter)]


def test_every_option_has_a_type_that_is_tested() -> None:
    """A path, a number, a text of ours; of click's types only choices and flags. Else the matrices would not see it."""
    for parameter in parameters():
        for kind in parameter.types():
            ours = PathName, NumberType, Subset, Text
            assert isinstance(kind, (*ours, click.Choice)) or parameter.param.is_flag, (parameter.key, kind)


def test_every_command_has_a_line() -> None:
    assert list(every_option.BASES) == list(every_option.commands())


@pytest.fixture(scope="module")
def server(warm_python: str) -> Iterator[Server]:
    server = Server(warm_python)
    yield server
    server.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_model: MakeModel, run: Run) -> Path:
    folder = tmp_path_factory.mktemp("good")
    make_folder(folder, make_model(), run)
    return folder


def accepted(parameter: Parameter, place: int, number: str) -> bool:
    """Tell whether it is a value of this option: what is wrong with it then, the command finds in a file."""
    kind = parameter.types()[place % len(parameter.types())]
    try:
        kind.convert(number, parameter.param, None)
    except click.ClickException:
        return False
    return True


def trouble(outcome: Outcome, parameter: Parameter, is_accepted: bool, changed: set[str]) -> str:
    """Say what is wrong with what became of a command line; nothing if all is well."""
    if "Traceback" in outcome.err or outcome.status not in (0, 1, 2):
        return f"status {outcome.status}: {outcome.err[-300:]}"
    if outcome.status == 0:
        return ""
    if changed - ({"pairs"} if is_accepted else set()):
        return f"status {outcome.status}, and {changed} changed"
    said = [said for said in outcome.err.splitlines() if not said.startswith("phrase-rescore: warning: ")]
    if len(said) != 1 and not outcome.err.startswith("Usage: "):
        return f"not one line: {outcome.err[-300:]!r}"
    if len(outcome.last_line) > 1200 and not isinstance(parameter.param.type, PathName):
        return f"a line of {len(outcome.last_line)} characters"
    if outcome.status == 1 and is_accepted:
        return ""
    if outcome.status == 1 or not any(name in outcome.last_line for name in parameter.names):
        return f"status {outcome.status}: {outcome.last_line}"
    return ""


def cells(parameter: Parameter, numbers: Sequence[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Yield a number, its place among the values of the option, and these values."""
    types, nargs = parameter.types(), parameter.param.nargs
    for number in numbers:
        for place in range(max(nargs, 1)):
            if isinstance(types[place % len(types)], NumberType | Text):
                yield number, place, [number if i == place else "table" for i in range(max(nargs, 1))]


def check(server: Server, good: Path, work: Path, parameter: Parameter, numbers: Sequence[str]) -> None:
    found, stdin = {}, every_option.STDINS.get(parameter.command, every_option.STDIN)
    before = digest(good)
    for number, place, values in cells(parameter, numbers):
        if not work.exists():
            shutil.copytree(good, work)
        args = line(parameter.command, {**tokens_of(parameter), parameter.name: values})
        outcome = server.run(args, work, stdin)
        after = digest(work)
        changed = {name.partition(os.sep)[0] for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        if said := trouble(outcome, parameter, accepted(parameter, place, number), changed):
            found[number[:20], place] = said
        if changed:
            shutil.rmtree(work)
    assert not found, "\n".join(f"{cell}: {said}" for cell, said in found.items())


@pytest.mark.parametrize("parameter", NUMBERED, ids=lambda parameter: "-".join(parameter.key))
def test_what_is_no_number(server: Server, folder: Path, tmp_path: Path, parameter: Parameter) -> None:
    check(server, folder, tmp_path / "work", parameter, ["nan", "9" * 10_000])


@pytest.mark.whole
@pytest.mark.parametrize("parameter", NUMBERED, ids=lambda parameter: "-".join(parameter.key))
def test_every_number(server: Server, folder: Path, tmp_path: Path, parameter: Parameter) -> None:
    check(server, folder, tmp_path / "work", parameter, NUMBERS)


# The settings of the library


def checked_dataclasses() -> list[type]:
    for module in ("api", "evaluation.why", "evaluation.run", "queries.generate"):
        importlib.import_module(f"phrase_rescore.{module}")
    direct = Checked.__subclasses__()
    return sorted({*direct, *(kind for of in direct for kind in of.__subclasses__())}, key=lambda kind: kind.__name__)


def test_every_number_of_the_settings_has_a_range() -> None:
    kinds = checked_dataclasses()
    assert {kind.__name__ for kind in kinds} == {
        "ColumnFormat", "Data", "EvaluationSettings", "LanguageModelNetwork", "Machine", "Network", "Output", "PairRecipe",
        "Recipe", "Regularization", "Search", "Text", "WhyOptions",
    }  # fmt: skip
    for kind in kinds:
        for field in dataclasses.fields(kind):
            if field.type in ("int", "float", "int | None", "float | None"):
                assert isinstance(field.metadata.get("range"), Whole | Decimal), f"{kind.__name__}.{field.name}"


WRONG = [float("nan"), float("inf"), -float("inf"), 10**400, -(2**63) - 1, "1", True, b"1", [1], 1e300]


def is_needed(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:10])
def test_a_setting_that_is_no_number_of_its_range(value: object) -> None:
    for kind in checked_dataclasses():
        needed = {field.name: "path" for field in dataclasses.fields(kind) if is_needed(field)}
        for field in dataclasses.fields(kind):
            if "range" in field.metadata:
                with pytest.raises(OptionError, match=f"^{field.name}: .* is not a (?:whole )?number ") as caught:
                    kind(**needed, **{field.name: value})
                assert len(str(caught.value)) < 200


def test_no_number_reaches_a_training(tmp_path: Path) -> None:
    for name, value in (("learning_rate", float("nan")), ("epochs", float("inf")), ("seed", 2**63), ("factors", (101, None))):
        with pytest.raises(OptionError, match=f"^{name}: "):
            phrase_rescore.train(tmp_path / "none", tmp_path / "model", **{name: value})
    for name, value in (
        ("jobs", 0),
        ("threads", 1.5),
        ("block_rows", 10**30),
        ("expect_rows", "9" * 5000),
        ("expect_rows", -1),
    ):
        with pytest.raises(OptionError):
            phrase_rescore.annotate(tmp_path / "none", tmp_path / "model", tmp_path / "out", **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_are_numbers() -> None:
    assert np.int64(3) in Whole(1, 5)
    assert np.float32(0.5) in Decimal(0, 1)
    assert np.float64("nan") not in Decimal(0, 1)
