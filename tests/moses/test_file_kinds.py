"""Files that are no phrase tables are told by their first rows."""

from pathlib import Path

import pytest
from conftest import Run

from phrase_rescore.moses.file_kinds import KINDS, kind_of_file

TABLE = b"a b ||| c ||| 0.5 0.25 0.25 0.1 ||| 0-0 ||| 1 1 1 ||| |||\n"
FILES = {
    "rules": [b"[X][X] a [X] ||| [X][X] b [X] ||| 0.5 0.1 ||| 0-0 1-1 ||| 1 1 1\n",
              b"[X] ||| a [X,1] ||| b [X,1] ||| f=0.5 ||| 0-0\n",
              b"[S] ||| a ||| b ||| 0 -1.5\n", b"a [X] ||| b [NP] ||| 1 ||| 0-0\n" * 3 + TABLE * 2],
    "nbest": [b"0 ||| a b c  ||| LM0= -3 TM0= -1 -2 ||| -7.5\n", b"0 ||| a ||| lm_0=-3.2 tm=1 ||| -3\n",
              b"0 ||| a b  ||| d: 0 -1.5 lm: -36.1 w: -2 ||| -16.9\n",
              b"0 ||| a b ||| -1.2 -3 ||| -4.2\n",
              b"0 ||| a b ||| 0-0 1-1 ||| F0= -1.6 ||| -1.6\n", b"0 ||| a b c d e ||| 1.5\n1 ||| f g h i ||| 2\n",
              b"-3.2 ||| a b ||| lm_0=-3.2 ||| 0-0\n", b"a b ||| tm_0=1.0 lm_0=-2 ||| -3\n"],
    "reordering": [b"a ||| b ||| 0.6 0.2 0.2 0.714286 0.028571 0.257143\n", b"a ||| b ||| 0.2 0.2 0.6\n",
                   b"a ||| b ||| 0.1 0.2 0.3 0.4 0.25 0.25 0.25 0.25\n" * 2, b"a ||| 0.6 0.2 0.2\n",
                   b"".join(b"a ||| b ||| 0.%d 0.%d 0.3 0.7\n" % (i, 10 - i) for i in range(1, 9))],
    "orientations": [b"a ||| b ||| mono swap\n", b"a ||| b ||| other other | mono mono\n".replace(b" | ", b" ")],
    "alignments": [b"0-0 1-1 2-3\n", b"# Sentence pair (1) source length 2\na b\nNULL ({ }) a ({ 1 }) b ({ 2 })\n" * 3],
    "extract": [b"a b ||| c ||| 0-0 1-0\n"],
    "half": [b"a ||| b ||| 0-0 ||| 0.5 0.25 ||| 2 1\n", b"a ||| b |||  ||| 0.85 ||| 2 1\n"],
    "lexicon": [b"das the 0.5\nhaus house 0.25\n"],
    "vocabulary": [b"the\t17\n"],
    "vectors": [b"2 3\nthe 0.5 1 2\nhouse 1 2 3\n", b"the house\t0.5\t-1\t2e-3\n"],
    "tsv": [b"the house\tdas haus\n"],
    "bitext": [b"the house ||| das haus\n"],
    "ini": [b"# comment\n[input-factors]\n0\n\n[feature]\nKENLM name=LM0\n"],
    "arpa": [b"\n\\data\\\nngram 1=3\n\n\\1-grams:\n-1 a -0.3\n"],
    "binary": [b"\x00\x01\xff\n" * 3],
    "text": [b"This is a sentence .\nAnd one more , with 0-0 .\n"],
    "table": [TABLE, b"0 ||| 0 ||| 0.5\n", b"a ||| b ||| 0.5 0.5\n", b"a ||| b ||| 1e-5 1e-6 1\n",
              b"[x] a ||| b ||| 1\n" + TABLE * 2,
              b"rubbish\n" * 3 + TABLE,
              b"a ||| b ||| 0.25 0.25 0.25 0.25\n" * 9, b"a ||| b ||| 1 1 1 1 2.718\n", b"1 ||| a=1 ||| 0.5 0.5 ||| 0-0\n"],
}  # fmt: skip
CASES = [pytest.param(kind, data, id=f"{kind}-{i}") for kind, files in FILES.items() for i, data in enumerate(files)]


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_files_are_told_apart(run: Run, model_dir: str, tmp_path: Path, kind: str, data: bytes) -> None:
    """And refused in one line by annotate, and by train unless it can read them."""
    assert kind_of_file(data.split(b"\n")[:-1]) == kind
    if kind == "table":
        return
    (tmp_path / "file").write_bytes(data)
    said = f"phrase-rescore: error: {tmp_path}/file: looks like {KINDS[kind]}; pass a phrase table"
    refused = run("annotate", tmp_path / "file", "-m", model_dir, "-o", tmp_path / "out")
    assert refused == (1, b"", f"{said}\n")
    if kind not in ("extract", "tsv", "bitext", "half", "text"):
        refused = run("train", tmp_path / "file", "-m", tmp_path / "new", "--max-steps", 1)
        assert (refused.status, refused.out, refused.last_line) == (1, b"", f"{said}, an extract file or TSV")


def test_the_kinds_of_files_are_tried() -> None:
    assert FILES.keys() == KINDS.keys()


def test_pairs_without_scores_are_to_become_tsv(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bitext").write_text("the house ||| das haus\n")
    found = run("train", tmp_path / "bitext", "-m", tmp_path / "new").last_line
    assert found.endswith(r"looks like pairs 'source ||| target' without scores; write TSV: sed 's/ *||| */\t/'")
