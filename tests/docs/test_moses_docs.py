"""What cannot be run where Moses is not: the Moses commands of docs/moses.md and of the examples.

Every ```bash block and every script is checked by ``bash -n``. ```sh blocks are run by test_docs.py.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from conftest import ROOT

PAGE = ROOT / "docs" / "moses.md"
SCRIPTS = sorted((ROOT / "examples").rglob("*.sh"))


def texts() -> list[object]:
    found = re.findall(r"^( *)```bash\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    blocks = [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
    assert blocks
    return [
        *(pytest.param(block, id=f"{PAGE.name}-{i}") for i, block in enumerate(blocks)),
        *(pytest.param(path.read_text(encoding="utf-8"), id=path.name) for path in SCRIPTS),
    ]


@pytest.mark.parametrize("text", texts())
def test_shells_can_read_it(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# ---- the traps


def trap_rows() -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").split("\n## Fifteen traps\n")[1]
    return [re.split(r"(?<!\\)\|", row)[1:-1] for row in section.split("\n") if re.match(r"\| \d+ \|", row)]


def test_there_are_fifteen_traps_each_with_a_test() -> None:
    rows = trap_rows()
    assert [int(row[0]) for row in rows] == list(range(1, 16))
    for number, _, _, tests in rows:
        named = re.findall(r"`(\w+\.py)::(\w+)`", tests)
        assert named, number
        for file, test in named:
            (path,) = (ROOT / "tests").rglob(file)
            text = path.read_text(encoding="utf-8")
            assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"trap {number}: {file}::{test}"
