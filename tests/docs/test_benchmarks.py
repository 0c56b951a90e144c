"""The programs of benchmarks/: each still finds what it imports."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_every_benchmark_finds_what_it_imports() -> None:
    names = sorted({path.stem for path in PROGRAMS.glob("*.py")} - {"neural_system"})  # it runs in a toolkit's environment
    assert "bench_growth" in names
    imports = f"import sys, importlib; sys.path[:0] = [{str(PROGRAMS)!r}, {str(PROGRAMS.parent / 'tests' / 'support')!r}]\n"
    program = imports + f"for name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr
