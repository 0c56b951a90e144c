"""What is not a regular file is written to as it is, by every option that writes; no file takes another's place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from moses_harness import ini_text

ROWS = b"".join(b"the house %d ||| das haus ||| 0.5 0.25 1 0.125 ||| 0-0 ||| 1 1 1\n" % i for i in range(30))
WRITERS = {  # command: what it is called with, OUT where a file is named
    "annotate": ["annotate", "table", "-m", "MODEL", "-q", "-o", "OUT"],
    "strip": ["strip", "table", "--columns", "1", "-q", "-o", "OUT"],
    "moses-ini": ["moses-ini", "moses.ini", "--table", "table", "--columns", "1", "-q", "-o", "OUT"],
    "embed": ["embed", "--words", "source", "-m", "MODEL", "--format", "txt", "-q", "-o", "OUT"],
}


pytestmark = pytest.mark.slow  # a warm process starts first


@pytest.fixture
def here(tmp_path: Path, warm_path: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", warm_path)
    (tmp_path / "table").write_bytes(ROWS)
    (tmp_path / "bad").write_bytes(ROWS + b"no row\n")
    (tmp_path / "moses.ini").write_text(ini_text(tmp_path / "table", 3))
    return tmp_path


def command(name: str, out: str, model_dir: str) -> list[str]:
    words = {"OUT": out, "MODEL": model_dir}
    return ["phrase-rescore", *(words.get(word, word) for word in WRITERS[name])]


def shell(script: str, folder: Path, words: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a script of bash, to which the command is ``"$@"``."""
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done


def wanted(name: str, folder: Path, model_dir: str) -> bytes:
    """What the command writes into a regular file."""
    shell('"$@"', folder, command(name, "regular", model_dir))
    data = (folder / "regular").read_bytes()
    for path in folder.iterdir():
        if path.name.startswith("regular"):
            path.unlink()
    return data


@pytest.mark.parametrize("name", WRITERS)
def test_standard_output_by_its_names(here: Path, model_dir: str, name: str) -> None:
    """What a file held before ``>>`` stays; so does what is written to a pipe, a link to it and a FIFO."""
    data = wanted(name, here, model_dir)
    before = {path.name for path in here.iterdir()}
    (here / "link").symlink_to("/dev/stdout")
    os.mkfifo(here / "fifo")
    quick = name in ("strip", "moses-ini")  # the others load a model
    for out in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link") if quick else ("/dev/stdout", "link"):
        (here / "kept").write_bytes(b"kept before\n")
        shell('"$@" >> kept', here, command(name, out, model_dir))
        assert (here / "kept").read_bytes() == b"kept before\n" + data, out
    assert shell('"$@" | cat', here, command(name, "/proc/self/fd/1", model_dir)).stdout == data
    assert shell('cat fifo & "$@"; wait', here, command(name, "fifo", model_dir)).stdout == data
    assert shell('"$@" 7>&1 | cat', here, command(name, "/dev/fd/7", model_dir)).stdout == data
    left = {path.name for path in here.iterdir()} - before - {"link", "fifo", "kept"}
    assert left == set()


def test_a_stream_has_no_sidecar(here: Path, model_dir: str) -> None:
    os.mkfifo(here / "fifo")
    words = command("annotate", "fifo", model_dir)
    (here / "elsewhere").mkdir()
    (here / "bad").rename(here / "elsewhere" / "bad")
    words[words.index("table")] = "elsewhere/bad"
    shell('cat fifo & "$@"; wait', here, [*words, "--on-bad-row", "drop"])
    assert sorted(path.name for path in here.iterdir()) == ["bad.dropped", "elsewhere", "fifo", "moses.ini", "table"]
    assert (here / "bad.dropped").read_bytes() == b"no row\n"


# No two paths are the same file, and nothing is touched before that is known


DROP = "--on-bad-row", "drop"


@pytest.mark.parametrize(("options", "told"), [
    (["-o", "table"], "TABLE table and -o table are the same"), (["-o", "MODEL/config.json"], "a file of -m"),
    (["-o", "out", *DROP, "--scores", "out.dropped"], "the dropped rows out.dropped"),
    (["-o", "out", "--scores", "out.columns.json"], "the sidecar"),
    (["-o", "out", "--scores", "out.partial.json"], "its journal"),
])  # fmt: skip
def test_annotate_mixes_up_no_files(run, here, model_dir, monkeypatch, options, told) -> None:
    monkeypatch.chdir(here)
    if options[-2] == "--scores":
        Path(options[-1]).write_bytes(ROWS)
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    done = run("annotate", "table", "-m", model_dir, *(option.replace("MODEL", model_dir) for option in options))
    assert (done.status, done.out, told in done.err) == (2, b"", True), done.err
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_an_input_with_the_name_of_a_partial_stays(run, here, model_dir, monkeypatch) -> None:
    monkeypatch.chdir(here)
    for name, words in (("out.partial", ["annotate"]), (".out.partial", ["strip", "--columns", 1])):
        (here / name).write_bytes(ROWS)
        done = run(*words, name, *(["-m", model_dir] if words == ["annotate"] else []), "-o", "out")
        assert (done.status, "the partial of -o" in done.err) == (2, True), done.err
        assert (here / name).read_bytes() == ROWS


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", ["annotate", "strip"])
def test_a_file_that_cannot_grow_ends_it(name: str, unbuffered: str, here: Path, model_dir: str) -> None:
    """Python's unbuffered streams write a part and raise nothing: the rest was lost, with status 0."""
    (here / "table").write_bytes(ROWS * 60)  # one block
    words = [sys.executable, "-m", "phrase_rescore", *command(name, "-", model_dir)[1:]]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 50; "$@" > out', "bash", *words], cwd=here, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"OUTPUT IS INCOMPLETE" in done.stderr
    assert b"error: <stdout>: File too large" in done.stderr


def test_a_terminated_stream_says_so_and_has_the_status_of_the_signal() -> None:
    command = [sys.executable, "-m", "phrase_rescore", "strip", "-", "--columns", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"a ||| b ||| 1 1\n" * 20_000)  # more than is read at a time, and than a pipe holds
        process.stdin.flush()
        process.stdout.readline()
        process.terminate()
        told = process.communicate()[1]
    assert process.returncode == 143
    assert b"OUTPUT IS INCOMPLETE" in told
