"""Kinds of files, recognized by their first rows or their names."""

from pathlib import Path

import pytest
from conftest import Run

from phrase_rescore.errors import InputError
from phrase_rescore.moses.file_kinds import DESCRIBED, KINDS, LIST, PAIRS, TEXT, check_kind, check_name, kind_of_file
from phrase_rescore.moses.file_kinds import TABLE as TABLES

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
                   b"".join(b"a ||| b ||| 0.%d 0.%d 0.3 0.7\n" % (i, 10 - i) for i in range(1, 6))],
    "orientations": [b"a ||| b ||| mono swap\n", b"a ||| b ||| other other | mono mono\n".replace(b" | ", b" ")],
    "alignments": [b"0-0 1-1 2-3\n", b"# Sentence pair (1) source length 2\na b\nNULL ({ }) a ({ 1 }) b ({ 2 })\n" * 3],
    "extract": [b"a b ||| c ||| 0-0 1-0\r\n", b"a ||| b ||| 0-0 ||| 17 ||| 0.5\n", b"1-1 ||| 0.5 ||| 0-0\n"],
    "half": [b"a ||| b ||| 0-0 ||| 0.5 0.25 ||| 2 1\n", b"a ||| b |||  ||| 0.85 ||| 2 1\n"],
    "lexicon": [b"das the 0.5\nhaus house 0.25\n"],
    "vocabulary": [b"the\t17\n"],
    "vectors": [b"2 3\nthe 0.5 1 2\nhouse 1 2 3\n", b"the house\t0.5\t-1\t2e-3\n"],
    "tsv": [b"the house\tdas haus\n", b"0-0\t0.5\r\n", b"a || b\tc\n"],
    "bitext": [b"the house ||| das haus\n"],
    "ini": [b"# comment\n[input-factors]\n0\n\n[feature] # more\nKENLM name=LM0\n"],
    "utf-16": ["the house\n".encode("utf-16"), TABLE.decode().encode("utf-16")],
    "sgml": [b'<seg id="1"> a house </seg>\n', b'<?xml version="1.0"?>\n<!DOCTYPE tmx>\n<tu>\n', b"<DOC>\n</DOC>\nb\n"],
    "json": [b'{"id": 0, "text": "a house"}\n', b'  { "a": "b" },\n'],
    "fairseq": [b"S-0\ta house\nH-0\t-0.3\tein haus\nP-0\t-0.1 -0.2\n", b"H-0\t-0.3\tein haus\n"],
    "mac": [b"a house\ra small house\ra\r\n", b"a ||| b ||| 1\ra ||| c ||| 1\r\n"],
    "arpa": [b"\n\\data\\\nngram 1=3\n\n\\1-grams:\n-1 a -0.3\n"],
    "binary": [b"\x00\x01\xff\n" * 3],
    "text": [b"<unk> a\n<s> a </s>\n<2de> a\n<p> a\n", b"a\rb\nc\nd\n", b"a\r\r\nb\r\r\n",
             b"This is a sentence .\nAnd one more , with 0-0 .\n", b"-3.2\t0\n", b"a b\n[feature]\n"],
    "table": [TABLE, b"0 ||| 0 ||| 0.5\n", b"a ||| b ||| 1 ||| ||| 1 1 1\r\n",
              b"a ||| b ||| 0.5 0.5\n", b"a ||| \r |||0.4\n", b"a ||| b ||| 0.5 0.3 0.25\n", b"a ||| b ||| 1e-5 1e-6 1\n",
              b"[x] a ||| b ||| 1\n" + TABLE, b"1 ||| a b c ||| 0.5\n",
              b"a ||| b ||| 0.25 0.25 0.25 0.25\n" * 9, b"a ||| b ||| 1 1 1 1 2.718\n", b"1 ||| a=1 ||| 0.5 0.5 ||| 0-0\n"],
}  # fmt: skip
CASES = [pytest.param(kind, data, id=f"{kind}-{i}") for kind, files in FILES.items() for i, data in enumerate(files)]


READERS = {  # what they take, and a command
    "annotate": (TABLES, "annotate {file} -m {model} -o {out}"),
    "train": (PAIRS, "train {file} -m {out} --max-steps 1"),
    "train-lm": (TEXT, "train-lm {file} -m {out} --max-steps 1"),
    "train-nmt": (TEXT, "train-nmt {file} {file} -m {out} --max-steps 1"),
    "rescore": (LIST, "rescore {file} --scores {file} -o {out}"),
    "info": (DESCRIBED, "info {file}"),
}


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_files_are_told_apart(run: Run, model_dir: str, tmp_path: Path, kind: str, data: bytes) -> None:
    """And refused in one line, with what the reader takes and who takes the file."""
    assert kind_of_file(data.split(b"\n")[:-1]) == kind
    path = tmp_path / "file"
    path.write_bytes(data)
    for wanted, command in READERS.values():
        if kind in wanted.kinds or (kind == "ini" and wanted is DESCRIBED):
            continue
        refused = run(*command.format(file=path, model=model_dir, out=tmp_path / "out").split())
        assert (refused.status, refused.out) == (1, b"")
        assert refused.last_line.startswith(f"phrase-rescore: error: {path}: looks like {KINDS[kind].what}; pass {wanted.what}")
        assert KINDS[kind].advice in refused.last_line
        assert not (tmp_path / "out").exists()


def test_the_kinds_of_files_are_tried() -> None:
    assert {*FILES, "inverse"} == KINDS.keys()


def test_a_text_may_have_odd_lines(tmp_path: Path) -> None:
    """Up to half of them; a table's rows count more, since lines without fields may be damage."""
    odd = [b"the 0.5\t3\n"] * 5
    text = [b"a sentence .\n"] * 5
    assert check_kind("x", text + odd, TEXT) == "text"
    with pytest.raises(InputError):
        check_kind("x", [*text, *odd, odd[0]], TEXT)
    assert kind_of_file([b"rubbish"] * 89 + [TABLE] * 10) == "table"
    assert kind_of_file([b"a sentence ."] * 90 + [TABLE] * 10) == "text"
    assert kind_of_file([TABLE] * 100 + [b"a sentence ."] * 9900) == "table", "the first rows decide"


@pytest.mark.parametrize("name", [
    "phrase-table.half.f2e.gz", "table.half.gz", "extract.o.sorted.gz", "extract.o", "extract.inv.sorted.gz",
])  # fmt: skip
def test_refused_by_name(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"a ||| b ||| 0-0\n")
    line = run("train", path, "-m", tmp_path / "new").last_line
    assert line.startswith(f"phrase-rescore: error: {path}: has the name of ")
    assert PAIRS.what in line


@pytest.mark.parametrize("name", [
    "-", "phrase-table.gz", "extract.sorted.gz", "extract.100k.gz", "extract.old.gz", "extract.invoices", "half.gz",
    "model.inv.d/extract.sorted.gz", "extract.o.d/table.gz", "invented.txt",
])  # fmt: skip
def test_names_that_are_fine(name: str) -> None:
    check_name(name, PAIRS)
