"""evaluate --examples: a text of four segments, whose BLEU is worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from phrase_rescore.evaluation.examples import differing_regions
from phrase_rescore.moses.hypotheses import UsedPhrase

FILES = {
    "src": "a b c d\ne f\ng\nh i\n",
    "ref": "x y z t\nu v\nk\nm n\n",
    "base": "x |0-0| w |1-1| z t |2-3|\nu v |0-1|\nk |0-0|\nm |0-0| n |1-1|\n",
    "rnn": "x |0-0| y z |1-2| t |3-3|\nv |1-1| u |0-0|\nk |0-0|\nm |0-0| o |1-1|\n",
    "plain": "x y z t\nv u\nk\nm o\n",  # of rnn
}
SYSTEMS = ("--set", "test", "ref", "base=base", "rnn=rnn", "--metrics", "bleu", "--samples", "10")
# 35.36 = 100 (3/4 · 1/3 · 1/4 · 1/4)^(1/4): no 3-gram counts as 1/2 of one, then no 4-gram as 1/4. 50 = 100 √(1/2 · 1/2),
# 70.71 = 100 √(2/2 · 1/2): a segment of two words has no more than 2-grams.
TEXT = """
test, rnn against base: gained most

segment 1: BLEU 35.36 → 100.00
source      a b c d
reference   x y z t
base        x w z t
rnn         x y z t
base |1-3|  b → w | c d → z t
rnn |1-3|   b c → y z | d → t

test, rnn against base: lost most

segment 4: BLEU 100.00 → 50.00
source      h i
reference   m n
base        m n
rnn         m o
base |1-1|  i → n
rnn |1-1|   i → o
"""
SECOND = """
segment 2: BLEU 100.00 → 70.71
source      e f
reference   u v
base        u v
rnn         v u
base |0-1|  e f → u v
rnn |0-1|   f → v | e → u
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    return tmp_path


def examples(run: Run, *args: str) -> Any:
    result = run("evaluate", *args, "--samples", "10", "--format", "json", "-q")
    assert result.status == 0, result.err
    return json.loads(result.out)["sets"][0]["examples"]


def test_a_text_worked_out_by_hand(run: Run) -> None:
    without = run("evaluate", *SYSTEMS)
    for n, expected in (("1", TEXT), ("2", TEXT + SECOND)):
        result = run("evaluate", *SYSTEMS, "--examples", n, "--source", "src")
        assert (result.status, result.err) == (0, "")
        assert result.out.decode() == without.out.decode() + expected
    fenced = run("evaluate", *SYSTEMS, "--examples", "1", "--source", "src", "--format", "markdown").out.decode()
    assert fenced.endswith(f"\n```text\n{TEXT}\n```\n")


def test_outputs_without_phrases_have_the_same_figures(run: Run) -> None:
    by_phrases, plain = (
        examples(run, "--set", "t", "ref", "base=base", f"rnn={name}", "--examples", "9") for name in ("rnn", "plain")
    )
    region = {"first": 1, "last": 3, "baseline": [["", "w"], ["", "z t"]], "system": [["", "y z"], ["", "t"]]}
    (best,) = by_phrases["rnn"]["gained"]
    assert (best["source"], best["regions"]) == (None, [region])
    assert [example["segment"] for example in by_phrases["rnn"]["lost"]] == [4, 2]
    for example in by_phrases["rnn"]["gained"] + by_phrases["rnn"]["lost"]:
        example["regions"] = []
    assert plain == by_phrases


def test_every_system_is_compared_with_the_baseline(run: Run) -> None:
    """By the first of its runs, in the text that is scored."""
    Path("other").write_text(FILES["ref"].replace("m n", "m &apos;"))
    found = examples(run, "--set", "t", "ref,plain", "a=rnn,base", "b=other,rnn", "c=base", "--baseline", "b",
                     "--detokenize", "fr", "--examples", "1")  # fmt: skip
    assert list(found) == ["a", "c"]
    assert found["c"]["gained"][0]["outputs"] == ["m '", "m n"]
    assert found["c"]["gained"][0]["references"] == ["m n", "m o"]
    assert found["a"]["lost"] == []


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no BLEU": (["--metrics", "ter"], 2, "--metrics"),
    "one system": (["--set", "t", "ref", "a=base"], 2, "two systems"),
    "a source of two sets": (["--set", "u", "ref", "base=base", "rnn=rnn", "--source", "src"], 2, "--source"),
    "a source without examples": (["--examples", "0", "--source", "src"], 2, "--source"),
    "two streams": (["--source", "-", "--set", "t", "ref", "a=-", "b=base"], 2, "both '-', standard input"),
    "a short source": (["--source", "short"], 1, "short: 1 line"),
    "another source": (["--source", "other"], 1, "base:2: source word 2 ('f') is in no phrase"),
    "words without a span": (["--set", "t", "ref", "a=base", "b=cut"], 1, "cut:4: no |first-last| after 'o'"),
    "statistics": (["--set", "t", "ref", "a=base", "b=counts"], 2, "counts has statistics"),
}


@pytest.mark.parametrize(("args", "status", "named"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit(run: Run, args: list[str], status: int, named: str) -> None:
    Path("short").write_text("a b c d\n")
    Path("other").write_text(FILES["src"].replace("e f", "e f f"))
    Path("cut").write_text(FILES["rnn"].replace("o |1-1|", "o"))
    assert run("evaluate", "--set", "t", "ref", "b=base", "--statistics", "counts").status == 0
    sets = [] if args[:2] == ["--set", "t"] or "-" in args else ["--set", "t", "ref", "base=base", "rnn=rnn"]
    result = run("evaluate", "--examples", "2", *sets, *args)
    assert (result.status, result.out) == (status, b"")
    assert named in result.last_line


def test_the_smallest_regions() -> None:
    def used(text: str) -> tuple[UsedPhrase, ...]:
        return tuple(UsedPhrase(int(part[0]), int(part[1]), part[2:].encode()) for part in text.split())

    cases = [
        ("00a 12b 33c", "00a 12b 33c", []),
        ("12b 00a 33c", "00a 33c 12b", []),  # another order alone
        ("00a 12b 33c", "00x 12b 33y", [(0, 0), (3, 3)]),
        ("00a 12b 33c", "01x 22y 33c", [(0, 2)]),
        ("00a 11b 22c", "01x 22c", [(0, 1)]),
        ("03a", "22x 00y 11z 33w", [(0, 3)]),
        ("01a 23b", "00x 12y 33z", [(0, 3)]),
        ("", "", []),
    ]
    for one, other, expected in cases:
        assert [(region.first, region.last) for region in differing_regions(used(one), used(other), [])] == expected
