"""Files that are written under another name first: nobody else's, taken over when their writer is dead, never lost rows."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.files import outputs as atomic
from phrase_rescore.files.outputs import PartialFile, atomic_output, replace_directory
from phrase_rescore.files.row_outputs import DroppedRows, ResumableOutput, row_output

KILLED = """
import os, sys
from phrase_rescore.files.outputs import atomic_output
with atomic_output(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, data: bytes = b"whole") -> None:
    with atomic_output(str(path)) as stream:
        stream.write(data)


def test_what_a_killed_process_left_goes_with_the_next(out: Path) -> None:
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False).returncode == -9
        assert names(out.parent) == [".out.partial"], "one name, however often"
    assert stat.S_IMODE((out.parent / ".out.partial").stat().st_mode) == 0o600
    write(out)
    assert names(out.parent) == ["out"]
    assert out.read_bytes() == b"whole"


def test_two_writers_at_once(out: Path) -> None:
    with atomic_output(str(out)) as stream:
        stream.write(b"first")
        with pytest.raises(OptionError) as caught:
            write(out)
    assert str(caught.value) == f"{out.parent}/.out.partial is being written by another process; let it end"
    assert out.read_bytes() == b"first"


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_partials_place_is_not_written_through(out: Path, hidden: bool, make: Callable[..., None]) -> None:
    precious = out.parent / "precious"
    precious.write_bytes(b"mine")
    partial = PartialFile(str(out), hidden)
    make(Path(partial.path), precious)
    partial.make()
    partial.write(b"rows")
    partial.publish()
    assert (out.read_bytes(), precious.read_bytes()) == (b"rows", b"mine")


def test_what_is_not_ours_is_not_resumed(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link in the partial's place, then another user's partial."""
    partial, other = PartialFile(str(out)), out.parent / "other"
    other.touch()
    Path(partial.path).symlink_to(other)
    with pytest.raises(OptionError):
        partial.resume(0, 0)
    other.replace(partial.path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OptionError):
        partial.resume(0, 0)
    partial.close()


def test_what_somebody_has_open_is_not_written_into(out: Path) -> None:
    """A partial made by anybody before us, who would read and write what we put there."""
    planted = out.parent / ".out.partial"
    planted.touch(mode=0o666)
    with planted.open("r+b") as theirs:
        write(out)
        theirs.write(b"X")
        theirs.seek(0)
        assert theirs.read() == b"X"
    assert out.read_bytes() == b"whole"


def test_a_pipe_in_the_partials_place_does_not_hang(out: Path) -> None:
    os.mkfifo(out.parent / ".out.partial")
    write(out)
    assert names(out.parent) == ["out"]


def test_a_partial_that_changed_hands_while_it_was_being_locked(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer was done between our opening and our locking: what we have locked is the finished file."""
    real, taken = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        real(handle, how)
        if not taken:
            taken.append(handle)
            os.replace(out.parent / ".out.partial", out.parent / "other")

    monkeypatch.setattr(fcntl, "flock", flock)
    write(out)
    assert names(out.parent) == ["other", "out"]
    assert out.read_bytes() == b"whole"


def test_a_file_system_without_locks(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    write(out)
    assert out.read_bytes() == b"whole"


def test_bytes_are_on_disk_before_names_and_names_before_others(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a power cut leaves: of rows and their journal, of the files of a run, of a directory."""
    folder, done = out.parent.name, list[str]()

    def noted(call: Callable[..., None]) -> Callable[..., None]:
        def note(what: Any, *to: str) -> None:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else what
            done.append(" -> ".join(map(os.path.basename, (path, *to))))
            call(what, *to)

        return note

    for call in ("fsync", "rename", "replace"):
        monkeypatch.setattr(os, call, noted(getattr(os, call)))
    output = ResumableOutput(str(out), {}, resume=False)
    output.other(f"{out}2").write(b"row")
    output.write(b"row", 1)
    output.commit(dict, complete=True)
    journal = "out.partial.json"
    assert done == ["out2.partial", "out.partial", f"{journal}.new", f"{journal}.new -> {journal}", folder]
    assert stat.S_IMODE((out.parent / journal).stat().st_mode) == 0o600
    with pytest.raises(OptionError, match=f"{out}2 "):  # a journal names a file that is not among those of the run
        ResumableOutput(str(out), {}, resume=True)
    output.publish()
    assert done[5:] == ["out2.partial -> out2", folder, "out.partial -> out", folder]
    with replace_directory(f"{out}3") as made:
        Path(made, "file").touch()
    assert done[9:] == ["file", ".out3.partial", ".out3.partial -> out3", folder]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_fails_at_the_end_is_one_line_and_leaves_the_earlier_file(out, monkeypatch, call) -> None:
    def fails(*args: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    out.write_bytes(b"earlier")
    monkeypatch.setattr(atomic.os, call, fails)
    with pytest.raises(RescoreError, match=f"cannot write {out}: Input/output error; the disk or network fails"):
        write(out)
    monkeypatch.undo()
    assert out.read_bytes() == b"earlier"
    assert names(out.parent) == ["out"]


def test_a_directory_in_the_partials_place_is_told(out: Path) -> None:
    (out.parent / ".out.partial").mkdir()
    with pytest.raises(OptionError, match=f"cannot write {out}: "):
        write(out)


def leave_out(path: Path, *rows: bytes) -> str:
    side = DroppedRows(str(path), expected=True)
    with side.opened():
        for line, row in enumerate(rows, 1):
            side.add(str(line), row)
    return side.summary()


def test_a_side_file_is_there_only_if_rows_are(out: Path) -> None:
    assert leave_out(out) == ""
    assert names(out.parent) == []
    assert leave_out(out, b"a", b"b") == f"dropped 2 rows, kept in {out}: 1, 2"
    assert leave_out(out, b"a") == f"dropped 1 row, kept in {out}: 1", "the older one is replaced as the output is"
    assert out.read_bytes() == b"a\n"
    assert leave_out(out, *[b"a"] * 12).endswith(": 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …")
    assert leave_out(out) == ""
    assert names(out.parent) == []


def test_a_folder_that_may_be_written_and_not_read(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(atomic, "sync", sync)
    write(out)
    assert out.read_bytes() == b"whole"


@pytest.mark.parametrize(("error", "rows", "notes"), [
    (OptionError("-o"), 0, []), (OptionError("-o"), 2, ["OUTPUT IS INCOMPLETE: 2 rows"]),
    (RescoreError("bad"), 0, []), (RescoreError("bad"), 1, ["OUTPUT IS INCOMPLETE: 1 rows"]),
])  # fmt: skip
def test_an_error_says_what_went_to_a_stream(capfd, out: Path, error: RescoreError, rows: int, notes: list[str]) -> None:
    for path, found in ((out, []), ("/dev/stdout", notes)):
        with pytest.raises(RescoreError) as caught, row_output(str(path)) as output:
            output.write(b"row\n" * rows, rows)
            assert capfd.readouterr().out == ("" if path is out else "row\n" * rows), "at once"
            raise error
        assert getattr(caught.value, "__notes__", []) == found
