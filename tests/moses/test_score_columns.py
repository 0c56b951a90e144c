"""The bytes of the columns, worked by hand: probabilities, exp of counts, clamps, and each feature by itself."""

import math
from pathlib import Path

import numpy as np
import pytest

from phrase_rescore.errors import OptionError
from phrase_rescore.moses.columns import ColumnFormat, TableColumns, format_sidecar
from phrase_rescore.moses.table import parse_row

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


def test_a_fourth_column_of_ones_is_not_named_as_moses_s() -> None:
    """It may be a count of unknown words after two scores, whose sidecar is lost."""
    rows = [parse_row(b"a ||| b ||| 0.1 0.2 %b 1" % p) for p in (b"0.5", b"0.25")]
    assert [column.name for column in TableColumns.of("-", rows).columns] == ["column 1", "column 2", "column 3", "column 4"]


@pytest.mark.parametrize(("own", "phi"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3)])
@pytest.mark.parametrize("scale", ["exp", "log"])
@pytest.mark.parametrize("models", [0, 1, 2])
def test_phi_is_a_column_of_the_table_s_own(tmp_path: Path, own: int, phi: int, scale: str, models: int) -> None:
    """UnsupervisedMT's tables have φ(s|t) φ(t|s); Moses' sample model has one score."""
    form = ColumnFormat(scale=scale)
    added = form.columns(np.log([0.5, 0.01, 0.2]), [0, 1, 0])
    rows = [parse_row(b"a ||| b |||" + b" 0.1" * own + columns * models) for columns in added]
    table = str(tmp_path / "table")
    sidecar = Path(f"{table}.columns.json")
    sidecar.write_text(format_sidecar(form, own, [("m", ("source", "target"))] * models))
    for columns in (TableColumns.of(table, rows), sidecar.unlink(), TableColumns.of(table, rows)):
        if columns is not None:
            assert (columns.phi().number, columns.phi(inverse=True).number) == (phi, 1)
            assert columns.phi(own).number == own
            for number in range(own + 1, own + 2 * models + 1):
                with pytest.raises(OptionError, match=f"--phi-column {number}: column {number} of .* a model's; give one of"):
                    columns.phi(number)
