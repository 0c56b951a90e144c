"""Every option that takes a path, with every kind of path: it works, or one line names the option and no file has changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import every_option
import pytest
from conftest import MakeModel, Run
from every_option import BEFORE, GOOD, SPELT, Outcome, Parameter, Server, digest, line, make_folder, parameters, tokens_of

from phrase_rescore.cli.options import PathName
from phrase_rescore.files.paths import normal

EARLIER = b"earlier\n"
PATHS = [parameter for parameter in parameters() if any(isinstance(kind, PathName) for kind in parameter.types())]
BOTH = {("moses-ini", "out", "ini"), ("moses-ini", "ini", "out")}  # OUT may be INI
ONLY_WRITTEN_DOWN = {("moses-ini", "path")}  # a name, of no file that is touched
DIRECTORIES = {"directory", "working directory", "above"}  # which may be no models
MAY_BE_DIRECTORY = {("info", "path"), ("curves", "runs")}
OF_CONTENT = {"fifo", "/dev/stdout", "/dev/full", "/dev/null", "-", "same"}  # what is read there may be no table


@pytest.fixture(scope="module")
def server(warm_python: str) -> Iterator[Server]:
    server = Server(warm_python)
    yield server
    server.close()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, make_model: MakeModel, run: Run) -> Path:
    folder = tmp_path_factory.mktemp("good")
    make_folder(folder, make_model(), run)
    return folder


class Cell(NamedTuple):
    """An option with a path of some kind."""

    parameter: Parameter
    kind: str
    value: str  # relative to the folder
    spelt: tuple[str, ...]  # the values of the option, of which {} is the path
    anybody: bool = False
    same: str = ""  # the parameter whose path it is

    def names(self) -> list[str]:
        """How messages may call it: of two options that are the same file, by either."""
        named = (parameter for parameter in PATHS if parameter.key == (self.parameter.command, self.same))
        return [*self.parameter.names, *(name for other in named for name in other.names)]

    def tokens(self) -> dict[str, Sequence[str]]:
        return {**tokens_of(self.parameter), self.parameter.name: [part.replace("{}", self.value) for part in self.spelt]}


def spellings(parameter: Parameter) -> list[tuple[str, ...]]:
    return SPELT.get(parameter.key, [("{}",)])


def is_directory(parameter: Parameter) -> bool:
    role = getattr(parameter.types()[-1], "role", None)
    return role is not None and role.is_directory


def good_name(parameter: Parameter) -> str:
    return GOOD.get(parameter.key, "model" if is_directory(parameter) else "table")


def ending(parameter: Parameter) -> str:
    (first, *_) = [*tokens_of(parameter).get(parameter.name, ()), ""]
    return os.path.splitext(first)[1]


def others(parameter: Parameter) -> dict[str, str]:
    """Return the other paths of the command line, by parameter."""
    named = {other.name for other in PATHS if other.command == parameter.command}
    tokens = tokens_of(parameter)
    found = {name: values[-1] for name, values in tokens.items() if name in named and name != parameter.name and values}
    return {name: value.partition("=")[2] or value for name, value in found.items()}


def writes(server: Server, good: Path, work: Path, parameter: Parameter, spelt: tuple[str, ...]) -> tuple[bool, set[str]]:
    """Tell whether the option's path is written, and what else the command line writes."""
    shutil.copytree(good, work, symlinks=True)
    cell = Cell(parameter, "missing", f"fresh{ending(parameter)}", spelt)
    outcome = every_option_run(server, work, cell)
    new = {name.partition(os.sep)[0] for name in digest(work)} - {name.partition(os.sep)[0] for name in digest(good)}
    shutil.rmtree(work)
    if outcome.status == 0:
        return cell.value in new, {name for name in new if not name.startswith("fresh")}
    shutil.copytree(good, work, symlinks=True)  # a reader: with a good file it works
    outcome = every_option_run(server, work, cell._replace(value=good_name(parameter)))
    assert outcome.status == 0, outcome.err
    new = {name.partition(os.sep)[0] for name in digest(work)} - {name.partition(os.sep)[0] for name in digest(good)}
    shutil.rmtree(work)
    return False, new


def every_option_run(server: Server, work: Path, cell: Cell) -> Outcome:
    args = line(cell.parameter.command, cell.tokens())
    stdin = every_option.STDINS.get(cell.parameter.command, every_option.STDIN)
    return server.run(args, work, stdin, cell.anybody)


