"""Every option of every command: its type says what a path is used for and which numbers it takes, and the command obeys."""

import dataclasses
import importlib
import inspect
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from conftest import Run
from permissions import like_anybody

import phrase_rescore
from phrase_rescore.cli.main import COMMANDS, cli
from phrase_rescore.cli.options import BYTE_SIZE, DURATION, PathName, Value
from phrase_rescore.errors import OptionError
from phrase_rescore.ranges import Checked, Range, Whole


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command
        yield from ((name, param) for param in command.params)


def test_every_option_has_a_type_that_says_what_it_takes() -> None:
    """A path with what is done with it, a number with its range, a text; of click's own types only choices and flags."""
    for command, param in parameters():
        known = isinstance(param.type, Value | PathName | click.Choice)
        assert known or (isinstance(param, click.Option) and param.is_flag), (command, param)


@pytest.mark.parametrize(("command", "function"), [
    ("score", "queries.score.score"), ("score-lm", "queries.score.score_lm"), ("report", "report.run.report"),
    ("tune", "rescoring.tune.TuneOptions"),
])  # fmt: skip
def test_defaults_are_those_of_the_functions(command: str, function: str) -> None:
    module, _, name = f"phrase_rescore.{function}".rpartition(".")
    of_function = inspect.signature(getattr(pytest.importorskip(module), name)).parameters
    given = {param.name: param.default for name, param in parameters() if name == command and isinstance(param.default, int)}
    wanted = {name: param.default for name, param in of_function.items() if name in given}
    assert wanted
    assert {name: given[name] for name in wanted} == wanted


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table").write_text("a ||| b ||| 0.5 0.5 ||| 0-0 ||| 1 1 1\n")
    Path("model").mkdir()
    return tmp_path


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(("line", "name", "path"), [
    ("info none", "TABLE|MODEL_DIR|INI", "none"),
    ("annotate none", "TABLE", "none"),
    ("annotate table/x", "TABLE", "table/x"),
    ("annotate model", "TABLE", "model"),
    ("train table none -m new", "INPUT", "none"),
    ("train table -m new --scratch none", "--scratch", "none"),
    ("train table -m new --scratch table", "--scratch", "table"),
    ("train table -m table", "-m", "table"),
    ("score -m table", "-m", "table"),
    ("score -m none", "-m", "none"),
    ("train table --init-from none", "--init-from", "none"),
    ("annotate table -m model -m none", "-m", "none"),
    ("annotate table -m model -o model", "-o", "model"),
    ("annotate table -m model -o new/", "-o", "new/"),
    ("annotate table -m model -o none/new", "-o", "none/new"),
    ("annotate table -m model -o table/new", "-o", "table/new"),
    ("annotate table -m model -o ''", "-o", ""),
    ("train table -m ''", "-m", ""),
])  # fmt: skip
def test_a_path_that_cannot_be_used_ends_the_command_before_it_begins(run, here, line, name, path) -> None:
    before = listing(here)
    result = run(*shlex.split(line))
    assert (result.status, result.out) == (2, b"")
    assert result.err.startswith(f"phrase-rescore: error: {name}: ")
    assert path in result.err
    assert result.err.count("\n") == 1
    assert listing(here) == before


def test_what_its_user_may_not_write(run: Run, here: Path) -> None:
    Path("model").chmod(0o555)
    with like_anybody():
        result = run("annotate", "table", "-o", "model/new")
    Path("model").chmod(0o755)
    assert result.status == 2
    assert "-o: cannot write model/new" in result.err


WRITERS = [  # a command line for each way to a file that is written; OUT stands for it
    "annotate table -m model -o OUT", "annotate x -m model --scores table -o OUT",
    "strip table -o OUT", "moses-ini x --table table -o OUT",
    "moses-ini x --lm table -o OUT", "evaluate --set dev x a=table --statistics OUT", "report table -m model -o OUT",
    "rescore table -m model -o OUT", "rescore x -m model --source table -o OUT", "tune x --reference x,table -o OUT",
    "tune table --reference x -o OUT",
]  # fmt: skip


@pytest.mark.parametrize("line", WRITERS)
@pytest.mark.parametrize("out", ["table", "link"])
def test_no_output_is_an_input(run: Run, here: Path, line: str, out: str) -> None:
    Path("link").symlink_to("table")
    Path("x").write_text("a ||| b ||| 0.5 ||| 1\n")
    before = [path.read_bytes() for path in (Path("table"), Path("x"))]
    result = run(*line.replace("OUT", out).split(), "--overwrite")
    assert result.status == 2
    assert re.search(rf"\S+ table and \S+ {out} are the same", result.err), result.err
    assert [path.read_bytes() for path in (Path("table"), Path("x"))] == before
    assert Path("link").is_symlink()


