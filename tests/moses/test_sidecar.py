"""The sidecar names the table that it describes, and says of every column that annotate appended what it has."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from moses_harness import ini_text

from phrase_rescore.errors import InputError
from phrase_rescore.moses.columns import AddedColumn, format_sidecar, read_sidecar

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
    annotated.write_bytes(gzip.compress(gzip.decompress(annotated.read_bytes()), 1))  # another compression is the same table
    assert len(read_sidecar(str(annotated)) or ()) == 2


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
    described = json.loads(sidecar.read_bytes())
    del described["table"]
    sidecar.write_text(json.dumps(described))
    assert read(run, command, annotated, model_dir)[0] == 0


def test_a_table_is_known_by_its_first_mebibyte(tmp_path: Path) -> None:
    table, row = tmp_path / "table", b"a ||| b ||| 0.5 1 |||\n"
    table.write_bytes(row * 60_000)
    Path(f"{table}.columns.json").write_text(
        format_sidecar([AddedColumn(2, "count", "exp", "m", side="target")], str(table), 60_000)
    )
    assert read_sidecar(str(table))
    table.write_bytes(row * 40_000 + row.replace(b"1", b"2") + row * 20_000)
    with pytest.raises(InputError, match="another table"):
        read_sidecar(str(table))
    table.unlink()
    assert read_sidecar(str(table)), "of a table that cannot be read twice it is believed"


COLUMNS = [
    AddedColumn(5, "score", "exp", "rnn|a", predicts="target"), AddedColumn(6, "count", "exp", "rnn|a", side="both"),
    AddedColumn(7, "score", "log", "rnn|b", predicts="source"), AddedColumn(8, "count", "log", "rnn|b", side="source"),
    AddedColumn(9, "given", "exp", "p"), AddedColumn(10, "given", "log", "p"),
    AddedColumn(11, "count", "exp", "rnn|c", side="target"),
]  # fmt: skip
OF_VERSION_1 = [  # feature and unit of the same, as version 1 wrote them
    ("log_prob", "probability: exp of the natural log p(target | source), EOS included"),
    ("unknown_words", "exp of the number of source and target words unknown to the model"),
    ("log_prob", "natural log p(source | target), EOS included"),
    ("unknown_words", "number of source words unknown to the model"),
    ("given_score", "probability: exp of the natural log"), ("given_score", "natural log"),
    ("unknown_words", "exp of the number of target words unknown to the model"),
]  # fmt: skip


def test_what_is_written_is_read_and_so_is_version_1(tmp_path: Path) -> None:
    table, sidecar = str(tmp_path / "table"), tmp_path / "table.columns.json"
    assert read_sidecar(table) is None
    sidecar.write_text(format_sidecar(COLUMNS))
    assert read_sidecar(table) == COLUMNS
    columns = [
        {"column": column.column, "feature": feature, "model": column.model, "unit": unit}
        for column, (feature, unit) in zip(COLUMNS, OF_VERSION_1, strict=True)
    ]
    sidecar.write_text(json.dumps({"format_version": 1, "columns": columns}))
    assert read_sidecar(table) == COLUMNS


WHOLE: dict[str, Any] = json.loads(format_sidecar(COLUMNS[:1]))
CHANGED: list[dict[str, object]] = [
    {"column": 10**7}, {"column": "5"}, {"column": 5.0}, {"column": []}, {"kind": "log_prob"}, {"kind": []}, {"scale": "ln"},
    {"predicts": "both"}, {"side": "left"}, {"model": 1}, {"more": 1},
]  # fmt: skip
ODD = [
    "{", "[]", "null", '{"columns": [{"column": 5}]}', '{"format_version": 2}', "[" * 100_000,
    json.dumps({**WHOLE, "format_version": 3}), json.dumps({**WHOLE, "format_version": 1}),
    *(json.dumps({**WHOLE, "columns": [{**WHOLE["columns"][0], **change}]}) for change in CHANGED),
    *(json.dumps(WHOLE).replace(": 5", f": {number}") for number in ("9" * 4000, "1e999", "NaN")),
    *(json.dumps({**WHOLE, "table": value}) for value in (1, None, [], {}, {"head": 3}, "x")),
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_what_annotate_did_not_write_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "table").write_bytes(TABLE)
    sidecar = tmp_path / "table.columns.json"
    sidecar.write_text(text)
    with pytest.raises(InputError) as error:
        read_sidecar(str(tmp_path / "table"))
    assert error.value.path == str(sidecar)