def cells(parameter: Parameter, spelt: tuple[str, ...], writer: bool) -> Iterator[Cell]:
    """Yield the option with every kind of path; ``lay`` puts there what belongs to it."""
    end, name = ending(parameter), good_name(parameter)
    values = {
        "regular": f"earlier{end}" if writer else name, "missing": f"none{end}", "directory": "folder",
        "no parent": f"none/x{end}", "below a file": f"ref/x{end}", "link": f"link{end}", "dangling link": f"dangling{end}",
        "circle": f"circle{end}", "fifo": f"fifo{end}", "/dev/stdout": "/dev/stdout", "/dev/full": "/dev/full",
        "/dev/null": "/dev/null", "-": "-", "slash": f"slash{end}/" if writer else f"{name}/", "blanks": f"a b{end}",
        "newline": f"a\nb{end}", "bytes": os.fsdecode(b"a\xff" + end.encode()), "dash": f"./-x{end}", "long": "x" * 300 + end,
        "empty": "", "working directory": ".", "above": "..",
    }  # fmt: skip
    for kind, value in values.items():
        yield Cell(parameter, kind, value, spelt)
    yield Cell(parameter, "locked", f"locked{end}", spelt, anybody=True)
    yield Cell(parameter, "in a locked directory", f"closed/x{end}", spelt, anybody=True)
    for other, path in others(parameter).items():
        for value in (f"./{path}", f"folder/../{path}", f"hard{end}", f"soft{end}"):
            yield Cell(parameter, "same", value, spelt, same=other)


def copy(what: Path, to: Path) -> None:
    if what.is_dir():
        shutil.copytree(what, to)
    else:
        shutil.copyfile(what, to)


def lay(work: Path, cell: Cell, writer: bool) -> None:
    """Put in the folder what the kind of path needs."""
    end, path = ending(cell.parameter), work / cell.value
    name = good_name(cell.parameter)
    source = work / name
    if writer:
        source = work / f"earlier{end}"
        source.write_bytes(EARLIER)
    match cell.kind:
        case "link":
            path.symlink_to(source.name)
        case "dangling link":
            path.symlink_to("nowhere" + end)
        case "circle":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "blanks" | "newline" | "bytes" | "dash" if not writer:
            copy(source, path)
            if name.endswith(".npy"):
                copy(work / "vectors.index", path.with_name(path.name + ".index"))
        case "locked":
            copy(source, path) if not is_directory(cell.parameter) or not writer else path.mkdir()
            path.chmod(0)
        case "in a locked directory":
            (work / "closed").mkdir(mode=0o555)
        case "same":
            other = work / others(cell.parameter)[cell.same]
            if not other.exists() and not cell.value.startswith("soft"):
                copy(work / name, other)
            if cell.value.startswith("hard") and other.is_file():
                os.link(other, path)
            elif cell.value.startswith(("hard", "soft")):
                path.symlink_to(other.name)


@contextlib.contextmanager
def other_end(work: Path, cell: Cell, writer: bool, got: list[bytes]) -> Iterator[None]:
    """Read or feed the FIFO, if the path is one."""
    if cell.kind != "fifo":
        yield
        return
    path, done = work / cell.value, threading.Event()

    def read() -> None:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        while not done.wait(0.01):
            with contextlib.suppress(BlockingIOError):
                got.append(os.read(handle, 1 << 16))
        with contextlib.suppress(BlockingIOError):
            got.append(os.read(handle, 1 << 20))
        os.close(handle)

    def feed() -> None:
        source = work / good_name(cell.parameter)
        while not done.wait(0.01) and source.is_file():
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(handle, True)
                with contextlib.suppress(BrokenPipeError):
                    os.write(handle, source.read_bytes())
                os.close(handle)
                return

    thread = threading.Thread(target=read if writer else feed)
    thread.start()
    yield
    done.set()
    thread.join()


