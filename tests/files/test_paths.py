"""No two paths of a command are the same file, whatever they are called; what is a stream."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import check_apart, is_stream


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table").write_text("a\n")
    Path("model").mkdir()
    Path("model", "config.json").write_text("{}")
    Path("link").symlink_to("table")
    os.link("table", "hard")
    Path("dangling").symlink_to("nowhere")
    Path("folder").mkdir()
    os.mkfifo("fifo")
    os.mknod("socket", stat.S_IFSOCK | 0o600)
    Path(".new.partial").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(("reads", "writes", "replaced"), [
    ({"TABLE": "table"}, {"-o": "table"}, {}),
    ({"TABLE": "table"}, {"-o": "./model/../table"}, {}),
    ({"TABLE": "table"}, {"-o": "link"}, {}),
    ({"TABLE": "link"}, {"-o": "table"}, {}),
    ({"TABLE": "table"}, {"-o": "hard"}, {}),
    ({"TABLE": "fifo"}, {"-o": "fifo"}, {}),
    ({"TABLE": ".new.partial"}, {"-o": "new"}, {}),
    ({}, {"-o": "new", "--dropped": "./new"}, {}),
    ({}, {"-o": "nowhere", "--dropped": "dangling"}, {}),
    ({}, {}, {"-m": "new", "--pairs": "new/"}),
    ({}, {}, {"-m": "none/new", "--pairs": "none/new/"}),
    ({"INPUT": "model/config.json"}, {}, {"-m": "model"}),
    ({"INPUT": "table"}, {}, {"-m": "."}),
    ({}, {"-o": "model/new"}, {"-m": "model"}),
    ({}, {}, {"-m": "model", "--pairs": "model/pairs"}),
    ({"--scratch": "folder"}, {}, {"--pairs": "folder"}),
])  # fmt: skip
def test_what_would_be_destroyed_is_refused_with_both_options(
    reads: dict[str, str], writes: dict[str, str], replaced: dict[str, str]
) -> None:
    with pytest.raises(OptionError) as caught:
        check_apart(reads.items(), writes.items(), replaced.items())
    for name, path in (reads | writes | replaced).items():
        assert name in str(caught.value)
        assert f"{name} {path}" in str(caught.value) or path == "new", "of a partial the path is another"


@pytest.mark.parametrize(("reads", "writes", "replaced"), [
    ({"TABLE": "table", "--expect-rows": "table"}, {"-o": "new"}, {}),
    ({"TABLE": "-"}, {"-o": "/dev/null", "--dropped": "/dev/null"}, {}), ({"TABLE": "socket"}, {"-o": "socket"}, {}),
    ({"TABLE": "table"}, {"-o": "model/new"}, {"--pairs": "new.pairs", "-m": "new"}),
])  # fmt: skip
def test_what_may_be_named_twice(reads: dict[str, str], writes: dict[str, str], replaced: dict[str, str]) -> None:
    check_apart(reads.items(), writes.items(), replaced.items())


def run(code: str, stdout: str) -> str:
    """Run code that imports this module's names, with standard output appended to a file; return its standard error."""
    imports = "from phrase_rescore.files.paths import *\n"
    with open(stdout, "ab") as stream:
        done = subprocess.run([sys.executable, "-c", imports + code], stdout=stream, stderr=subprocess.PIPE, check=False)
    return done.stderr.decode()


def test_standard_output_in_the_input_is_refused() -> None:
    assert "TABLE table and -o - are the same" in run("check_apart([('TABLE', 'table')], [('-o', '-')])", "table")
    said = run("check_apart([], [('--dropped', '/dev/stdout'), ('-o', '-')])", "kept")
    assert "--dropped /dev/stdout and -o - are the same" in said


@pytest.mark.parametrize("path", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "fifo", "/dev/null", "further"])
def test_streams_are_known_even_where_they_lead_to_a_file(path: str) -> None:
    Path("through").symlink_to("/dev/stdout")
    Path("further").symlink_to("through")
    assert not run(f"assert is_stream({path!r})", "kept")


@pytest.mark.parametrize("path", ["table", "new", "folder", "link", "dangling", "a\0b", ""])
def test_files_are_no_streams(path: str) -> None:
    assert not is_stream(path)
