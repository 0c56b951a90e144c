"""Every option of every command, found by walking click's own parameters, and command lines that run in forked children.

A new option is found by itself. A new command needs its command line in BASES; an option that means something only beside
others needs them in BESIDE, one that reads another kind of file than a table needs a good one in GOOD.

As a script (``python every_option.py``) it is the server: it imports everything once, then forks for every command line.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 12  # that a command line may take
BEFORE = b"written before\n"  # to standard output, which is appended to
TINY = {"hidden": ["4"], "embedding": ["3"], "maxout": ["2"], "rank": ["2"], "max_steps": ["2"], "threads": ["1"]}
TINY_LM = {"order": ["3"], "embedding": ["3"], "hidden": ["4"], "output": ["2"], "max_steps": ["2"], "threads": ["1"]}
Tokens = Mapping[str, Sequence[str]]  # by the name of the parameter
BASES: dict[str, Tokens] = {
    "train": {"inputs": ["table"], "model_dir": ["new"], "pairs_dir": ["pairs"], **TINY},
    "annotate": {"table": ["table"], "models": ["model"], "out": ["out"]},
    "strip": {"table": ["table"], "columns": ["1"], "out": ["out"]},
    "moses-ini": {"ini": ["moses.ini"], "table": ["annotated"], "out": ["out"]},
    "evaluate": {"sets": ["dev", "ref", "a=hyp"], "samples": ["10"]},
    "why": {"systems": ["a=seg", "b=seg"], "source": ["ref"], "reference": ["ref"], "table": ["annotated"]},
    "score": {"model_dir": ["model"]},
    "generate": {"model_dir": ["model"], "number": ["2"], "max_length": ["3"]},
    "embed": {"table": ["table"], "model_dir": ["model"], "out": ["out.npy"]},
    "info": {"path": ["table"]},
    "report": {"table": ["annotated"], "model_dir": ["model"], "out": ["out.html"]},
    "curves": {"runs": ["log"], "out": ["out.png"]},
    "train-lm": {"inputs": ["ref"], "lm": ["new"], "text_dir": ["pairs"], **TINY_LM},
    "score-lm": {"text": ["ref"], "lm": ["lm"]},
    "export-lm": {"lm": ["lm"], "out": ["out"]},
    "rescore": {"nbest": ["nbest"], "models": ["lm"], "out": ["out"]},
}
BESIDE: dict[tuple[str, str], Tokens] = {  # what an option needs beside it, and what it excludes: no tokens
    ("train", "patience"): {"held_out": ["2"]},
    ("annotate", "dropped"): {"table": ["spoilt"], "on_bad_row": ["drop"]},
    ("annotate", "replace"): {"table": ["annotated"]},
    ("embed", "side"): {"table": []},
    ("generate", "from_vectors"): {},
    ("generate", "temperature"): {"random": []},
    ("generate", "top_k"): {"random": []},
    ("score", "tokenize"): {},
    ("train-lm", "patience"): {"held_out_share": ["0.3"]},
    ("rescore", "source"): {"models": ["model"]},
    ("rescore", "weights"): {"models": []},
    ("train", "init_from"): {"hidden": ["7"], "embedding": ["6"], "maxout": ["5"], "rank": ["4"]},
}  # fmt: skip
GOOD: dict[tuple[str, str], str] = {  # what an option reads, where it is not a table
    ("moses-ini", "ini"): "moses.ini", ("moses-ini", "table"): "annotated", ("moses-ini", "path"): "annotated",
    ("moses-ini", "lm"): "lm.nplm", ("score-lm", "interpolate"): "arpa", ("export-lm", "arpa"): "arpa",
    ("evaluate", "sets"): "ref", ("generate", "from_vectors"): "vectors.npy",
    ("train", "source_vocab"): "words", ("train", "target_vocab"): "words", ("train", "vocab_corpus"): "corpus",
    ("report", "table"): "annotated", ("curves", "runs"): "log",
    ("why", "systems"): "seg", ("why", "source"): "ref", ("why", "reference"): "ref", ("why", "table"): "annotated",
    ("score-lm", "text"): "ref", ("score-lm", "lm"): "lm", ("export-lm", "lm"): "lm", ("rescore", "models"): "lm",
    ("rescore", "nbest"): "nbest", ("rescore", "source"): "ref", ("rescore", "weights"): "weights",
    ("train-lm", "vocab"): "words", ("train-lm", "inputs"): "ref",
    ("train", "scratch"): "scratch", ("embed", "scratch"): "scratch",
}  # fmt: skip
SPELT: dict[tuple[str, str], list[tuple[str, ...]]] = {  # options whose value has more than the name of a file
    ("evaluate", "sets"): [("dev", "{}", "a=hyp"), ("dev", "ref", "a={}")],
    ("why", "systems"): [("a={}", "b=seg"), ("a=seg", "b={}")],
    ("generate", "from_table"): [("2", "{}")],
    ("train", "vocab_corpus"): [("{}", "corpus"), ("corpus", "{}")],
}
STDIN = b"the\nhouse\n"
STDINS = {"score": b"the house\tdas haus\nis\tist\n"}


def commands() -> dict[str, Any]:
    """Return every command, by name."""
    import click

    from phrase_rescore.cli.main import COMMANDS, cli

    return {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}


class Parameter(NamedTuple):
    """An argument or option of a command."""

    command: str
    name: str
    param: Any  # click's

    @property
    def key(self) -> tuple[str, str]:
        return self.command, self.name

    @property
    def names(self) -> list[str]:
        """How messages call it."""
        if self.param.param_type_name == "argument":
            return [self.param.human_readable_name, self.param.human_readable_name.strip(".[]")]
        return list(self.param.opts)

    def types(self) -> list[Any]:
        """Return the types of its values, one each."""
        return list(getattr(self.param.type, "types", [self.param.type]))


def parameters() -> list[Parameter]:
    return [Parameter(name, param.name, param) for name, command in commands().items() for param in command.params]


def line(command: str, tokens: Mapping[str, Sequence[str]]) -> list[str]:
    """Write a command line from the tokens of its parameters; none of an option that is no flag: it is left out."""
    options, arguments = list[str](), list[str]()
    for param in commands()[command].params:
        if param.name not in tokens:
            continue
        values = list(tokens[param.name])
        if param.param_type_name == "argument":
            arguments += values
        elif values or getattr(param, "is_flag", False):
            options += [param.opts[-1], *values]
    return [command, *options, "--", *arguments] if arguments else [command, *options]


def tokens_of(parameter: Parameter) -> dict[str, Sequence[str]]:
    """Return the tokens among which the parameter takes its place."""
    return {"quiet": [], **BASES[parameter.command], **BESIDE.get(parameter.key, {})}


class Outcome(NamedTuple):
    """What became of a command line."""

    status: int  # -1: it did not end
    out: bytes
    err: str

    @property
    def last_line(self) -> str:
        return (self.err.splitlines() or [""])[-1]


class Server:
    """A process that has imported everything, computed nothing, and forks for every command line."""

    def __init__(self, python: str = sys.executable) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        self._process = subprocess.Popen(
            [python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def run(self, args: Sequence[str], cwd: Path, stdin: bytes = b"", anybody: bool = False) -> Outcome:
        """Run a command line in a folder, as its user or, even if that is root, as ``anybody``."""
        told = {"args": list(args), "cwd": str(cwd), "stdin": base64.b64encode(stdin).decode(), "anybody": anybody}
        self._to.write(json.dumps(told) + "\n")
        self._to.flush()
        status, out, err = json.loads(self._from.readline())
        return Outcome(status, base64.b64decode(out), err)

    def close(self) -> None:
        self._to.close()
        self._process.wait()
        self._from.close()


def _serve() -> None:
    import gc
    import importlib

    from phrase_rescore.cli.main import COMMANDS, main

    for module in COMMANDS.values():
        importlib.import_module(f"phrase_rescore.cli.{module}")
    for module in ("api", "queries.embed", "evaluation.run", "evaluation.tables", "evaluation.why_text",
                   "queries.generate", "info.table", "report.run", "report.curves",
                   "queries.score", "lm.mixture", "rescoring.run", "annotation.strip",
                   "cli.terminal"):  # fmt: skip
        importlib.import_module(f"phrase_rescore.{module}")
    importlib.import_module("sacremoses")
    import torch

    run, page = importlib.import_module("phrase_rescore.report.run"), importlib.import_module("phrase_rescore.pages.page")
    run.picture, page._script = lambda spec, form: b"a picture", lambda: "a script"  # which take seconds
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).step()  # it imports for a second when it is first used
    gc.freeze()  # a collection would copy the memory that the processes share
    for request in sys.stdin:
        told = json.loads(request)
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile("a+b") as out, tempfile.TemporaryFile() as err:
            stdin.write(base64.b64decode(told["stdin"]))
            stdin.seek(0)
            out.write(BEFORE)
            out.flush()
            child = os.fork()
            if not child:
                for number, stream in enumerate((stdin, out, err)):
                    os.dup2(stream.fileno(), number)
                _child(told, main)
            status = _wait(child)
            out.seek(0)
            err.seek(0)
            said = err.read().decode("utf-8", "backslashreplace")
            answer = status, base64.b64encode(out.read()).decode(), said
        print(json.dumps(answer), flush=True)


def _child(told: dict[str, Any], main: Any) -> None:
    """Run the command line in this process and end it."""
    import traceback

    status = 70
    try:
        os.chdir(told["cwd"])
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  what the parent read ahead is not ours
        with contextlib.ExitStack() as stack:
            if told["anybody"]:
                from permissions import like_anybody

                stack.enter_context(like_anybody())
            main(told["args"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _wait(child: int) -> int:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


# The folder


def make_folder(folder: Path, model: str, run: Any) -> None:
    """Fill a folder with a good file of every kind."""
    words = ("the", "house", "is", "small", "old")
    rows = ["house ||| das ||| 0.5 0.25 0.5 0.125 ||| 0-0 ||| 3 2 1 ||| |||"]
    rows += [f"{a} {b} ||| das {n} ||| 0.{n + 1} 0.25 0.5 0.125 ||| 0-0 1-1 ||| 3 2 1 ||| |||"
            for n, (a, b) in enumerate((a, b) for a in words for b in words)]  # fmt: skip
    (folder / "table").write_text("\n".join(rows) + "\n")
    (folder / "spoilt").write_text("\n".join([*rows, "no row"]) + "\n")
    (folder / "words").write_text("".join(f"{word}\t1\n" for word in (*words, "das", *map(str, range(25)))))
    (folder / "corpus").write_text(" ".join((*words, "das", *map(str, range(25)))) + "\n")
    (folder / "ref").write_text("a b .\n")
    (folder / "hyp").write_text("a b c .\n")
    (folder / "seg").write_text("a b |0-1| . |2-2|\n")
    (folder / "log").write_text("".join(json.dumps({"step": i, "seconds": i, "train_loss": 3.0}) + "\n" for i in (1, 2)))
    shutil.copytree(model, folder / "model")
    from small_models import small_lm

    small_lm(folder / "lm")
    assert run("export-lm", "-m", folder / "lm", "-o", folder / "lm.nplm", "-q").status == 0
    for name in ("scratch", "folder"):
        (folder / name).mkdir()
    (folder / "nbest").write_text("0 ||| a b . ||| LM0= -3 ||| -3 ||| 0-1=0-1 2=2\n")
    ngrams = "-0.5\ta\n-0.5\t</s>\n-1\t<unk>\n-99\t<s>\n"
    (folder / "arpa").write_text(f"\\data\\\nngram 1=4\n\n\\1-grams:\n{ngrams}\n\\end\\\n")
    (folder / "weights").write_text("[weight]\nLM0= 1\n")
    from moses_harness import ini_text

    (folder / "moses.ini").write_text(ini_text("table", 4))
    assert run("annotate", folder / "table", "-m", model, "-o", folder / "annotated", "-q").status == 0
    assert run("embed", folder / "table", "-m", model, "-o", folder / "vectors.npy", "-q").status == 0


def digest(folder: Path) -> dict[str, str]:
    """Return what is under every name in a folder."""
    found = dict[str, str]()
    for directory, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                what = f"link to {os.readlink(path)!r}"
            elif os.path.isdir(path):
                what = "directory"
            elif os.path.isfile(path):
                try:
                    with open(path, "rb") as stream:
                        what = hashlib.blake2b(stream.read()).hexdigest()
                except PermissionError:
                    what = "locked"
            else:
                what = "special"
            found[os.fsdecode(os.path.relpath(path, os.fsencode(folder)))] = what
    return found


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(__file__))
    _serve()