def trouble(work: Path, cell: Cell, writer: bool, written: set[str], before: dict[str, str], outcome: Outcome) -> str:
    """Say what is wrong with what became of a cell; nothing if all is well."""
    if "Traceback" in outcome.err or outcome.status not in (0, 1, 2):
        return f"status {outcome.status}: {outcome.err[-400:]}"
    if not outcome.out.startswith(BEFORE):
        return "what was on standard output before is gone"
    after = digest(work)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    said = [text for text in outcome.err.splitlines() if not text.startswith("phrase-rescore: warning: ")]
    errors = [text for text in said if text.startswith(("phrase-rescore: error: ", "Error: "))]
    ours = all(text.startswith("phrase-rescore: ") for text in said)
    usage = outcome.err.startswith("Usage: ") and len(said) == 4
    if outcome.status and (len(errors) != 1 or not (ours or usage)):
        return f"not one line: {outcome.err[-400:]!r}"
    if outcome.status == 2:
        if not any(name in errors[0] for name in cell.names()):
            return f"does not name the option: {errors[0]}"
        return f"status 2, and changed: {sorted(changed)}" if changed else ""
    roots = {name.partition(os.sep)[0] for name in changed}
    target = os.path.relpath(os.path.realpath(work / cell.value), os.path.realpath(work)).partition(os.sep)[0]
    stem = os.path.basename(normal(cell.value))
    own = {root for root in roots if root in (target, stem) or root.startswith((f"{stem}.", f".{stem}."))}
    own |= {root for root in roots if root.startswith(f"{target}.") or root == f"{os.path.splitext(stem)[0]}.index"}
    beside = {root for root in roots if any(root == name or root.startswith((f"{name}.", f".{name}.")) for name in written)}
    if target == os.curdir:  # the folder itself, in which there may be new files
        own |= {root for root in roots if root not in before}
    if strange := roots - beside - (own if writer else set()):
        return f"status {outcome.status}, and changed: {sorted(strange)}"
    if outcome.status == 1:
        read = is_directory(cell.parameter) or cell.parameter.key in MAY_BE_DIRECTORY
        return "" if cell.kind in (OF_CONTENT | DIRECTORIES if read else OF_CONTENT) else f"status 1: {errors[0]}"
    if (
        cell.kind == "same"
        and cell.parameter.key not in ONLY_WRITTEN_DOWN
        and (cell.parameter.command, cell.parameter.name, cell.same) not in BOTH
    ):
        shared = os.path.relpath(os.path.realpath(work / cell.value), os.path.realpath(work))
        if shared.partition(os.sep)[0] in roots:
            return f"status 0, and changed {shared}, which is {cell.same} too"
    if cell.kind == "/dev/stdout" and writer and outcome.out == BEFORE:
        return "nothing was written"
    return ""


FAST = {"directory", "below a file", "empty"}


def check(server: Server, good: Path, tmp_path: Path, parameter: Parameter, kinds: set[str] | None = None) -> None:
    found, number = dict[tuple[str, ...], str](), 0
    for spelt in spellings(parameter):
        writer, written = writes(server, good, tmp_path / "probe", parameter, spelt)
        for cell in cells(parameter, spelt, writer):
            if kinds is not None and cell.kind not in kinds:
                continue
            number += 1
            work, got = tmp_path / f"cell{number}", list[bytes]()
            shutil.copytree(good, work, symlinks=True)
            lay(work, cell, writer)
            before = digest(work)
            with other_end(work, cell, writer, got):
                outcome = every_option_run(server, work, cell)
            said = trouble(work, cell, writer, written, before, outcome)
            if not said and cell.kind == "fifo" and writer and outcome.status == 0 and not b"".join(got):
                said = "nothing came through the FIFO"
            if said:
                found[(*spelt, cell.kind, cell.value, cell.same)] = said
            for path in (work / "closed", work / cell.value):
                if cell.anybody and path.exists():
                    path.chmod(0o755)
            shutil.rmtree(work)
    assert not found, "\n".join(f"{' '.join(map(repr, cell))}: {said}" for cell, said in found.items())


@pytest.mark.parametrize("parameter", [p for p in PATHS if p.command != "report"], ids=lambda p: "-".join(p.key))
def test_some_paths(server: Server, good: Path, tmp_path: Path, parameter: Parameter) -> None:
    check(server, good, tmp_path, parameter, FAST)


@pytest.mark.whole
@pytest.mark.parametrize("parameter", PATHS, ids=lambda parameter: "-".join(parameter.key))
def test_every_path(server: Server, good: Path, tmp_path: Path, parameter: Parameter) -> None:
    check(server, good, tmp_path, parameter)
