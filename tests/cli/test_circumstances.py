"""Every command in awkward circumstances: streams that are closed, readers that go away, odd inputs, a full disk.

LINES has a valid command line of every command, so a new command fails here until it has one.
"""

import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import ROOT, SOURCE_WORDS, TARGET_WORDS, Result, Run
from moses_harness import ini_text
from small_models import small_lm

from phrase_rescore.cli.main import COMMANDS
from phrase_rescore.report import page

pytestmark = pytest.mark.slow

ROWS = b"".join(
    b"%b ||| %b ||| 0.5 %b 0.2 ||| 0-0 ||| 3 2 1\n" % (source, target, b"0.%d" % (n + 1))
    for n, source in enumerate(SOURCE_WORDS)
    for target in TARGET_WORDS[: 4 + n % 3]
)
PAIRS = b"".join(b"the %b\tdas %b\n" % pair for pair in zip(SOURCE_WORDS, TARGET_WORDS, strict=True))
PHRASES = b"".join(b"the %b\n" % word for word in SOURCE_WORDS)
TEXT = b"the house is small .\nis the old house small ?\nold\n"
TINY = "--hidden 4 --embedding 3 --maxout 2 --rank 2 --max-steps 3 --threads 1 --device cpu"
TINY_LM = "--order 3 --embedding 3 --hidden 4 --output 2 --max-steps 3 --threads 1 --device cpu"
TINY_NMT = "--hidden 4 --embedding 3 --max-steps 3 --threads 1 --device cpu"
NBEST = b"0 ||| the house ||| LM0= -3 ||| -3\n0 ||| house ||| LM0= -4 ||| -4\n2 ||| a b . ||| LM0= -1 ||| -1\n"
VARIES = {"report", "train", "train-lm", "train-nmt"}  # with the time that it takes, or with the name of the folder


@dataclass(frozen=True)
class Line:
    """A valid command line: {m} is a model, {l} a language model, {o} a folder to write in.

    ``input``, of ``content``, is what is read. ``out`` is the file that it writes, nothing if it writes to standard output.
    """

    args: str
    input: str
    content: bytes
    out: str = ""


LINES = {
    "train": Line(f"train {{i}} -m {{o}}/out --scratch {{o}} {TINY}", "table", ROWS, "out/config.json"),
    "train --init-from": Line(f"train {{i}} -m {{o}}/out {TINY} --hidden 7 --embedding 6 --maxout 5 --rank 4 --init-from {{m}}",
                              "table", ROWS, "out/config.json"),
    "annotate": Line("annotate {i} -m {m} -o {o}/out --device cpu", "table", ROWS, "out"),
    "annotate -o -": Line("annotate {i} -m {m} --device cpu", "table", ROWS),
    "strip": Line("strip {i} --columns 1 -o {o}/out", "table", ROWS, "out"),
    "strip -o -": Line("strip {i} --columns 1", "table", ROWS),
    "moses-ini": Line("moses-ini {d}/ini --table {i} --columns 1 -o {o}/out", "table", ROWS, "out"),
    "moses-ini INI": Line("moses-ini {i} --table {d}/table --columns 1", "ini", ini_text("table", 2).encode()),
    "evaluate": Line("evaluate --samples 10 --set dev {i} a={i} b={i}", "out.txt", TEXT),
    "evaluate --source": Line("evaluate --samples 9 --set dev {i} a={i} b={i} --examples 1 --source {i} --force", "text", TEXT),
    "score": Line("score -m {m}", "-", PAIRS),
    "generate": Line("generate -m {m} -n 2", "-", PHRASES),
    "embed": Line("embed -m {m}", "-", PHRASES),
    "embed -o": Line("embed -m {m} -o {o}/out.txt", "-", PHRASES, "out.txt"),
    "info": Line("info {i} -m {m}", "table", ROWS),
    "info MODEL_DIR": Line("info {m}", "", b""),
    "report": Line("report {i} -m {m} -o {o}/out.html --phi-column 1", "table", ROWS, "out.html"),
    "train-lm": Line(f"train-lm {{i}} -m {{o}}/out {TINY_LM}", "text", TEXT, "out/config.json"),
    "train-nmt": Line(f"train-nmt {{i}} {{d}}/target -m {{o}}/out {TINY_NMT}", "text", TEXT, "out/config.json"),
    "score-lm": Line("score-lm -m {l}", "-", TEXT),
    "export-lm": Line("export-lm -m {l} -o {o}/out.nplm", "", b"", "out.nplm"),
    "rescore": Line("rescore {i} -m {l} -o {o}/out", "nbest", NBEST, "out"),
    "rescore -o -": Line("rescore {i} -m {l} --sort", "nbest", NBEST),
    "tune": Line("tune {i} --reference {d}/text -o {o}/out --weights none --force", "nbest", NBEST, "out"),
}  # fmt: skip


