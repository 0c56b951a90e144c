"""Several processes under torchrun train as one does."""

import os
import re
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from small_trainings import command, write_language
from torch.distributed import HashStore, TCPStore

from phrase_rescore.rnn.checkpoint import load
from phrase_rescore.training.processes import ProcessGroup, local_device

pytestmark = pytest.mark.slow

TORCHRUN = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
SIZES = ("31", "1", "7p")  # of a minibatch; p: in pieces


@pytest.fixture(autouse=True)
def ours_on_the_path(warm_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", warm_path)


@pytest.fixture(scope="module")
def of_one_and_two(warm_path: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders with the gradients of one process and of two."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    script = str(Path(__file__).with_name("distributed_script.py"))
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'support'}"
    environment = {**os.environ, "PATH": warm_path, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    for launcher, folder in zip([(), TORCHRUN], folders, strict=True):
        line = [*launcher, "python", script, str(folder), *SIZES]
        done = subprocess.run(line, env=environment, capture_output=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr.decode()
    return folders


@pytest.mark.parametrize("sizes", SIZES, ids=["unequal", "an empty share", "unequal pieces"])
def test_gradients_of_two_processes_are_those_of_one(of_one_and_two: list[Path], sizes: str) -> None:
    """Those of each of 20 steps agree in float64, to rounding, and so do the weights after them."""
    one, many = (np.load(folder / f"{sizes}.npz") for folder in of_one_and_two)
    assert set(one.files) == set(many.files)
    for name in one.files:
        if name.startswith("weight."):
            np.testing.assert_allclose(many[name], one[name], atol=1e-8, err_msg=name)
        else:
            np.testing.assert_allclose(many[name], one[name], atol=1e-10 * np.abs(one[name]).max(), err_msg=name)


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    write_language(tmp_path / "pairs.tsv", pairs=600)
    one = command(tmp_path, "one", "--threads", "1")
    two = command(tmp_path, "two", "--threads", "1", program=(*TORCHRUN, "phrase-rescore"))
    for line in (one, two):
        line[line.index("--max-steps") + 1] = "20"
        line += ["--precision", "float32"]  # in bf16 a sum of other parts is rounded otherwise
        done = subprocess.run(line, cwd=ROOT, capture_output=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr.decode()
    assert b"2 processes" in done.stderr
    models = [dict(load(str(tmp_path / name)).model.named_weights()) for name in ("one", "two")]
    for name, weight in models[0].items():
        np.testing.assert_allclose(models[1][name].numpy(), weight.numpy(), atol=1e-4, err_msg=name)


@pytest.mark.parametrize("done", [False, True])
def test_processes_know_what_the_first_one_did_and_their_own_gpu(done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one is named."""
    store = HashStore()
    assert [ProcessGroup(rank, 2, store).first_alone(lambda: done) for rank in range(2)] == [done, done]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert [local_device(name) for name in ("cpu", "cuda", "cuda:0")] == ["cpu", "cuda:1", "cuda:0"]


WAITING = """
import os, sys, time
from datetime import timedelta
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
c10d._get_default_timeout = lambda backend: timedelta(seconds=3)  # as 10 or 30 minutes are to a night
from phrase_rescore.cli.main import main
from phrase_rescore.training import processes as distributed
from phrase_rescore.training import pairs as prepare
distributed._MINUTE, what = timedelta(seconds=2), sys.argv.pop(1)
made = prepare.sorted_pairs

def slow(*args, **more):
    if what == "dies":
        time.sleep(1)
        os.kill(os.getpid(), 9)
    if what == "fails":
        raise prepare.OptionError("no pairs today")
    time.sleep(8)
    return made(*args, **more)

if what in ("second dies", "second stops"):
    from phrase_rescore.training.processes import Gradients
    step, steps = Gradients.__call__, []

    def last(*args):
        steps.append(args)
        if os.environ["RANK"] == "1" and len(steps) == 2:
            os.kill(os.getpid(), 9 if what == "second dies" else 15)
        return step(*args)

    Gradients.__call__ = last
elif what:
    prepare.sorted_pairs = slow
main()
"""


def two_processes(tmp_path: Path, what: str, *more: str) -> list[tuple[int, str]]:
    """Train in two processes without torchrun, which would end one when the other dies: (status, standard error) of each."""
    if not (tmp_path / "pairs.tsv").exists():
        write_language(tmp_path / "pairs.tsv", pairs=300)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = command(tmp_path, "model", "--threads", "1", *more)[3:]
    line[line.index("--max-steps") + 1] = "4"
    processes = []
    # That of an agent, which outlives the first process; without one the first process has it
    store = None if what == "dies" else TCPStore("127.0.0.1", port, is_master=True)
    for rank in range(2):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": str(store is not None),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        words = ["python", "-c", WAITING, what, *line]
        processes.append(subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        return [(process.wait(100), process.communicate()[1]) for process in processes]
    finally:
        for process in processes:
            process.kill()
        del store


def test_processes_wait_for_the_first_one_longer_than_a_collective_would(tmp_path: Path) -> None:
    (first, _), (second, told) = two_processes(tmp_path, "slow")
    assert (first, second) == (0, 0), told
    assert load(str(tmp_path / "model")).training["steps"] == 4


@pytest.mark.parametrize(("what", "status", "said"), [
    ("dies", -9, r"the first process is gone \(.*\); see its error"),
    ("fails", 2, "the first process failed; see its error"),
])  # fmt: skip
def test_processes_end_when_the_first_one_does(tmp_path: Path, what: str, status: int, said: str) -> None:
    (first, _), (second, told) = two_processes(tmp_path, what)
    assert (first, second) == (status, 1)
    assert re.fullmatch(f"phrase-rescore: error: {said}", told.splitlines()[-1])


def test_the_first_process_ends_in_a_line_when_another_does(tmp_path: Path) -> None:
    (first, told), (second, _) = two_processes(tmp_path, "second dies")
    assert (first, second) == (1, -9)
    error = told.splitlines()[-1]
    assert error.startswith("phrase-rescore: error: another process of this training is lost ("), told
    assert error.endswith("; start all again with --resume")


def test_a_signal_to_one_process_stops_all_after_the_same_step(tmp_path: Path) -> None:
    (first, told), (second, other) = two_processes(tmp_path, "second stops")
    assert (first, second) == (143, 143), told + other
    assert told.splitlines()[-3:-1] == [
        "phrase-rescore: terminated",
        f"phrase-rescore: step 2 is saved in {tmp_path}/model.training; the same command with --resume continues",
    ]
    assert other.splitlines()[-1] == "phrase-rescore: terminated"
    (first, _), (second, told) = two_processes(tmp_path, "", "--resume")
    assert (first, second) == (0, 0), told
    assert load(str(tmp_path / "model")).training["steps"] == 4
