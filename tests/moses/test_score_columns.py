"""The bytes of the columns, worked by hand; which columns of a table are its own, and which look like those of annotate."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.moses.columns import AddedColumn, ColumnFormat, TableColumns, format_sidecar, looks_annotated

LOG_P = np.array([math.log(0.5), -1000.0, 0.25, math.log(1e-3)])  # one below the clamp, one a rounding error above 1
UNKNOWN = [0, 1, 2, 100]


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({}, [b" 0.5 1", b" 1.2e-38 2.718282", b" 1 7.389056", b" 0.001 1.651636e+38"]),
        ({"features": ("score",)}, [b" 0.5", b" 1.2e-38", b" 1", b" 0.001"]),
        ({"features": ("count",)}, [b" 1", b" 2.718282", b" 7.389056", b" 1.651636e+38"]),
        ({"scale": "log"}, [b" -0.6931472 0", b" -1000 1", b" 0.25 2", b" -6.907755 100"]),
        ({"digits": 3}, [b" 0.5 1", b" 1.2e-38 2.72", b" 1 7.39", b" 0.001 1.65e+38"]),
    ],
)
def test_columns_by_hand(settings: dict[str, object], columns: list[bytes]) -> None:
    assert ColumnFormat(**settings).columns(LOG_P, UNKNOWN) == columns  # type: ignore[arg-type]


E, E2 = 2.718282, 7.389056


@pytest.mark.parametrize(
    ("rows", "looks"),
    [
        ([[0.5, 0.1, 1.0], [0.5, 1.0, E]], True),  # the count varies
        ([[0.5, -2.5, 0.0], [0.5, 0.0, 3.0]], True),  # logarithms
        ([[0.5, 0.1, 1.0], [0.5, 0.2, 1.0]], False),  # a penalty is always the same
        ([[0.5, 0.5, 0.5, 0.5, 0.1, 1.0]] * 2, True),  # unless Moses' four scores come first
        ([[0.5, 0.5, 0.5, 0.1, 1.0]] * 2, False),
        ([[0.5, 0.5, 0.5, 0.5, 0.1, 2.718]] * 2, False),  # Moses' own constant
        ([[0.5, 0.5, 0.5, 0.5, 0.1, E2]] * 2, True),
        ([[0.5, 0.5, 0.5, 0.5, 1.1, E2]] * 2, False),
        ([[0.5, 0.5, 0.5, 0.5, 0.1, 0.5]] * 2, False),  # no count is below 0
        ([[0.5, -2.5, 0.5], [0.5, 0.0, 3.0]], False),
        ([[0.5, -2.5, -1.0], [0.5, 0.0, 3.0]], False),
        ([[0.5, -2.5, 1.0], [0.5, 0.1, E]], False),  # of two scales
        ([[0.1, 1.0], [0.2, E]], False),  # some column must be the table's own
    ],
)
def test_what_looks_annotated(rows: list[list[float]], looks: bool) -> None:
    assert looks_annotated(np.array(rows)) is looks
    assert not looks_annotated(np.array(rows)[:0])


def columns_of(folder: Path, own: int, added: list[AddedColumn] | None) -> TableColumns:
    """The columns of a table that has so many of its own before those that its sidecar names."""
    table = str(folder / "table")
    if added is not None:
        Path(f"{table}.columns.json").write_text(format_sidecar(added))
    return TableColumns.of(table, np.full((2, own + len(added or ())), 0.5))


@pytest.mark.parametrize(("own", "phi"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3)])
@pytest.mark.parametrize("models", [0, 1, 2])
def test_phi_is_a_column_of_the_table_s_own(tmp_path: Path, own: int, phi: int, models: int) -> None:
    """UnsupervisedMT's tables have φ(s|t) φ(t|s); Moses' sample model has one score."""
    columns = columns_of(tmp_path, own, ColumnFormat().described(own + 1, [("m", "target")] * models, ()))
    assert (columns.phi().number, columns.phi(inverse=True).number) == (phi, 1)
    assert columns.phi(own).number == own
    for number in range(own + 1, own + 2 * models + 2):
        with pytest.raises(OptionError, match=f"--phi-column {number}: "):
            columns.phi(number)


def test_phi_stands_before_the_columns_of_models(tmp_path: Path) -> None:
    """Of a table with two of its own, two of a model, and four more."""
    columns = columns_of(tmp_path, 6, ColumnFormat().described(3, [("m", "target")], ()))
    assert (columns.phi().number, columns.phi(inverse=True).number) == (2, 1)


def test_columns_that_the_sidecar_names(tmp_path: Path) -> None:
    added = ColumnFormat(scale="log").described(3, [("one", "source"), ("other", "target")], ["folder/p"])
    assert added == [
        AddedColumn(3, "score", "log", "one", predicts="source"), AddedColumn(4, "count", "log", "one", side="source"),
        AddedColumn(5, "score", "log", "other", predicts="target"), AddedColumn(6, "count", "log", "other", side="target"),
        AddedColumn(7, "given", "log", "p"),
    ]  # fmt: skip
    columns = columns_of(tmp_path, 2, added)
    assert [str(column) for column in columns.columns] == [
        "1", "2", "3 (score)", "4 (count)", "5 (score)", "6 (count)", "7 (given)",
    ]  # fmt: skip
    assert [column.is_log for column in columns.columns] == [False] * 2 + [True] * 5
    scores = [columns.score(model) for model in ("one", "other", "another")]
    assert [score and score.number for score in scores] == [3, 5, 5], "the model's own, else one that predicts targets"
    assert [column.number for column in columns.last_added()] == [3, 4, 5, 6, 7]
    assert columns_of(tmp_path, 2, added[:1]).last_added()[0].number == 3
    for wrong in (0, 2):
        with pytest.raises(InputError, match=f"column {wrong} of a table that has 1"):
            columns_of(tmp_path, 0, [replace(added[0], column=wrong)])


def test_logarithms_of_columns() -> None:
    scores = np.array([[0.0, -1.0], [1.0, -2.0]])
    assert TableColumns.of("none", scores).logs(scores).tolist() == [[math.log(1.2e-38), -1], [0, -2]]
