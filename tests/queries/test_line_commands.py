"""Commands that answer lines: each at once where that is asked for, and no more of them than a reader wants."""

import subprocess

import pytest
from conftest import ROOT
from small_models import small_lm

from phrase_rescore.rnn.scorer import BATCH

COMMANDS = {  # a command that a program keeps open, a line for it, and how many lines answer that
    "score": ("score -m {m} --flush", b"the ||| das\n", 1),
    "generate": ("generate -m {m} -n 2 --flush", b"the house\n", 2),
    "embed": ("embed -m {m}", b"the\n" * BATCH, BATCH),  # as many as are read at once
    "score-lm": ("score-lm -m {lm} --flush", b"the house .\n", 1),
    "score-lm -": ("score-lm - -m {lm} --flush", b"the house .\n", 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_program_can_keep_it_open(name, model_dir, tmp_path, warm_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", warm_path)
    command, line, answers = COMMANDS[name]
    args = ["phrase-rescore", *command.format(m=model_dir, lm=small_lm(tmp_path / "lm")).split()]
    with subprocess.Popen(args, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(3):
            process.stdin.write(line)
            process.stdin.flush()
            assert all(process.stdout.readline() for _ in range(answers)), "would wait for ever if it waited for more"
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["embed -m {m}", "generate -m {m} -n 5", "score -m {m}"])
def test_a_reader_that_has_seen_enough(command: str, model_dir: str, warm_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", warm_path)
    line = "the house ||| das" if command.startswith("score") else "the house"
    script = f"yes '{line}' | head -n 20000 | phrase-rescore {command.format(m=model_dir)} | head -n 1"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert done.stdout
    assert done.stderr == b""
