"""The sidecar names the table that it describes, and every reader of a sidecar looks whether that is the one."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run
from moses_harness import ini_text

TABLE = b"".join(b"the ||| das ||| 0.%d 0.25 1 0.5 ||| 0-0 ||| 3 2 1 ||| |||\n" % i for i in range(1, 9))
READERS: dict[str, Callable[[Path, str], list[object]]] = {
    "moses-ini": lambda table, model: ["moses-ini", table.with_name("moses.ini"), "--table", table],
    "info": lambda table, model: ["info", table],
    "annotate": lambda table, model: ["annotate", table, "-m", model, "--replace", 2],
    "report": lambda table, model: ["report", table, "-m", model, "-o", table.with_name("report.html"), "--overwrite"],
}


@pytest.fixture
def annotated(run: Run, model_dir: str, tmp_path: Path) -> Path:
    (tmp_path / "table").write_bytes(TABLE)
    assert run("annotate", tmp_path / "table", "-m", model_dir, "-o", tmp_path / "out.gz").status == 0
    (tmp_path / "moses.ini").write_text(ini_text("table", 4))
    return tmp_path / "out.gz"


def read(run: Run, command: str, table: Path, model: str) -> tuple[int, str]:
    if command == "report":
        pytest.importorskip("altair", reason="the page needs Altair")
    result = run(*READERS[command](table, model), stdin=b"the\n")
    return result.status, result.err


def test_it_names_its_table(annotated: Path) -> None:
    described = json.loads(annotated.with_name("out.gz.columns.json").read_bytes())["table"]
    assert described["rows"] == 8
    assert len(described["head"]) == 32


@pytest.mark.slow
@pytest.mark.parametrize("command", READERS)
def test_a_sidecar_of_another_table_is_refused(run: Run, model_dir: str, annotated: Path, command: str) -> None:
    """An annotation with other options was stopped after it had its name, and the sidecar is still that of an earlier one."""
    sidecar = annotated.with_name("out.gz.columns.json")
    assert read(run, command, annotated, model_dir)[0] == 0
    annotated.write_bytes(gzip.compress(gzip.decompress(annotated.read_bytes()).replace(b" 1 |||", b" 2.718282 |||")))
    status, err = read(run, command, annotated, model_dir)
    assert (status, err.count("\n")) == (1, 1), err
    assert err.startswith(f"phrase-rescore: error: {sidecar}: belongs to another table than {annotated}; delete it")
    told = json.loads(sidecar.read_bytes())
    del told["table"]
    sidecar.write_text(json.dumps(told))  # as of the version before
    assert read(run, command, annotated, model_dir)[0] == 0


@pytest.mark.parametrize("command", ["moses-ini", "info"])
def test_another_compression_is_the_same_table(run: Run, model_dir: str, annotated: Path, command: str) -> None:
    annotated.write_bytes(gzip.compress(gzip.decompress(annotated.read_bytes()), 1))
    assert read(run, command, annotated, model_dir)[0] == 0


@pytest.mark.parametrize("value", [1, None, [], {}, {"head": 3}, "x"])
def test_a_description_that_is_none(run: Run, model_dir: str, annotated: Path, value: object) -> None:
    sidecar = annotated.with_name("out.gz.columns.json")
    sidecar.write_text(json.dumps({**json.loads(sidecar.read_bytes()), "table": value}))
    status, err = read(run, "info", annotated, model_dir)
    assert (status, err.count("\n")) == (1, 1), err
