"""Commands that answer lines: each at once where that is asked for, and no more of them than a reader wants."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT, MakeModel, Run
from small_models import small_lm

from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.scorer import BATCH

COMMANDS = {  # a command that a program keeps open, a line for it, and how many lines answer that
    "score": ("score -m {m} --flush", b"the ||| das\n", 1),
    "generate": ("generate -m {m} -n 2 --flush", b"the house\n", 2),
    "embed": ("embed -m {m}", b"the\n" * BATCH, BATCH),  # as many as are read at once
    "score-lm": ("score-lm -m {lm} --flush", b"the house .\n", 1),
    "score-lm -": ("score-lm - -m {lm} --flush", b"the house .\n", 1),
    "score at a terminal": ("score -m {m}", b"the ||| das\n", 1),
    "score-lm at a terminal": ("score-lm -m {lm}", b"the house .\n", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_can_keep_it_open(name, model_dir, tmp_path, warm_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", warm_path)
    command, line, answers = COMMANDS[name]
    args = ["phrase-rescore", *command.format(m=model_dir, lm=small_lm(tmp_path / "lm")).split()]
    theirs, ours = os.openpty()[::-1] if "terminal" in name else os.pipe()
    with subprocess.Popen(args, cwd=ROOT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        assert process.stdout
        for _ in range(3):
            os.write(ours, line)
            assert all(process.stdout.readline() for _ in range(answers)), "would wait for ever if it waited for more"
        if os.isatty(ours):
            os.write(ours, b"\x04")  # Ctrl-D
        else:
            os.close(ours)
        assert process.wait() == 0


def test_a_device_that_is_not_there(run: Run, model_dir: str, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    for command, line, _ in COMMANDS.values():
        done = run(*command.format(m=model_dir, lm=lm).split(), "--device", "cuda:99", stdin=line)
        assert (done.status, done.out, "--device cuda:99: " in done.last_line) == (2, b"", True), command


GOOD = {"score": b"the ||| das\nold ||| alt\n", "generate": b"the\nold\n", "embed": b"the\nold\n"}
BAD_LINES = [
    ("score", b"house", "no phrase pair in 'house'"),
    ("score", b"", "no phrase pair in ''"),
    ("score", b"the ||| ", "the target phrase is empty"),
    ("generate", b"", "the line is empty"),
    ("generate", b"the ||| das", "'the ||| das' is more than a source phrase"),
    ("embed", b"  \r", "the line is empty"),
    ("embed", b"the\tdas", "'the\\tdas' is more than a source phrase"),
    ("embed", b"the [X]", "non-terminal '[X]'"),
]


@pytest.mark.parametrize(("command", "line", "found"), BAD_LINES)
def test_a_bad_line_is_named_after_the_answers_before_it(run: Run, model_dir: str, command: str, line: bytes, found: str):
    done = run(command, "-m", model_dir, stdin=GOOD[command] + line + b"\n" + GOOD[command])
    assert done.status == 1
    assert done.out == run(command, "-m", model_dir, stdin=GOOD[command]).out
    assert done.last_line.startswith(f"phrase-rescore: error: <stdin>:3: {found}")


def test_a_bad_line_leaves_no_file(run: Run, model_dir: str, tmp_path: Path) -> None:
    assert run("embed", "-m", model_dir, "-o", tmp_path / "c.txt", stdin=GOOD["embed"] + b"\n").status == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("command", "good", "bad"), [
    ("score", b"DT|the ||| das", b"the ||| das"), ("generate", b"DT|the", b"the"), ("embed", b"DT|the", b"the"),
])  # fmt: skip
def test_factors_are_asked_for(run: Run, model_dir: str, tmp_path: Path, command: str, good: bytes, bad: bytes) -> None:
    save(replace(load(model_dir), factors=(1, None)), str(tmp_path))
    done = run(command, "-m", tmp_path, stdin=good + b"\n" + bad + b"\n")
    plain = run(command, "-m", model_dir, stdin=bad + b"\n").out
    assert done.out == (plain.replace(b"the\t", b"DT|the\t") if command == "generate" else plain)
    assert "<stdin>:2: source word 'the' has no factor 1" in done.last_line


@pytest.mark.parametrize(("command", "shares", "side"), [
    ("score", (0.1, 0.0), "target"), ("score", (0.0, 0.1), "source"), ("generate", (0.1, 0.0), ""),
    ("generate", (0.0, 0.1), "source"), ("generate --unk", (0.1, 0.0), "target"), ("embed", (0.1, 0.0), ""),
    ("embed", (0.0, 0.1), "source"), ("embed --words source", (0.0, 0.1), ""),
])  # fmt: skip
def test_a_model_that_never_saw_unknown_words(run: Run, make_model: MakeModel, command: str, shares, side: str) -> None:
    name, *options = command.split()
    done = run(name, "-m", make_model(unk_shares=shares), *options, stdin=GOOD[name])
    warnings = [line for line in done.err.splitlines() if "warning: " in line]
    assert (done.status, len(warnings)) == (0, 1 if side else 0)
    assert all(f"no {side} word was unknown" in line for line in warnings)