COMMAND = """
import os, sys
from pathlib import Path
from phrase_rescore.cli.main import main
from phrase_rescore.report import page
page._script = lambda: Path(os.environ["SCRIPT"]).read_text("utf-8")  # takes seconds to make
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Runner:
    """Runs command lines by ``python`` in ``environment``; ``script`` is what is made of the script of a page."""

    python: str
    script: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, args: list[str], stdin: bytes, cwd: Path, stdout: str | None = None, err_closed: bool = False,
        most: int | None = None,
    ) -> Result:  # fmt: skip
        """Run a command line. ``stdout`` may be the name of a file, or ``|``: a pipe whose reader has gone, or ``| head``:
        one whose reader goes after the first bytes. ``most``: the largest file that may be written, in bytes.
        """
        given = self.script.with_name("stdin")
        given.write_bytes(stdin)
        python_path = f"{ROOT}:{ROOT}/tests/support"
        env = {**os.environ, **self.environment, "PYTHONWARNINGS": "ignore", "PYTHONPATH": python_path}
        env |= {"SCRIPT": str(self.script)}
        target = subprocess.PIPE
        if stdout == "|":
            reader, target = os.pipe()
            os.close(reader)
        elif stdout and stdout != "| head":
            target = os.open(stdout, os.O_WRONLY)

        def limit() -> None:
            if most is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        shell = ["sh", "-c", 'exec "$@" 2>&-' if err_closed else 'exec "$@"', "sh"]
        with given.open("rb") as stream:
            process = subprocess.Popen(
                [*shell, self.python, "-c", COMMAND, *args], stdin=stream, stdout=target, stderr=subprocess.PIPE, cwd=cwd,
                env=env, preexec_fn=limit,
            )  # fmt: skip
            if target != subprocess.PIPE:
                os.close(target)
            if stdout == "| head" and process.stdout:
                process.stdout.read(1)
                process.stdout.close()
            out, err = process.communicate(timeout=120)
        return Result(process.returncode, out or b"", err.decode("utf-8", "backslashreplace"))


class Place:
    """A folder with inputs, a model, and a folder to write in; and what the commands write there when nothing is awkward."""

    def __init__(self, folder: Path, model: str, runner: Runner) -> None:
        self.data, self.out, self.model, self._runner = folder / "data", folder / "out", folder / "model", runner
        shutil.copytree(model, self.model)
        self.lm, self._undisturbed = small_lm(folder / "lm"), dict[str, bytes]()
        self.clear()

    def run(self, line: Line, content: bytes | None = None, runner: Runner | None = None, **circumstances: object) -> Result:
        content = line.content if content is None else content
        given = self.data / (line.input if line.input not in ("", "-") else "none")
        if line.input != "-":
            given.write_bytes(content)
            (self.data / "target").write_bytes(content.upper())  # a translation, line by line
        args = [part.format(i=given, d=self.data, m=self.model, l=self.lm, o=self.out) for part in line.args.split()]
        stdin = content if line.input == "-" else b""
        return (runner or self._runner).run(args, stdin, self.out, **circumstances)  # type: ignore[arg-type]

    def written(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.out)): path.read_bytes() for path in sorted(self.out.rglob("*")) if path.is_file()}

    def result(self, line: Line, done: Result) -> bytes:
        return (self.out / line.out).read_bytes() if line.out else done.out

    def undisturbed(self, name: str) -> bytes:
        """Return the result of a command line, which runs for this once; all is cleared afterwards."""
        if name not in self._undisturbed:
            self.clear()
            done = self.run(LINES[name])
            assert done.status == 0, done
            self._undisturbed[name] = self.result(LINES[name], done)
            self.clear()
        return self._undisturbed[name]

    def clear(self) -> None:
        """Put the inputs back that a run has altered, and empty the folder to write in."""
        for folder in (self.data, self.out):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        (self.data / "table").write_bytes(ROWS)
        (self.data / "ini").write_bytes(ini_text("table", 2).encode())
        (self.data / "text").write_bytes(TEXT)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Runner:
    path = tmp_path_factory.mktemp("script") / "script.js"
    path.write_text(page._script(), "utf-8")
    return Runner(warm_python, path)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, model_dir: str, runner: Runner) -> Place:
    return Place(tmp_path_factory.mktemp("place"), model_dir, runner)


@pytest.fixture
def place(standing: Place) -> Place:
    standing.clear()
    return standing


every_line = pytest.mark.parametrize("name", LINES)
some_lines = pytest.mark.parametrize("name", ["train", "annotate", "annotate -o -", "info"])  # where all do the same
every_stream = pytest.mark.parametrize("name", [name for name in LINES if not LINES[name].out])


def errors(done: Result) -> list[str]:
    """The lines of errors; a traceback is none."""
    assert "Traceback" not in done.err, done.err
    assert "Exception ignored" not in done.err, done.err
    return [line for line in done.err.splitlines() if line.startswith("phrase-rescore: error: ")]


def clear_end(done: Result) -> str:
    assert done.status in (1, 2), done
    (line,) = errors(done)
    return line.removeprefix("phrase-rescore: error: ")


def test_every_command_has_a_line() -> None:
    assert {name.split()[0] for name in LINES} == set(COMMANDS)


@some_lines
def test_standard_error_is_closed(place: Place, name: str) -> None:
    line = LINES[name]
    expected = place.undisturbed(name)
    done = place.run(line, err_closed=True)
    assert done.status == 0
    if name.split()[0] not in VARIES:
        assert place.result(line, done) == expected


@every_stream
@pytest.mark.parametrize("reader", ["|", "| head"])
def test_the_reader_goes_away(place: Place, name: str, reader: str) -> None:
    done = place.run(LINES[name], stdout=reader)
    assert not errors(done), done
    assert done.status in ((1,) if reader == "|" else (0, 1))


def test_the_reader_of_a_named_stream_goes_away(place: Place) -> None:
    done = place.run(Line("annotate {i} -m {m} -o /dev/stdout --device cpu", "table", ROWS), stdout="|")
    assert not errors(done), done
    assert "INCOMPLETE" not in done.err
    assert done.status == 1


@every_line
def test_no_last_newline(place: Place, name: str) -> None:
    line = LINES[name]
    expected = place.undisturbed(name)
    done = place.run(line, line.content[:-1])
    assert done.status == 0, done
    assert not errors(done)
    if name.split()[0] not in VARIES:
        assert place.result(line, done).rstrip(b"\n") == expected.rstrip(b"\n")


EMPTY = {  # commands that have nothing to complain of: no question, no answer
    "score", "generate", "embed", "embed -o", "info MODEL_DIR", "score-lm", "export-lm",
}  # fmt: skip
BLANK_LINE = {  # where it is a line like others, or none
    "info", "info MODEL_DIR", "moses-ini INI", "evaluate", "evaluate --source", "train-lm", "train-nmt", "score-lm",
    "export-lm",
}  # fmt: skip


@every_line
def test_an_empty_file(place: Place, name: str) -> None:
    line = LINES[name]
    done = place.run(line, b"")
    if name in EMPTY:
        assert done.status == 0, done
        return
    told = clear_end(done)
    assert done.status == 1
    assert line.input in told
    assert place.written() == {}


@every_line
def test_an_empty_line(place: Place, name: str) -> None:
    line = LINES[name]
    first, newline, rest = line.content.partition(b"\n")
    done = place.run(line, first + newline + newline + rest)
    if name in BLANK_LINE:
        assert done.status == 0, done
        return
    told = clear_end(done)
    assert done.status == 1
    assert ":2: " in told, told
    assert line.out not in place.written()


@every_line
def test_a_full_disk_at_the_last_byte(place: Place, name: str) -> None:
    line = LINES[name]
    if not line.out:
        if os.path.exists("/dev/full"):
            done = place.run(line, stdout="/dev/full")
            assert clear_end(done) == "<stdout>: No space left on device; make room there, or write elsewhere"
        return
    place.run(line)
    sizes = {len(data) for data in place.written().values()}
    for size in sorted(sizes):
        place.clear()
        before = place.out / line.out
        done = place.run(line, most=size - 1)
        assert clear_end(done), size
        assert not before.exists(), size
        assert not [path for path in place.out.iterdir() if ".partial" in path.name and name != "annotate"], size


@some_lines
def test_the_locale_is_c(place: Place, runner: Runner, name: str) -> None:
    """Python's own change to UTF-8 is switched off."""
    line = LINES[name]
    expected = place.undisturbed(name)
    environment = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = place.run(line, runner=Runner(sys.executable, runner.script, environment))
    assert done.status == 0, done
    assert not errors(done)
    if name.split()[0] not in VARIES:
        assert place.result(line, done) == expected


def test_threads_that_wait_sleep(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of torch do not take the core of another program while they wait, unless the user wants it."""
    for before, found in (("", "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.setenv("OMP_WAIT_POLICY", before)
        if not before:
            monkeypatch.delenv("OMP_WAIT_POLICY")
        assert run("--version").status == 0
        assert os.environ["OMP_WAIT_POLICY"] == found
