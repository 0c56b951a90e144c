"""The bytes of the columns, worked by hand: probabilities, exp of counts, clamps, and each feature by itself."""

import math

import numpy as np
import pytest

from phrase_rescore.moses.columns import ColumnFormat

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
