"""CONTRIBUTING.md speaks of rooms, files, markers and make targets that exist."""

from __future__ import annotations

import re
import subprocess
import tomllib

import pytest
from conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMMANDS = re.findall(r"^(make [^#\n]*?) *(?:#.*)?$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_make_knows_its_commands(command: str) -> None:
    done = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if room := re.search(r"ROOM=(\w+)", command):
        assert (ROOT / "tests" / room[1]).is_dir()
        assert f"tests/{room[1]}" in done.stdout


def test_there_are_commands() -> None:
    assert {command.split()[1] for command in COMMANDS} == {"check", "test", "demo", "bench", "fuzz", "faults", "docs"}


def test_its_files_and_markers_exist() -> None:
    files = re.findall(r"`([\w/]+\.(?:py|toml))`", TEXT)
    assert len(files) > 8
    missing = [name for name in files if not any((base / name).exists() for base in (ROOT, ROOT / "phrase_rescore"))]
    assert missing == ["cli/NAME.py"]
    marked = set(re.findall(r"pytest\.mark\.(\w+)|marked `(\w+)` and `(\w+)`", TEXT)[0])
    assert marked - {""} <= {marker.split(":")[0] for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
