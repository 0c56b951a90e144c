"""The benchmark that annotates one table again and again in one process: it runs, and it can tell that something grows."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / "benchmarks"


@pytest.mark.skipif(sys.platform != "linux", reason="it reads Linux's /proc")
def test_passes_are_recorded(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_bytes(b"".join(b"s%d x ||| t%d ||| 0.5 1 ||| 0-0\n" % (i // 3, i) for i in range(5000)))
    options = ["--table", str(table), "--times", "3", "--hidden", "4", "--jobs", "2", "--json", str(tmp_path / "passes.json")]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "long_run.py"), *options],
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    passes = json.loads((tmp_path / "passes.json").read_text())
    assert [record["rows"] for record in passes] == [5000] * 3, done.stderr.decode()
    assert len({(record["digest"], record["descriptors"]) for record in passes}) == 1
    assert done.stdout.count(b"5,000") == 3
    assert all(record["peak"] >= record["resident"] > 50 for record in passes)


def test_what_grows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    from long_run import Pass, faults

    first = Pass(10, 1.0, 100.0, 120.0, 6, "ab")
    assert faults([first, replace(first, resident=104.9, peak=125.9)]) == []
    assert faults([first, first, replace(first, resident=105.1, peak=126.1, descriptors=7, digest="cd")]) == [
        "pass 3: resident memory is 105.1% of the first pass's",
        "pass 3: peak memory is 105.1% of the first pass's",
        "pass 3: 7 open descriptors, 6 after the first pass",
        "pass 3: the output differs from the first pass's",
    ]
