"""Several processes under torchrun train as one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from small_trainings import command, write_language

from phrase_rescore.models.checkpoint import load

pytestmark = pytest.mark.slow

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.mark.parametrize("sizes", [("31", "1"), ("1", "1"), ("8", "8")], ids=["unequal", "an empty share", "one group"])
def test_gradients_of_two_processes_are_those_of_one(tmp_path: Path, sizes: tuple[str, str]) -> None:
    """Of each of 20 steps, in float64, to rounding, and the weights after them. Minibatch and group differ."""
    script, paths = str(ROOT / "tests" / "distributed_script.py"), [tmp_path / "one.npz", tmp_path / "many.npz"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    for launcher, path in (((sys.executable,), paths[0]), ((*TORCHRUN, "2"), paths[1])):
        done = subprocess.run(
            [*launcher, script, str(path), *sizes], cwd=ROOT, env=environment, capture_output=True, check=False, timeout=100
        )
        assert done.returncode == 0, done.stderr.decode()
    one, many = (np.load(path) for path in paths)
    assert set(one.files) == set(many.files)
    for name in one.files:
        if name.startswith("weight."):
            np.testing.assert_allclose(many[name], one[name], atol=1e-8, err_msg=name)
        else:
            np.testing.assert_allclose(many[name], one[name], atol=1e-10 * np.abs(one[name]).max(), err_msg=name)


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=600)
    one = command(tmp_path, "one", "--threads", "1")
    two = command(tmp_path, "two", "--threads", "1", launcher=(*TORCHRUN, "2"))
    for line in (one, two):
        line[line.index("--max-steps") + 1] = "20"
        done = subprocess.run(line, cwd=ROOT, capture_output=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr.decode()
    assert b"2 processes" in done.stderr
    models = [dict(load(str(tmp_path / name)).model.named_weights()) for name in ("one", "two")]
    for name, weight in models[0].items():
        np.testing.assert_allclose(models[1][name].numpy(), weight.numpy(), atol=1e-4, err_msg=name)
