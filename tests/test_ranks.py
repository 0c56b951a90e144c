"""Several processes under torchrun train as one does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from conftest import ROOT
from test_resume import command
from test_training import write_language

from phrase_rescore.checkpoint import load

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


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
