"""Strangers' files: no code of theirs runs, nothing of theirs reaches the terminal raw, temporary files are ours alone."""

import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, MakeModel, Run

from phrase_rescore.files.outputs import atomic_output, replace_directory

TABLE = b"the house ||| das haus ||| 0.5 0.25 1 6.1e-05 ||| 0-0 1-1 ||| 3 2 1 ||| |||\n" * 3
WEIGHTS = "model-00001-of-00001.safetensors"


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


def test_pickles_in_the_place_of_weights_are_not_opened(run: Run, make_model: MakeModel, tmp_path: Path) -> None:
    model, hit = Path(make_model()), tmp_path / "hit"
    data = pickle.dumps(Bomb(hit))
    pickle.loads(data)
    hit.rmdir()  # so it works
    whole = (model / WEIGHTS).read_bytes()
    for name in (WEIGHTS, "config.json", "source.vocab", "target.vocab"):
        before = (model / name).read_bytes()
        for content in (data, whole[:8] + data + whole[8 + len(data) :]):
            (model / name).write_bytes(content)
            result = run("annotate", "-", "-m", model, "-o", tmp_path / "out", stdin=TABLE)
            assert (result.status, result.err.count("\n")) == (1, 1), name
        (model / name).write_bytes(before)
    for name in ("pytorch_model.bin", "model.pt", "config.py", "__init__.py", "conftest.py"):
        (model / name).write_bytes(data)  # files that other programs would open
    assert run("annotate", "-", "-m", model, stdin=TABLE).status == 0
    assert not hit.exists()


@pytest.mark.slow
def test_pickles_among_prepared_pairs_are_not_opened(run: Run, tmp_path: Path) -> None:
    """Such a store is not used; the pairs are prepared again."""
    (tmp_path / "table").write_bytes(TABLE)
    tiny = "--hidden", 4, "--embedding", 3, "--maxout", 2, "--rank", 2, "--max-steps", 1, "--threads", 1
    to = "train", tmp_path / "table", "-m", tmp_path / "model", "--overwrite", *tiny
    assert run(*to).status == 0
    array, summary = tmp_path / "model.pairs" / "train.src.ids.npy", tmp_path / "model.pairs" / "pairs.json"
    with array.open("wb") as stream:
        np.save(stream, np.array([Bomb(tmp_path / "hit")], dtype=object), allow_pickle=True)
    stored = json.loads(summary.read_bytes())
    stored["files"][array.name] = array.stat().st_size
    summary.write_text(json.dumps(stored))
    result = run(*to)
    assert result.status == 0, result.err
    assert "found prepared" not in result.err
    assert not (tmp_path / "hit").exists()


WATCHED = """
import sys
from phrase_rescore.cli.main import main

def annotate(model):
    try:
        main(["annotate", sys.argv[1], "-m", model, "-o", sys.argv[2], "--overwrite", "-q", "--jobs", "1", "--device", "cpu"])
    except SystemExit as end:
        assert not end.code, end.code

annotate(sys.argv[3])  # imports what is needed
events, watching = [], True
CODE = ("exec", "compile", "import", "pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn",
        "os.fork", "ctypes.dlopen", "socket.connect", "marshal.loads")
OURSELVES = ("ctypes.dlopen", (None,))
sys.addaudithook(lambda *event: events.append(str(event)) if event[0] in CODE and event != OURSELVES else None)
annotate(sys.argv[4])
print(events)
"""


@pytest.mark.slow
def test_a_model_that_is_loaded_runs_no_code(make_model: MakeModel, tmp_path: Path) -> None:
    """What the interpreter itself tells of: nothing is compiled, executed, imported, unpickled, started or called up."""
    (tmp_path / "table").write_bytes(TABLE)
    command = [sys.executable, "-c", WATCHED, tmp_path / "table", tmp_path / "out", make_model(), make_model()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_the_sidecar_of_a_stranger_does_not_command_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "table").write_bytes(TABLE)
    column = {"column": 3, "feature": "log_prob", "model": "m\x1b]0;title\x07\n\u202e", "unit": "x"}
    (tmp_path / "table.columns.json").write_text(json.dumps({"format_version": 1, "columns": [column]}))
    result = run("info", tmp_path / "table")
    assert result.status == 0
    line = next(line for line in result.out.decode().splitlines() if line.startswith("new columns"))
    assert line == "new columns  3 score of m\\x1b]0;title\\x07\\n\\u202e"


def test_temporary_files_are_ours_alone(tmp_path: Path) -> None:
    """Beside the target, so that the rename cannot fail half-way; readable by nobody else until they are complete."""
    before = os.umask(0)
    try:
        with atomic_output(str(tmp_path / "out")), replace_directory(str(tmp_path / "folder")) as folder:
            assert stat.S_IMODE((tmp_path / ".out.partial").lstat().st_mode) == 0o600
            assert Path(folder).parent == tmp_path
            assert stat.S_IMODE(os.lstat(folder).st_mode) == 0o700
    finally:
        os.umask(before)
