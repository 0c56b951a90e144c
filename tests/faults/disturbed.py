"""Small runs of commands, each in a process of its own, to be disturbed, gone on with, and compared with undisturbed ones.

Import this before torch: processes are forked, so no library may have started threads of its own.
"""

import contextlib
import faulthandler
import gc
import gzip
import io
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import torch
from moses_harness import ini_text
from small_models import small_checkpoint, small_lm
from system_calls import Decide, hand_over, supervise
from tqdm import tqdm

import phrase_rescore
from phrase_rescore.cli.main import main as command_line
from phrase_rescore.files import row_outputs
from phrase_rescore.rnn.checkpoint import save

torch.set_num_threads(1)
tqdm.set_lock(threading.RLock())  # its own is shared by all processes: one that is killed holding it would stop the others

PACKAGE = str(Path(phrase_rescore.__file__).parent) + os.sep
IDENTICAL = "identical"
HANGS = 99  # the status of a process that had to be killed
_BY_CHANCE = r"(?<=[-.])[a-z0-9_]{8}(?=$|/|\.partial|\.old)"  # what mkstemp makes up in a name
_SECONDS = 30  # after which a process hangs
_OLDER = {"out.gz": gzip.compress(b"what stood there\n")}
_TINY = "--hidden 4 --embedding 3 --batch-size 8 --max-steps 6 --eval-every 3 --threads 1 --device cpu"


class Ended(NamedTuple):
    """How a process ended; the status is negative for a signal."""

    status: int
    told: str

    @property
    def last_line(self) -> str:
        return self.told.splitlines()[-1] if self.told else "said nothing"

    @property
    def breakdown(self) -> str:
        """What is wrong however it was disturbed; nothing if it is neither a process that hangs nor a traceback."""
        if self.status == HANGS:
            return f"hangs: {self.told}"
        return f"a traceback: {self.last_line}" if re.search("Traceback|Exception ignored", self.told) else ""


def _one_core(pid: int) -> set[int]:
    """Stand for ``os.sched_getaffinity``: no command starts threads of torch before this process is forked."""
    return {0}


def start(args: list[str], errors: Path, prepare: Callable[[], None], stdin: Path = Path(os.devnull)) -> int:
    """Start a command line in a process of its own, standard error in a file, standard output nowhere; return its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        sys.stdin = open(stdin)  # noqa: SIM115
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        faulthandler.dump_traceback_later(_SECONDS - 5, file=2)  # of a process that hangs
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
        row_outputs.SECONDS_BETWEEN = 0.0  # an entry of the journal after every block
        os.sched_getaffinity = _one_core
        prepare()
        command_line(args)
    except SystemExit as done:
        status = done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:  # before the command line has begun, or when it is over
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)  # as Python ends
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # nothing of this program ends in two processes


def run_here(args: list[str]) -> None:
    """Run a command line in this process, so that those forked from it find loaded what it needs."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(os, "sched_getaffinity", _one_core),
    ):
        command_line([*args, "-q"])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    torch.set_flush_denormal(False)
    gc.freeze()  # a collection would copy the memory that forked processes share


def wait(pid: int, errors: Path, seconds: float = _SECONDS) -> Ended:
    """Wait for a process that ``start`` started, or kill it if it hangs."""
    watched = select.poll()
    handle = os.pidfd_open(pid)
    watched.register(handle, select.POLLIN)
    hangs = not watched.poll(seconds * 1000)
    os.close(handle)
    if hangs:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(HANGS if hangs else status, errors.read_text(errors="backslashreplace"))


def run_supervised(args: list[str], errors: Path, decide: Decide, seconds: float = _SECONDS) -> Ended:
    """Run a command line whose system calls ``decide`` answers."""
    ours, theirs = socket.socketpair()
    pid = start(args, errors, lambda: hand_over(theirs))
    theirs.close()
    in_time = supervise(pid, ours, decide, seconds)
    ours.close()
    ended = wait(pid, errors)
    return ended if in_time else Ended(HANGS, ended.told)