@pytest.mark.parametrize("command", ["embed", "export-lm", "report table"])
def test_no_output_is_a_file_of_the_model(run: Run, here: Path, command: str) -> None:
    Path("model", "config.json").write_text("{}")
    result = run(*command.split(), "-m", "model", "-o", "model/config.json", "--overwrite")
    assert (result.status, "a file of -m model/config.json and -o" in result.err) == (2, True)
    assert Path("model", "config.json").read_text() == "{}"


def test_an_ini_may_be_written_over_with_overwrite(run: Run, here: Path) -> None:
    Path("ini").write_text("x")
    assert "-o ini exists" in run("moses-ini", "ini", "--table", "table", "-o", "ini").err
    assert "the same" not in run("moses-ini", "ini", "--table", "table", "-o", "ini", "--overwrite").err


def test_a_training_may_start_from_the_model_that_it_replaces(run: Run, here: Path) -> None:
    Path("model", "config.json").touch()
    result = run("train", "table", "-m", "model", "--init-from", "model")
    assert "the same" not in result.err
    assert "inside" not in result.err


@pytest.mark.parametrize(("kind", "numbers"), [
    (Value("N", Whole(1, 5).read), {"1": 1, "+5": 5}), (Value("N", Range(0, 2).read), {"1e-3": 0.001, ".5": 0.5, "2.": 2.0}),
    (DURATION, {"90": 90.0, "1.5m": 90.0, "2h": 7200.0, "1d": 86400.0}), (BYTE_SIZE, {"500K": 500 << 10, "2GiB": 2 << 30}),
])  # fmt: skip
def test_what_is_a_number(kind: click.ParamType, numbers: dict[str, object]) -> None:
    assert {text: kind.convert(text, None, None) for text in numbers} == numbers
    wrong = ["", " ", "-1", "nan", "inf", "1e400", str(2**80), "9" * 10_000, "0x10", "1_0", "٣", "1\n", f"0.{'0' * 10_000}1"]
    for text in wrong:
        with pytest.raises(click.BadParameter) as caught:
            kind.convert(text, None, None)
        assert len(str(caught.value)) < 200


def test_a_number_that_is_none_names_its_option(run: Run, here: Path) -> None:
    result = run("annotate", "table", "--digits", "nan")
    assert result.status == 2
    assert result.last_line == (
        "phrase-rescore: error: Invalid value for '--digits': 'nan' is not a whole number from 2 to 17; "
        "see phrase-rescore annotate --help"
    )


@pytest.mark.parametrize(("option", "value"), [("--learning-rate", "1001"), ("--clip", "0"), ("--hidden", "x")])
def test_a_setting_out_of_its_range_names_its_option(run: Run, here: Path, option: str, value: str) -> None:
    """Though what it sets checks it, not the command line."""
    result = run("train", "table", "-m", "new", option, value)
    assert result.status == 2
    assert result.last_line.startswith(f"phrase-rescore: error: Invalid value for '{option}': '{value}")


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
            if "range" in field.metadata and (field.name, value) != ("gzip_level", "1"):
                with pytest.raises(OptionError, match=f"^{field.name}: .* is not (?:a |one of )") as caught:
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
    with pytest.raises(OptionError, match="^columns: "):
        phrase_rescore.strip(tmp_path / "none", tmp_path / "out", columns=0)
    assert os.listdir(tmp_path) == []


def test_numbers_of_numpy_are_numbers() -> None:
    assert np.int64(3) in Whole(1, 5)
    assert np.float32(0.5) in Range(0, 1)
    assert np.float64("nan") not in Range(0, 1)


@pytest.mark.parametrize(("training", "named"), [(False, ["train-lm", "train-nmt"]), (True, ["--resume", "--finish"])])
def test_a_model_that_is_not_there_is_one_to_train(run: Run, tmp_path: Path, training: bool, named: list[str]) -> None:
    if training:
        (tmp_path / "m.training").mkdir()
    result = run("score", "-m", tmp_path / "m")
    assert result.status == 2
    assert all(name in result.last_line for name in ["-m", str(tmp_path / "m"), *named])
