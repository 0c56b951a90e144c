"""Completion as docs/cli.md tells users to switch it on, in the shells that are here, and what it offers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, ShellComplete
from conftest import ROOT

from phrase_rescore.cli.main import COMMANDS, cli

SHELLS = [name for name in ("bash", "zsh", "fish") if shutil.which(name)]


def switched_on_by(shell: str) -> str:
    """The line for a start-up file that docs/cli.md shows."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{shell}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with our ``phrase-rescore`` on its PATH."""
    script = tmp_path / "phrase-rescore"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m phrase_rescore "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def shell(name: str, script: str, env: dict[str, str]) -> str:
    command = [name, *(["--norc"] if name == "bash" else []), "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


WORDS = {
    "phrase-rescore ": set(COMMANDS), "phrase-rescore ge": {"generate"},
    "phrase-rescore train t --preset ": {"default", "paper"},
    "phrase-rescore annotate t -m a -m b --s": {"--scale", "--scores", "--strict"},
    "phrase-rescore embed --format ": {"txt", "tsv"}, "phrase-rescore evaluate --set dev ref a=b --to": {"--tokenize"},
}  # fmt: skip


def completions(line: str) -> list[CompletionItem]:
    *args, incomplete = line.split(" ")[1:]
    return ShellComplete(cli, {}, "phrase-rescore", "_PHRASE_RESCORE_COMPLETE").get_completions(args, incomplete)


@pytest.mark.parametrize("line", WORDS)
def test_commands_options_and_values_are_completed(line: str) -> None:
    assert {item.value for item in completions(line)} == WORDS[line]


def test_bash_completes_them(env: dict[str, str]) -> None:
    line = "phrase-rescore evaluate --set dev ref a=b --to"
    words = line.split(" ")
    script = f"""{switched_on_by("bash")}
COMP_WORDS=({" ".join(words)})
COMP_CWORD={len(words) - 1}
_phrase_rescore_completion phrase-rescore
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert set(shell("bash", script, env).split()) == WORDS[line]


PLACES = {
    "annotate ": "file", "annotate t -o ": "file", "annotate t -m ": "dir",
    "train t --pairs ": "dir", "evaluate --set dev ": "file",
    "evaluate --set dev ref a=": "file", "info -m m ": "file",
}  # fmt: skip


@pytest.mark.parametrize("line", PLACES)
def test_names_of_files_and_directories_are_left_to_the_shell(line: str) -> None:
    assert [item.type for item in completions(f"phrase-rescore {line}")] == [PLACES[line]]


@pytest.mark.parametrize("name", SHELLS)
def test_the_line_of_every_shell_is_shell(env: dict[str, str], name: str) -> None:
    script = {"zsh": "autoload -Uz compinit && compinit -D\n"}.get(name, "") + switched_on_by(name)
    shown = {"bash": "complete -p", "zsh": "print -r -- ${_comps[phrase-rescore]}", "fish": "complete -c phrase-rescore"}[name]
    assert "phrase" in shell(name, f"{script}\n{shown}", env)
