"""One process at a time, and who it is; a killed one's lock is taken over."""

import errno
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phrase_rescore.errors import OptionError
from phrase_rescore.files.locks import locked

HOLD = """
import sys, time
from phrase_rescore.files.locks import locked
with locked(sys.argv[1], "wait"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_of_a_killed_process_is_taken_over_with_a_message(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "model")], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    said: list[str] = []
    with locked(str(tmp_path / "model"), "", said.append):
        assert f"process {os.getpid()} on " in (tmp_path / "model.lock").read_text()
    taken = rf"{tmp_path}/model.lock is stale: process {holder.pid} on .* since .* has ended; taken over"
    assert re.fullmatch(taken, said[0])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("left", [b"", b"\xff", b"[" * 100_000])
def test_whatever_is_left_is_taken_over(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "model.lock").write_bytes(left)
    with locked(str(tmp_path / "model"), ""):
        assert (tmp_path / "model.lock").read_bytes().endswith(b"\n"), "of the new holder alone"
    assert not os.listdir(tmp_path)


def test_it_goes_at_a_failure_and_can_be_had_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name before it is unlocked: the name may then be another's."""
    let_go, close = list[list[str]](), os.close
    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), locked(str(tmp_path / "model"), ""):
            patch.setattr(os, "close", lambda handle: (let_go.append(os.listdir(tmp_path)), close(handle)))
            raise KeyboardInterrupt
    assert let_go == [[], []]


def test_a_file_that_its_holder_takes_away_is_not_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder removes its file between our opening and our locking of it; a third process could make another one."""
    name, flock, files = tmp_path / "model.lock", fcntl.flock, []

    def taken_away(handle: int, how: int) -> None:
        flock(handle, how)
        files.append(os.fstat(handle).st_ino)
        if len(files) == 1:
            name.unlink()
        if len(files) == 2:
            name.rename(tmp_path / "kept")
            name.write_bytes(b"")

    monkeypatch.setattr(fcntl, "flock", taken_away)
    with locked(str(tmp_path / "model"), ""):
        assert len(files) == 3
        assert files[-1] == name.stat().st_ino


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_flock_a_file_that_names_somebody_is_a_lock(tmp_path, monkeypatch, code) -> None:
    def none(handle: int, how: int) -> None:
        raise OSError(code, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with locked(f"{tmp_path}/model", ""):
        refused = f"in use by process {os.getpid()} on .*, delete {tmp_path}/model.lock"
        with pytest.raises(OptionError, match=refused), locked(f"{tmp_path}/model", ""):
            pass
    with locked(f"{tmp_path}/model", ""):
        pass


def test_where_no_lock_can_be_made(tmp_path: Path) -> None:
    said = "cannot write .*/none/model.lock: No such file"
    with pytest.raises(OptionError, match=said), locked(f"{tmp_path}/none/model", ""):
        pass
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "model.lock").symlink_to("victim")
    with pytest.raises(OptionError, match="cannot write .*model.lock: Too many levels"), locked(f"{tmp_path}/model", ""):
        pass
    assert (tmp_path / "victim").read_bytes() == b"mine"
