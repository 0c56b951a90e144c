"""evaluate --examples: a text of four segments, whose BLEU is worked out by hand."""

import json
from pathlib import Path

import pytest
from conftest import Run

FILES = {
    "src": "a b c d\ne f\ng\nh i\n",
    "ref": "x y z t\nu v\nk\nm n\n",
    "base": "x |0-0| w |1-1| z t |2-3|\nu v |0-1|\nk |0-0|\nm |0-0| n |1-1|\n",
    "rnn": "x y z t\nv u\nk\nm o\n",
}
SYSTEMS = ("--set", "test", "ref", "base=base", "rnn=rnn", "--metrics", "bleu", "--samples", "10")
# 35.36 = 100 (3/4 · 1/3 · 1/4 · 1/4)^(1/4): no 3-gram counts as 1/2 of one, then no 4-gram as 1/4. 50 = 100 √(1/2 · 1/2),
# 70.71 = 100 √(2/2 · 1/2): a segment of two words has no more than 2-grams.
TEXT = """
test, rnn against base: gained most

    segment 1: BLEU 35.36 → 100.00
    source     a b c d
    reference  x y z t
    base       x w z t
    rnn        x y z t

test, rnn against base: lost most

    segment 4: BLEU 100.00 → 50.00
    source     h i
    reference  m n
    base       m n
    rnn        m o
"""
SECOND = """
    segment 2: BLEU 100.00 → 70.71
    source     e f
    reference  u v
    base       u v
    rnn        v u
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    return tmp_path


def test_a_text_worked_out_by_hand(run: Run) -> None:
    without = run("evaluate", *SYSTEMS)
    for n, expected in (("1", TEXT), ("2", TEXT + SECOND)):
        result = run("evaluate", *SYSTEMS, "--examples", n, "--source", "src")
        assert (result.status, result.err) == (0, "")
        assert result.out.decode() == without.out.decode() + expected


def test_every_system_is_compared_with_the_baseline(run: Run) -> None:
    """By the first of its runs, in the text that is scored."""
    Path("other").write_text(FILES["ref"].replace("m n", "m &apos;"))
    args = ["--set", "t", "ref,rnn", "b=other,rnn", "a=rnn,base", "c=base", "--detokenize", "fr", "--examples", "1"]
    args += ["--set", "u", "ref", "b=base"]  # where nothing is compared
    result = run("evaluate", *args, "--samples", "10", "--format", "json", "-q")
    assert result.status == 0, result.err
    found = json.loads(result.out)["sets"][0]["examples"]
    assert list(found) == ["a", "c"]
    best = found["c"]["gained"][0]
    assert (best["source"], best["outputs"], best["references"]) == (None, ["m '", "m n"], ["m n", "m o"])
    assert found["a"]["lost"] == []


def test_equal_changes_stand_in_the_order_of_the_text(run: Run) -> None:
    Path("copy").write_text(FILES["ref"])
    Path("twice").write_text(FILES["ref"].replace("u v", "v u").replace("m n", "n m"))
    for systems in (["a=twice", "b=copy"], ["a=copy", "b=twice"]):
        shown = run("evaluate", "--set", "t", "ref", *systems, "--examples", "2", "--samples", "10").out.decode()
        assert [line.split(":")[0].strip() for line in shown.splitlines() if "→" in line] == ["segment 2", "segment 4"]


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no BLEU": (["--metrics", "ter"], 2, "--metrics"),
    "one system": (["--set", "t", "ref", "a=base"], 2, "two systems"),
    "a source of two sets": (["--set", "u", "ref", "base=base", "rnn=rnn", "--source", "src"], 2, "--source"),
    "a source without examples": (["--examples", "0", "--source", "src"], 2, "--source"),
    "two streams": (["--source", "-", "--set", "t", "ref", "a=-", "b=base"], 2, "both '-', standard input"),
    "a short source": (["--source", "short"], 1, "short: 1 line"),
    "words without a span": (["--set", "t", "ref", "a=base", "b=cut"], 1, "cut:4: no |first-last| after 'n'"),
    "statistics": (["--set", "t", "ref", "a=base", "b=counts"], 2, "counts has statistics"),
}


@pytest.mark.parametrize(("args", "status", "named"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit(run: Run, args: list[str], status: int, named: str) -> None:
    Path("short").write_text("a b c d\n")
    Path("cut").write_text(FILES["base"].replace("n |1-1|", "n"))
    assert run("evaluate", "--set", "t", "ref", "b=base", "--statistics", "counts").status == 0
    sets = [] if args[:2] == ["--set", "t"] or "-" in args else ["--set", "t", "ref", "base=base", "rnn=rnn"]
    result = run("evaluate", "--examples", "2", *sets, *args)
    assert (result.status, result.out) == (status, b"")
    assert named in result.last_line
