"""A directory is replaced whole: at a kill the older or the new one is there, and the next run leaves no trace."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from phrase_rescore.errors import OptionError
from phrase_rescore.files import outputs as atomic
from phrase_rescore.files.locks import locked
from phrase_rescore.files.outputs import check_replaceable, recover_directory, remove_directory, replace_directory
from phrase_rescore.files.paths import older_directory


def replace(directory: Path, text: str) -> None:
    with locked(str(directory), ""), replace_directory(str(directory)) as temporary:
        Path(temporary, "a").write_text(text)
        Path(temporary, "b").write_text(text)


def content(directory: Path) -> set[str]:
    return {path.read_text() for path in directory.iterdir()}


def killed_at(event: int, directory: Path, kind: str) -> bool:
    """Replace in a process that dies at this line event, or is interrupted there; False if it ends before."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    seen = 0

    def trace(frame: FrameType, what: str, argument: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in (atomic.__file__, sys.modules["phrase_rescore.files.locks"].__file__, __file__):
            return None
        seen += what == "line"
        if seen == event and what == "line":
            sys.settrace(None)
            if kind == "kill":
                os._exit(9)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        replace(directory, "new")
    except KeyboardInterrupt:
        os._exit(9)
    os._exit(0)


def kill_at_every_line(folder: Path, older: bool, kind: str) -> int:
    """Replace again and again, one line later each time, and look at what is left; return how many lines there were."""
    directory, event = folder / "model", 1
    while True:
        if older:
            replace(directory, "old")
        if not killed_at(event, directory, kind):
            break
        if not directory.exists():
            assert older_directory(str(directory)) == (f"{folder}/.model.old" if older else None), event
            assert not older or content(folder / ".model.old") == {"old"}, event
            with locked(str(directory), ""):
                recover_directory(str(directory))
        assert not older or content(directory) in ({"old"}, {"new"}), event
        replace(directory, "newer")
        assert content(directory) == {"newer"}
        assert os.listdir(folder) == ["model"], event
        (directory / "a").unlink()
        (directory / "b").unlink()
        directory.rmdir()
        event += 1
    assert content(directory) == {"new"}
    assert os.listdir(folder) == ["model"]
    return event


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "interrupt"])
@pytest.mark.parametrize("older", ["", "older"])
def test_killed_at_every_line(tmp_path: Path, older: str, kind: str) -> None:
    """This file is a program for it: without torch, a process is forked ten times as fast."""
    program = [sys.executable, __file__, str(tmp_path), older, kind]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40


def test_what_cannot_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    for name in (".", "..", str(tmp_path), "/", "b/..", "./"):
        with pytest.raises(OptionError, match="is the current directory or has it inside, and would be replaced"):
            check_replaceable(name)
    with pytest.raises(OptionError, match="/proc is a mount point and cannot be replaced; name a directory in it"):
        check_replaceable("/proc")
    check_replaceable("b")
    check_replaceable("none")


def test_another_s_directory_is_not_taken_over(tmp_path: Path) -> None:
    """Its name can be known before: a link is not followed, a file is not removed."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.tex").write_text("years of work")
    (tmp_path / ".model.partial").symlink_to("victim")
    with pytest.raises(OptionError, match="cannot write .*/model: File exists"), replace_directory(str(tmp_path / "model")):
        pass
    assert (victim / "thesis.tex").exists()


def test_a_disk_that_fails_once_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "left" / "in").mkdir(parents=True)
    (tmp_path / "left" / "in" / "file").write_text("")
    unlink, failures = os.unlink, [OSError(errno.EIO, "Input/output error")]

    def fail_once(*args: Any, **settings: Any) -> Any:
        if failures:
            raise failures.pop()
        return unlink(*args, **settings)

    monkeypatch.setattr(os, "unlink", fail_once)
    remove_directory(tmp_path / "left")
    assert not failures
    assert list(tmp_path.iterdir()) == []


if __name__ == "__main__":
    os.fsync = lambda handle: None
    print(kill_at_every_line(Path(sys.argv[1]), bool(sys.argv[2]), sys.argv[3]))
