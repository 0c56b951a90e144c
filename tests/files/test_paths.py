"""Paths are checked before anything is touched: what is there, what can be made, and that no two are the same file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from permissions import like_anybody

from phrase_rescore.errors import OptionError
from phrase_rescore.files.paths import Role, Use, check_outputs, check_paths, is_stream


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("table").write_text("a\n")
    Path("model").mkdir()
    Path("model", "config.json").write_text("{}")
    Path("link").symlink_to("table")
    Path("dangling").symlink_to("nowhere")
    Path("folder").mkdir()
    os.mkfifo("fifo")
    return tmp_path


READS, WRITES = Role.READ, Role.WRITE


@pytest.mark.parametrize(("role", "path", "message"), [
    (READS, "none", "-x none: No such file or directory; check the path"),
    (READS, "folder", "-x folder is a directory; name a file in it"),
    (READS, "table/x", "-x table/x: Not a directory"), (READS, "a\0b", "embedded null byte; check the name"),
    (WRITES, "a\0b", "embedded null byte; check the name"), (READS, "dangling", "-x dangling: No such file or directory"),
    (Role.READ_DIRECTORY, "table", "-x table: a file, not a model directory; name the directory that"),
    (Role.READ_DIRECTORY, "none", "-x none: no such model directory; make one with 'phrase-rescore train TABLE -m none'"),
    (Role.READ_DIRECTORY, "fifo", "-x fifo is not a directory; name one"),
    (WRITES, "folder", "-x folder is a directory; name a file to write"),
    (WRITES, "new/", "-x new/ is a directory; name a file to write"),
    (WRITES, "none/new", "-x none/new: No such file or directory; make its directory first, or name another"),
    (WRITES, "table/new", "-x table/new: Not a directory; name another directory"),
    (READS, "a\nb\udcff", r"-x a\nb\xff: No such file or directory"),
    (WRITES, "x" * 300, "File name too long; choose a shorter name"),
    (Role.WRITE_DIRECTORY, ".", "-x . is the working directory; name a directory in it"),
    (Role.WRITE_DIRECTORY, "table/new", "-x table/new: Not a directory"),
    (Role.CACHE_DIRECTORY, "table", "-x table: Not a directory"),
    (Role.CACHE_DIRECTORY, ".", "-x . is the working directory; name a directory in it"),
    (Role.READ_EITHER, "none", "-x none: No such file or directory; check the path"),
    (Role.SCRATCH, "none", "-x none: No such file or directory"), (Role.SCRATCH, "-", "-x - is not a directory; name one"),
])  # fmt: skip
def test_a_path_that_cannot_be_used_is_refused_by_its_option(role: Role, path: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_paths([Use("-x", path, role)])
    assert message in str(caught.value)


@pytest.mark.parametrize(("role", "path", "hint"), [
    (READS, "table", "get the right to read it, or a copy"),
    (Role.READ_DIRECTORY, "model", "get the right to read it, or a copy"),
    (WRITES, "model/new", "get the right to write there, or write elsewhere"),
    (Role.WRITE_DIRECTORY, "model/new", "get the right to write there, or write elsewhere"),
    (Role.SCRATCH, "model", "get the right to write there, or write elsewhere"),
])  # fmt: skip
def test_what_its_user_may_not_touch(role: Role, path: str, hint: str) -> None:
    Path("table").chmod(0)
    Path("model").chmod(0)
    with like_anybody(), pytest.raises(OptionError) as caught:
        check_paths([Use("-x", path, role)])
    Path("model").chmod(0o755)
    assert str(caught.value) == f"-x {path}: Permission denied; {hint}"


def test_a_cache_that_is_there_may_be_only_read() -> None:
    Path("folder").chmod(0o555)
    with like_anybody():
        check_paths([Use("--pairs", "folder", Role.CACHE_DIRECTORY)])
    with pytest.raises(OptionError, match="INPUT model/config.json is inside --pairs model, which is replaced as a whole"):
        check_paths([Use("--pairs", "model", Role.CACHE_DIRECTORY), Use("INPUT", "model/config.json", READS)])


@pytest.mark.parametrize(("role", "path"), [
    (READS, "table"), (READS, "link"), (READS, "fifo"), (READS, "-"), (READS, "/dev/null"), (READS, "model/../table"),
    (WRITES, "table"), (WRITES, "link"), (WRITES, "dangling"), (WRITES, "new"), (WRITES, "fifo"), (WRITES, "-"),
    (WRITES, "/dev/stdout"), (WRITES, "/dev/full"), (Role.READ_DIRECTORY, "model/"), (Role.WRITE_DIRECTORY, "model"),
    (Role.WRITE_DIRECTORY, "new/deep/er"), (Role.SCRATCH, "."), (WRITES, "b\nl ank"), (Role.READ_EITHER, "model"),
    (Role.READ_EITHER, "table"), (Role.CACHE_DIRECTORY, "new"),
])  # fmt: skip
def test_a_path_that_can_be_used_is_taken_and_nothing_is_made(here: Path, role: Role, path: str) -> None:
    before = sorted(here.rglob("*"))
    check_paths([Use("-x", path, role)])
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(("one", "other"), [
    (Use("TABLE", "table", READS), Use("-o", "table", WRITES)),
    (Use("TABLE", "table", READS), Use("-o", "./model/../table", WRITES)),
    (Use("TABLE", "table", READS), Use("-o", "link", WRITES)), (Use("-o", "new", WRITES), Use("--dropped", "./new", WRITES)),
    (Use("-o", "nowhere", WRITES), Use("--dropped", "dangling", WRITES)),
    (Use("TABLE", "fifo", READS), Use("-o", "fifo", WRITES)),
    (Use("-m", "new", Role.WRITE_DIRECTORY), Use("--pairs", "new/", Role.WRITE_DIRECTORY)),
    (Use("-m", "none/new", Role.WRITE_DIRECTORY), Use("--pairs", "none/new/", Role.WRITE_DIRECTORY)),
])  # fmt: skip
def test_two_names_of_one_file_are_refused_with_both_options(one: Use, other: Use) -> None:
    for uses in ([one, other], [other, one]):
        with pytest.raises(OptionError, match="are the same; name another") as caught:
            check_paths(uses)
        assert one.option in str(caught.value)
        assert other.option in str(caught.value)


@pytest.mark.parametrize(("one", "other", "said"), [
    (Use("TABLE", "table", READS), Use("-o", "hard", WRITES), "TABLE table and -o hard are the same"),
    (Use("-m", "model", Role.WRITE_DIRECTORY), Use("INPUT", "model/config.json", READS),
     "INPUT model/config.json is inside -m model, which is replaced as a whole"),
    (Use("TABLE", ".new.partial", READS), Use("-o", "new", WRITES), "TABLE .new.partial and the partial of -o .* are the same"),
])  # fmt: skip
def test_what_is_not_seen_by_the_names(one: Use, other: Use, said: str) -> None:
    os.link("table", "hard")
    Path(".new.partial").write_text("mine")
    with pytest.raises(OptionError, match=said):
        check_paths([one, other])


def test_an_option_may_name_another_one_s_path() -> None:
    check_paths([Use("INI", "table", READS), Use("-o", "link", WRITES, may_be="INI")])


def test_programs_are_kept_from_writing_over_their_input() -> None:
    for inputs, outputs in ((["table"], ["link"]), ([], ["new", "./new"])):
        with pytest.raises(OptionError, match="are the same; name another"):
            check_outputs(inputs, *outputs)
    check_outputs(["table", "table"], "new", "other")


def test_what_may_be_named_twice() -> None:
    check_paths([Use("TABLE", "table", READS), Use("--expect-rows", "table", READS)])
    check_paths([Use("TABLE", "-", READS), Use("-o", "/dev/null", WRITES), Use("--dropped", "/dev/null", WRITES)])
    check_paths([Use("-m", "new", Role.WRITE_DIRECTORY), Use("--pairs", "new.pairs", Role.WRITE_DIRECTORY)])


def run(code: str, stdout: str) -> str:
    """Run code that imports this module's names, with standard output appended to a file; return its standard error."""
    imports = "from phrase_rescore.files.paths import *\nfrom phrase_rescore.files.paths import Role, Use\n"
    with open(stdout, "ab") as stream:
        done = subprocess.run([sys.executable, "-c", imports + code], stdout=stream, stderr=subprocess.PIPE, check=False)
    return done.stderr.decode()


def test_standard_output_in_the_input_is_refused() -> None:
    said = run("check_paths([Use('TABLE', 'table', Role.READ), Use('-o', '-', Role.WRITE)])", "table")
    assert "TABLE table and -o - are the same" in said
    said = run("check_paths([Use('--dropped', '/dev/stdout', Role.WRITE), Use('-o', '-', Role.WRITE)])", "kept")
    assert "--dropped /dev/stdout and -o - are the same" in said


@pytest.mark.parametrize("path", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "fifo", "/dev/null", "through"])
def test_streams_are_known_even_where_they_lead_to_a_file(path: str) -> None:
    Path("through").symlink_to("/dev/stdout")
    assert not run(f"assert is_stream({path!r})", "kept")


@pytest.mark.parametrize("path", ["table", "new", "folder", "link", "dangling", "a\0b", ""])
def test_files_are_no_streams(path: str) -> None:
    assert not is_stream(path)
