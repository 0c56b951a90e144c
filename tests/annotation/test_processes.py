"""``annotate`` by processes, as on a GPU or many cores: the same bytes, one line for every error, none outlives the command."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Run

from phrase_rescore import annotate
from phrase_rescore.annotation import pipeline
from phrase_rescore.annotation import run as annotation_run
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore.errors import RescoreError

ROW = b"s%d ||| t%d ||| 0.5 0.25 1 1 ||| 0-0 ||| 1 1 1 ||| |||\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pipeline, "THREADS_UP_TO", 1)
    monkeypatch.setattr(annotation_run, "AHEAD_ROWS", 10)
    path = tmp_path / "table"
    path.write_bytes(b"".join(ROW % (i % 7, i % 5) for i in range(120)))
    return path


def test_processes_give_the_bytes_of_threads(run: Run, model_dir: str, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("annotate", table, "-m", model_dir, "--block-size", 10, "--jobs", 2)
    many = run(*arguments)
    assert "2 x 1 processes" in many.err
    monkeypatch.setattr(annotation_run, "AHEAD_ROWS", 1000)
    small = run(*arguments)
    assert "2 x 1 threads" in small.err, "no process is worth starting for a small table"
    assert many.out == small.out
    monkeypatch.setattr(annotation_run, "AHEAD_ROWS", 10)
    with table.open("ab") as stream:
        stream.write(b"a ||| b ||| 1\n")
    bad = run(*arguments)
    assert bad.status == 1
    assert f"{table}:121: " in bad.err
    assert "Traceback" not in bad.err


def test_a_killed_process_ends_the_run(model_dir: str, table: Path, tmp_path: Path) -> None:
    def kill(_: object) -> None:
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(RescoreError, match="a process that scores was killed, perhaps for lack of memory; use fewer --jobs"):
        annotate(table, model_dir, tmp_path / "out", observer=AnnotateObserver(on_block=kill), block_rows=1, jobs=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_the_command(model_dir: str, table: Path, tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import multiprocessing, os, signal, sys
from phrase_rescore.annotation import pipeline
from phrase_rescore.annotation import run as annotation_run
from phrase_rescore.annotation.record import AnnotateObserver
from phrase_rescore import annotate

def kill(_):
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), {int(number)})

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    pipeline.THREADS_UP_TO, annotation_run.AHEAD_ROWS = 1, 10
    annotate(*sys.argv[1:], observer=AnnotateObserver(on_block=kill), block_rows=10, jobs=2)
""")
    command = [sys.executable, script, table, model_dir, tmp_path / "out"]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    pids = list(map(int, found.stdout.split()))
    assert (found.returncode, len(pids)) == (-number, 2)
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "a process outlived the command"
        time.sleep(0.05)