def write_inputs(folder: Path, rows: int) -> None:
    """Write a table with two bad rows, the same annotated, pairs with one bad row, a moses.ini, a model of half its words;
    text, an n-best list and a language model.
    """
    draw = random.Random(1)
    phrase = lambda side: " ".join(f"{side}{draw.randrange(30)}" for _ in range(draw.randint(1, 4)))  # noqa: E731
    lines = sorted(f"{phrase('s')} ||| {phrase('t')} ||| 0.5 1 ||| 0-0 ||| 1 1 1\n".encode() for _ in range(rows))
    annotated = [line.replace(b"0.5 1 |", b"0.5 1 0.25 2.718282 |") for line in lines]
    lines[rows // 3 : rows // 3] = [b"no row\n"]
    lines[rows // 2 : rows // 2] = [b"a ||| b ||| inf\n"]
    (folder / "table.gz").write_bytes(gzip.compress(b"".join(lines), 1))
    (folder / "annotated.gz").write_bytes(gzip.compress(b"".join(annotated), 1))
    (folder / "moses.ini").write_text(ini_text("table.gz", 2))
    pairs = sorted({f"{phrase('s')}\t{phrase('t')}\n" for _ in range(250)})  # so many sources that one is held out
    (folder / "pairs.tsv").write_text("".join([*pairs[:9], "no pair\n", *pairs[9:]]))
    (folder / "model").mkdir()
    save(small_checkpoint(words=15), str(folder / "model"))
    sentences = [f"{phrase('t')} {phrase('t')}" for _ in range(300)]
    (folder / "text").write_text("".join(f"{sentence}\n" for sentence in sentences))
    (folder / "sources").write_text("".join(f"{phrase('s')} {phrase('s')}\n" for _ in sentences))
    (folder / "references").write_text("".join(f"{sentence} {phrase('t')}\n" for sentence in sentences))
    (folder / "tenths").write_text("".join(f"{sentence}\n" for sentence in sentences[::10]))
    entries = [
        f"{i // 10} ||| {sentence}  ||| LM0= -{i}.5 TM0= {draw.randrange(9)} ||| -{i}\n" for i, sentence in enumerate(sentences)
    ]
    (folder / "nbest.gz").write_bytes(gzip.compress("".join(entries).encode(), 1))
    small_lm(folder / "lm", tuple(f"t{i}".encode() for i in range(15)))


def contents(folder: Path) -> dict[str, bytes]:
    """Return all that is in a folder by name; the log of a training without its times."""
    found = {}
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if path.suffix == ".jsonl":
            data = re.sub(rb'"seconds": [^,}]+', b"", data)
        found[str(path.relative_to(folder))] = data
    return found


@dataclass
class Job:
    """A command line that writes into ``folder``, what stands there before it, and what an undisturbed run leaves there.

    ``again`` are the options to try, in turn, in order to go on after a failure; a status of 2 leads to the next.
    """

    name: str
    folder: Path
    args: list[str]
    again: tuple[tuple[str, ...], ...] = ((),)
    result: str = ""  # the name of what appears complete or not at all
    older: dict[str, bytes] = field(default_factory=dict)
    expected: dict[str, bytes] = field(default_factory=dict)
    errors: Path = Path()
    stdin: Path = Path(os.devnull)

    def __post_init__(self) -> None:
        self.errors = self.folder.parent / f"{self.folder.name}.errors"

    def learn(self, here: bool = False) -> None:
        """Run it undisturbed, ``here`` so that this process has loaded all that it needs, and remember what it leaves."""
        self.fresh()
        if here:
            run_here(self.args)
            self.fresh()
        ended = self.run()
        assert ended.status == 0, ended.told
        self.expected = contents(self.folder)

    def fresh(self) -> None:
        """Put the folder back to where it was before the first run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "scratch").mkdir(parents=True)
        for name, data in self.older.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(data)

    def run(self, *more: str, prepare: Callable[[], None] = lambda: None) -> Ended:
        os.environ["TMPDIR"] = str(self.folder / "scratch")
        return wait(start([*self.args, *more], self.errors, prepare, self.stdin), self.errors)

    def noted(self, prepare: Callable[[], None], note: Callable[[], Any]) -> Any:
        """Run it undisturbed after ``prepare``; return what ``note`` says when it ends."""
        notes, leave = self.errors.with_suffix(".notes"), os._exit

        def at_the_end(status: int) -> None:
            notes.write_text(json.dumps(note()))
            leave(status)

        def install() -> None:
            os._exit = at_the_end  # type: ignore[assignment]
            prepare()

        self.fresh()
        ended = self.run(prepare=install)
        assert ended.status == 0, ended.told
        return json.loads(notes.read_text())

    def half_done(self, found: dict[str, bytes]) -> bool:
        """Tell whether something stands under the result's name that is neither what stood there before nor the result."""
        of_result = lambda files: {k: v for k, v in files.items() if k == self.result or k.startswith(f"{self.result}/")}  # noqa: E731
        now, older = of_result(found), of_result(self.older)
        return bool(now) and now != of_result(self.expected) and {k: v for k, v in now.items() if v or "/" in k} != older

    def goes_on(self) -> str:
        """Go on after a disturbance, as a user would, and compare: ``identical``, or what is wrong."""
        found = contents(self.folder)
        if found == self.expected:
            return IDENTICAL
        if self.half_done(found):
            return f"half of a result under the name {self.result}"
        for more in self.again:
            ended = self.run(*more)
            if ended.status != 2:
                break
        if ended.status == 2 and contents(self.folder) == self.expected:
            return IDENTICAL  # all was done before, and what was left of a lock is gone
        if ended.status:
            return f"does not go on, status {ended.status}: {ended.told if ended.status == HANGS else ended.last_line}"
        return ", ".join(self.wrong_files()) or IDENTICAL

    def wrong_files(self) -> list[str]:
        """Return the files that are not as an undisturbed run leaves them: ``left``, ``lost`` or ``altered``, and the name."""
        found, wrong = contents(self.folder), []
        for name in sorted(found.keys() | self.expected.keys()):
            if found.get(name) != self.expected.get(name):
                kind = "left" if name not in self.expected else "lost" if name not in found else "altered"
                wrong.append(f"{kind} {re.sub(_BY_CHANCE, '*', name)}")
        return wrong


def jobs(inputs: Path, out: Path, rows: int) -> Iterator[Job]:
    """Yield the runs that are disturbed, each in a folder of ``out``."""
    model = {f"model/{path.name}": path.read_bytes() for path in (inputs / "model").iterdir()}
    places = {path.name.partition(".")[0].replace("-", "_"): path for path in inputs.iterdir()}

    def job(name: str, command: str, result: str, *again: tuple[str, ...], **older: bytes) -> Job:
        """A command line in which {x} is the input of this name, and {out} the folder of the job."""
        folder = out / name.replace(" ", "")
        args = command.format(out=folder, **places).split()
        return Job(name, folder, args, again or ((),), result, older)

    resumed = (("--resume",), ())
    train = f"train {{pairs}} -m {{out}}/model --scratch {{out}}/scratch {_TINY} --maxout 2 --rank 2 --shortlist 20"
    train += " --on-bad-row drop"
    yield job(
        "annotate",
        "annotate {table} -m {model} --overwrite -o {out}/out.gz --on-bad-row drop --jobs 1 --device cpu "
        f"--block-size {-(-rows // 5)}",
        "out.gz", ("--resume",), **_OLDER, **{"out.gz.dropped": b"rows of another run\n"},
    )  # fmt: skip
    yield job("train", train, "model", *resumed)
    yield job("train --overwrite", f"{train} --overwrite", "model", *resumed, **model)
    yield job("strip", "strip {annotated} --columns 2 --overwrite -o {out}/out.gz", "out.gz", **_OLDER)
    yield job(
        "moses-ini", "moses-ini {moses} --table {annotated} --columns 2 --overwrite -o {out}/moses.ini", "moses.ini",
        **{"moses.ini": b"what stood there\n"},
    )  # fmt: skip
    yield job("train-lm", f"train-lm {{text}} -m {{out}}/model --order 4 {_TINY}", "model", *resumed)
    yield job("train-nmt", f"train-nmt {{sources}} {{text}} -m {{out}}/model {_TINY}", "model", *resumed)
    yield job(
        "export-lm", "export-lm -m {lm} --overwrite -o {out}/lm.nplm", "lm.nplm", **{"lm.nplm": b"what stood there\n"}
    )  # fmt: skip
    yield job("rescore", "rescore {nbest} -m {lm} --overwrite -o {out}/out.gz", "out.gz", **_OLDER)
    yield job(
        "tune", "tune {nbest} --reference {tenths} --restarts 0 --overwrite -o {out}/out.gz", "out.gz", **_OLDER
    )  # fmt: skip
    yield job(
        "evaluate", "evaluate --set test {references} a={text} --metrics bleu --force --overwrite --statistics {out}/out.gz",
        "out.gz", **_OLDER,
    )  # fmt: skip
    yield replace(job("generate", "generate -m {model} -n 2", ""), stdin=inputs / "text")
