"""The fuzz targets, each for a fixed number of inputs from a fixed seed; ``make fuzz`` runs them for longer."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(not find_spec("atheris"), reason="atheris is not there: it is built for Linux on x86-64")

TARGETS = ROOT / "tests" / "fuzz"
RUNS = {"fuzz_rows": 600, "fuzz_model": 200, "fuzz_state": 100, "fuzz_store": 1000}  # others: 2,000


def fuzz(target: Path, *arguments: object) -> tuple[int, str]:
    command = [sys.executable, str(target), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, TARGETS, ROOT / "tests" / "support")))}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    return done.returncode, (done.stdout + done.stderr).decode(errors="backslashreplace")


@pytest.mark.slow
@pytest.mark.parametrize("target", [path.stem for path in TARGETS.glob("fuzz_*.py")])
def test_nothing_is_found_in_a_short_run(tmp_path: Path, target: str) -> None:
    runs = RUNS.get(target, 2000)
    status, said = fuzz(TARGETS / f"{target}.py", "--corpus", tmp_path / "corpus", "-seed=1", f"-runs={runs}")
    assert status == 0, said
    done = re.search(r"Done (\d+) runs", said)
    assert done, said
    assert int(done[1]) >= runs
    assert [path.name for path in tmp_path.iterdir() if "crash" in path.name] == []


@pytest.mark.parametrize(("check", "found"), [("len(data)", 0), ("data.index(b'o')", 1)])
def test_a_fault_is_found_and_nothing_is_left_in_memory(tmp_path: Path, check: str, found: int) -> None:
    """The harness is no test if it cannot fail; and libFuzzer ends the process of a target at once, however it ends."""
    before = set(Path("/dev/shm").glob("fuzz-*"))
    target = tmp_path / "fuzz_fault.py"
    target.write_text(
        f"from harness import fuzz, workplace\nworkplace()\nfuzz(lambda data: {check}, [b'good'], 16, [b'bad'])\n"
    )
    ended, _ = fuzz(target, "--corpus", tmp_path / "corpus", "-seed=1", "-runs=1000")
    kept = list(tmp_path.glob("corpus-crash-*"))
    assert (bool(ended), len(kept)) == (bool(found), found)
    assert all(fuzz(target, "--corpus", tmp_path / "corpus", path)[0] for path in kept)
    assert set(Path("/dev/shm").glob("fuzz-*")) == before
