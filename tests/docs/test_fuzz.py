"""The fuzz targets, each for a fixed number of inputs from a fixed seed; ``make fuzz`` runs them for longer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytest.importorskip("atheris", reason="atheris is not there: it is built for Linux on x86-64")

TARGETS = ROOT / "tests" / "fuzz"


def fuzz(target: str, *arguments: object) -> tuple[int, str]:
    command = [sys.executable, str(TARGETS / f"{target}.py"), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    return done.returncode, (done.stdout + done.stderr).decode(errors="backslashreplace")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "runs"), [("fuzz_rows", 600), ("fuzz_ini", 3000), ("fuzz_model", 600)])
def test_nothing_is_found_in_a_short_run(tmp_path: Path, target: str, runs: int) -> None:
    status, said = fuzz(target, "--corpus", tmp_path / "corpus", "-seed=1", f"-runs={runs}")
    assert status == 0, said
    done = re.search(r"Done (\d+) runs", said)
    assert done, said
    assert int(done[1]) >= runs
    assert [path.name for path in tmp_path.iterdir() if "crash" in path.name] == []


def test_all_targets_are_run() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path in TARGETS.glob("fuzz_*.py"):
        assert f"tests/fuzz/{path.name} -max_total_time=$(FUZZ_SECONDS)" in makefile


def test_a_fault_is_found(tmp_path: Path) -> None:
    """The harness is no test if it cannot fail."""
    target = tmp_path / "fuzz_fault.py"
    target.write_text(
        "from harness import fuzz\ndef check(data):\n    assert b'bad' not in data\nfuzz(check, [b'good'], 16, [b'bad'])\n"
    )
    command = [sys.executable, str(target), "--corpus", str(tmp_path / "corpus"), "-seed=1", "-runs=100000"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": str(TARGETS)}, check=False)
    assert done.returncode != 0
    (kept,) = tmp_path.glob("corpus-crash-*")
    assert b"bad" in kept.read_bytes()
    again = subprocess.run(
        [*command[:4], str(kept)], capture_output=True, env={**os.environ, "PYTHONPATH": str(TARGETS)}, check=False
    )
    assert again.returncode != 0
