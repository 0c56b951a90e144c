"""Rows that a training drops are kept beside its model, however the model's directory is spelt."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Run

pytestmark = pytest.mark.slow
TINY = ("--hidden", 4, "--embedding", 3, "--maxout", 2, "--rank", 2, "--max-steps", 2, "--threads", 1, "--held-out", 0)


@pytest.mark.parametrize("name", ["model", "model/", "model//", "model/.", "model/./", "./model", "other/../model"])
def test_dropped_rows_stay_when_the_model_is_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    rows = b"".join(b"s%d a ||| t%d b ||| 0.5 1 ||| 0-0 ||| 1 1 1\n" % (i, i) for i in range(60))
    (tmp_path / "table").write_bytes(rows + b"no row\n")
    command = ("train", "table", "-m", name, "--on-bad-row", "drop", *TINY)
    assert run(*command).status == 0
    (tmp_path / "table").write_bytes(rows + b"no row either\n")
    done = run(*command, "--overwrite")
    assert done.status == 0, done.err
    assert (tmp_path / "model.dropped").read_bytes() == b"no row either\n"
    assert (tmp_path / "model.dropped.1").read_bytes() == b"no row\n"
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["model", "model.dropped", "model.dropped.1", "model.pairs", "other", "table"]
