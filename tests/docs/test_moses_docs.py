"""What cannot be run where Moses is not: the Moses commands of docs/moses.md and of the examples.

Every ```bash block and every script is checked by ``bash -n``, and every option given to a program of Moses is one it has.
```sh blocks are run by test_docs.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from conftest import ROOT
from moses_options import OPTIONS

PAGE = ROOT / "docs" / "moses.md"
SCRIPTS = sorted((ROOT / "examples").rglob("*.sh"))
ENDS = {"|", "||", "&&", ";", "do", "then", ">", "<"}  # of a command; the first word behind one of them begins another


def texts() -> list[object]:
    found = re.findall(r"^( *)```bash\n(.*?)^ *```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    blocks = [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]
    assert blocks
    return [
        *(pytest.param(block, id=f"{PAGE.name}-{i}") for i, block in enumerate(blocks)),
        *(pytest.param(path.read_text(encoding="utf-8"), id=path.name) for path in SCRIPTS),
    ]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Every use of a program of Moses, with its words; programs in variables and in quoted strings of options too."""
    variables = dict(re.findall(r"^(\w+)=\S*?([\w.-]+)$", text, re.MULTILINE))
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;<>&")
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError:  # a quote that ends in another line: prose, or a program of another language
            continue
        for i, word in enumerate(words):
            name = word.rpartition("/")[2].lstrip("$")
            name = variables.get(name, name)
            if name in OPTIONS and (i == 0 or words[i - 1] in ENDS):
                ends = [j for j in range(i + 1, len(words)) if words[j] in ENDS]
                yield name, words[i + 1 : min(ends, default=len(words))]
        for word in words:
            if " " in word and word.split()[0].rpartition("/")[2] in OPTIONS:  # as -Binarizer has it
                yield word.split()[0].rpartition("/")[2] + " in -Binarizer", word.split()[1:]


def unknown_options(text: str) -> list[str]:
    """What a program of Moses is given and has not: ``program: word``."""
    wrong = []
    for use, words in commands(text):
        name = use.removesuffix(" in -Binarizer")
        given = [word for word in words if re.fullmatch(r"--?[A-Za-z][\w-]*(=.*)?", word)]
        wrong += [f"{name}: {word}" for word in given if word.lstrip("-").partition("=")[0] not in OPTIONS[name]]
        flags = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--decoder-flags"]
        wrong += [f"moses: {word}" for flag in flags for word in flag.split()[::2] if word.lstrip("-") not in OPTIONS["moses"]]
        if name == "CreateOnDiskPt" and len(words) != (5 if use != name else 7):
            wrong.append(f"{use}: {len(words)} values")
    return wrong


@pytest.mark.parametrize("text", texts())
def test_shells_can_read_it(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("text", texts())
def test_options_are_those_of_moses(text: str) -> None:
    assert unknown_options(text) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("$MOSES/bin/moses -confg x -threads 2", ["moses: -confg"]),
        ('mert=$MOSES/scripts/mert-moses.pl\n"$mert" a b c d \\\n  --workdir x | tee log --x', ["mert-moses.pl: --workdir"]),
        ("mert-moses.pl a b c d --decoder-flags '-threads 2 -thread 3' --range=TM:0..1,-1..1", ["moses: -thread"]),
        ("filter-model-given-input.pl a b c -Binarizer 'CreateProbingPT --num-score 6'", ["CreateProbingPT: --num-score"]),
        ("CreateOnDiskPt 1 1 6 100 a b", ["CreateOnDiskPt: 6 values"]),
        ("x.pl a -Binarizer 'CreateOnDiskPt 1 1 6 100 2 a b'", ["CreateOnDiskPt in -Binarizer: 7 values"]),
        ("processPhraseTableMin -in a -out b -nscores 6 -rankscore 2 && rm --force a  # -x", []),
    ],
)
def test_other_options_are_noticed(text: str, wrong: list[str]) -> None:
    assert unknown_options(text) == wrong


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
