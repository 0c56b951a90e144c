"""evaluate is given files that are not what they should be: another text, other formats, copies."""

import json
import os
import random
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Run
from random_outputs import changed, sentences, write_lines

from phrase_rescore.evaluation.corpora import SetFiles
from phrase_rescore.evaluation.metrics import Metric
from phrase_rescore.evaluation.run import evaluate

Lines = list[list[str]]
BLEU = ["--metrics", "bleu", "--samples", "50", "-q"]


def foreign(lines: Lines) -> Lines:
    """Make sentences of other words, with the same punctuation."""
    return [[word if word in (",", ".") else f"x{word}" for word in line] for line in lines]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lines:
    """A reference of 120 segments, two systems and the source; return the reference."""
    monkeypatch.chdir(tmp_path)
    reference = sentences(1, 120)
    texts = {
        "ref": reference,
        "base": changed(reference, 0.3, 2),
        "new": changed(reference, 0.25, 3),
        "src": foreign(reference),
    }
    for name, lines in texts.items():
        write_lines(Path(name), lines)
    return reference


def spans(lines: Lines) -> list[str]:
    return [" ".join(f"{word} |{i}-{i}|" for i, word in enumerate(line)) for line in lines]


OTHERS: dict[str, tuple[Callable[[Lines], Lines], str, str]] = {  # a file, the words of the set, which file is named
    "the source as reference": (foreign, "file a=base b=new", "file: 0% of its words"),
    "a reference of another text": (lambda ref: sentences(9, len(ref)), "file a=base", "base: "),
    "an output of another text": (lambda ref: sentences(9, len(ref)), "ref a=base b=file", "file: "),
    "another text as second reference": (lambda ref: sentences(9, len(ref)), "ref,file a=base", "file: "),
    "a line too many at the beginning": (lambda ref: [["x"], *ref[:-1]], "ref a=base b=file", "file: "),
    "a line too few in the middle": (lambda ref: [*ref[:70], *ref[71:], ["x"]], "ref a=base b=file", "file: "),
    "an output as reference": (lambda ref: [line.split() for line in spans(ref)], "file a=base", "file: what moses -t"),
    "an output in the words of the source": (foreign, "ref a=base b=file", "file: 0% of its words"),
    "the source in most lines": (
        lambda ref: [*foreign(ref[:72]), *ref[72:]], "ref a=base b=file --examples 1 --source src", "file: 72 of 120 lines"
    ),
    "a source of another text": (
        lambda ref: foreign(sentences(9, len(ref))), "ref a=base b=new --examples 1 --source file", "file: lengths"
    ),
    "a reference like the source": (lambda ref: ref, "file a=base b=new --examples 1 --source ref", "file: 120 of 120 lines"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "words", "named"), OTHERS.values(), ids=OTHERS)
def test_other_texts_are_doubted(run: Run, here: Lines, make: Callable[[Lines], Lines], words: str, named: str) -> None:
    write_lines(Path("file"), make(here))
    refused = run("evaluate", "--set", "t", *words.split(), *BLEU)
    assert (refused.status, refused.out) == (1, b"")
    assert f"error: {named}" in refused.last_line
    assert "--force" in refused.last_line
    forced = run("evaluate", "--set", "t", *words.split(), *BLEU, "--force")
    assert forced.status == 0
    assert f"warning: {named}" in forced.err


def words_of(most: int, kept: float, names: int) -> dict[str, list[str]]:
    """A reference of at most so many words a line, an output that has a share of them; names in Latin letters end lines."""
    chance = random.Random(1)
    texts: dict[str, list[str]] = {"ref": [], "base": []}
    for i in range(300):
        drawn = chance.choices(range(600), k=2 * most)
        known = [chr(0x4E00 + n) if names else chr(0x430 + n // 20) + chr(0x430 + n % 20) for n in drawn]
        line = known[: chance.randint(1, most)]
        changed = [word if chance.random() < kept else other for word, other in zip(line, known[most:], strict=False)]
        for name, words in (("ref", line), ("base", changed)):
            texts[name].append(" ".join([*words, *[f"{name}xyz"] * (i < names)]))
    return texts


@pytest.mark.parametrize(("most", "kept", "names"), {
    "a word a line": (1, 0.6, 0), "a bad system": (9, 0.2, 0), "Latin names in Chinese": (30, 0.6, 150),
}.values())  # fmt: skip
def test_what_is_related_is_not_doubted(run: Run, most: int, kept: float, names: int) -> None:
    for name, lines in words_of(most, kept, names).items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    done = run("evaluate", "--set", "t", "ref", "a=base", *BLEU)
    assert (done.status, done.err) == (0, "")


def test_text_that_is_corrected_may_stay_as_it_is(run: Run, here: Lines) -> None:
    """Nothing done, as a baseline; a reference that leaves most lines as they are."""
    write_lines(Path("mended"), [line if i % 5 else [*line, "x"] for i, line in enumerate(here)])
    args = ("--set", "t", "mended", "a=ref", "b=base", "--examples", "1", "--source", "ref")
    done = run("evaluate", *args, *BLEU)
    assert (done.status, done.err) == (0, "")


def test_few_words_are_not_judged(run: Run) -> None:
    for name, first in (("some", "a b c d e"), ("others", "v w x y z")):
        Path(name).write_text(f"{first}\n" * 15)
    assert run("evaluate", "--set", "t", "some", "a=others", *BLEU).err == ""


def test_statistics_are_doubted_too(run: Run) -> None:
    assert run("evaluate", "--set", "t", "src", "a=base", *BLEU, "--force", "--statistics", "counts").status == 0
    refused = run("evaluate", "--set", "t", "a=counts", *BLEU)
    assert (refused.status, "error: counts: BLEU" in refused.last_line) == (1, True)


FORMATS: dict[str, Callable[[str, int], str]] = {  # what of a line and its number makes another format
    "SGML": lambda line, i: f'<seg id="{i}"> {line} </seg>',
    "XML": lambda line, i: f'      <seg id="{i}">{line}</seg>',
    "fairseq": lambda line, i: f"H-{i}\t-0.25\t{line}",
    "JSON": lambda line, i: json.dumps({"id": i, "text": line}),
    "an n-best list": lambda line, i: f"{i} ||| {line} ||| LM0= -3 ||| -7.5",
    "a phrase table": lambda line, i: f"{line} ||| {line} ||| 0.5 0.5 1 1",
    "both languages": lambda line, i: f"{line} ||| {line}",
    "two columns": lambda line, i: f"{line}\t{line}",
}


@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_other_formats_are_refused(run: Run, here: Lines, make: Callable[[str, int], str]) -> None:
    Path("file").write_text("".join(make(" ".join(line), i) + "\n" for i, line in enumerate(here)))
    for words in ("ref a=file", "file a=base", "ref,file a=base"):
        refused = run("evaluate", "--set", "t", *words.split(), *BLEU)
        assert (refused.status, refused.out) == (1, b"")
        assert "error: file: looks like" in refused.last_line


def in_pieces(begin: str, end: str, first: str = "") -> Callable[[Sequence[str]], str]:
    """Return what cuts words into their first letter and the rest."""
    return lambda line: " ".join(f"{first}{word[0]}{end} {begin}{word[1:]}" if word[1:] else first + word for word in line)


MARKED: dict[str, tuple[Callable[[Sequence[str]], str], str]] = {  # what writes a line, and what is named
    "BPE": (in_pieces("", "@@"), "s/@@"),
    "SentencePiece": (in_pieces("", "", "▁"), "s/▁"),
    "WordPiece": (in_pieces("##", ""), "s/ ##"),
    "joiners": (in_pieces("￭", ""), "￭"),
    "factors": (lambda line: " ".join(f"{word}|N|{word.lower()}" for word in line), "factors"),
    "accents": (lambda line: unicodedata.normalize("NFD", " ".join(line)), "accents"),
    "Latin-1": (lambda line: " ".join(line).encode().decode("latin-1"), "Latin-1"),
    "escaped twice": (lambda line: " ".join(line).replace("&", "&amp;"), "escapes"),
    "numbers": (lambda line: f"{len(line)} {' '.join(line)}", "number"),
    "scores": (lambda line: f"{' '.join(line)} -{len(line)}.5", "number after"),
    "sentence marks": (lambda line: f"<s> {' '.join(line)} </s>", "</s>"),
    "languages": (lambda line: f">>fr<< {' '.join(line)}", "marks at the ends"),
    "unknown words": (lambda line: " ".join("<unk>" if word == "chat" else word for word in line), "<unk>"),
}


@pytest.mark.parametrize(("write", "named"), MARKED.values(), ids=MARKED)
def test_marks_in_text_are_named(run: Run, write: Callable[[Sequence[str]], str], named: str) -> None:
    for name in ("ref", "base"):
        lines = Path(name).read_text("utf-8").splitlines()
        Path(name).write_text("".join(f"{write(line.split())}\n" for line in lines), "utf-8")
    both = run("evaluate", "--set", "t", "ref", "a=base", *BLEU)
    assert (both.status, both.err.count("\n")) == (0, 1), both.err
    assert "warning: ref, base: it has " in both.err
    assert named in both.err


ODD = [
    "a | b", "a || b ||", "see |||", "- 0-0 |", "x @-@ y", "me @@ 1,2 @@", "me@@you", "## title", "<seg> is a tag", "1 2 3",
    "H-0 bomb", "\ta", "|0-3| is a span", "a\tb", "<unk> , he said", "▁",
]  # fmt: skip


def test_odd_lines_are_text(run: Run, here: Lines) -> None:
    """Bars, at signs and numbers, each in some lines."""
    lines = [[*line, *ODD[i % len(ODD)].split(" ")] for i, line in enumerate(here)]
    write_lines(Path("odd"), lines)
    done = run("evaluate", "--set", "t", "odd", "a=odd", *BLEU)
    assert (done.status, done.err.count("warning")) == (0, 1)
    assert "it is the text of the reference odd" in done.err


def test_capitals(run: Run) -> None:
    texts = {"plain": Path("base").read_text("utf-8").lower(), "upper": Path("base").read_text("utf-8").upper()}
    for name, text in {"cased": Path("ref").read_text("utf-8").title(), **texts}.items():
        Path(name).write_text(text, "utf-8")
    for reference, output in (("cased", "plain"), ("plain", "cased"), ("plain", "upper")):
        warned = run("evaluate", "--set", "t", reference, f"a={output}", *BLEU, "--force")
        assert f"warning: {output}: it has " in warned.err
        assert "--lowercase" in warned.err
        assert run("evaluate", "--set", "t", reference, f"a={output}", *BLEU, "--force", "--lowercase").err == ""


def p_of(run: Run, base: str, new: str) -> float:
    done = run("evaluate", "--set", "t", "ref", f"base={base}", f"new={new}", *BLEU, "--format", "json")
    (found,) = json.loads(done.out)["sets"]
    assert found["noise"] == {}
    assert done.err.count("both count as one run") == base.count(",") + new.count(",")
    return float(found["systems"][1]["scores"]["BLEU"]["p_randomization"])


@pytest.mark.parametrize("copy", ["text", "link", "statistics"])
def test_equal_runs_count_once(run: Run, copy: str) -> None:
    for name in ("base", "new"):
        if copy == "link":
            Path(f"{name}2").symlink_to(name)
        elif copy == "text":
            Path(f"{name}2").write_text(Path(name).read_text("utf-8").replace(" \n", "\n"), "utf-8")
        else:
            written = run("evaluate", "--set", "t", "ref", f"a={name}", *BLEU, "--statistics", f"{name}2")
            assert written.status == 0
    assert p_of(run, "base,base2", "new,new2") == p_of(run, "base", "new")
    assert p_of(run, "base2", "new2,new") == p_of(run, "base", "new")


def test_a_byte_order_mark_is_left_out(run: Run) -> None:
    expected = run("evaluate", "--set", "t", "ref", "a=base", *BLEU)
    for name in ("ref", "base"):
        Path(name).write_bytes(b"\xef\xbb\xbf" + Path(name).read_bytes())
        assert run("evaluate", "--set", "t", "ref", "a=base", *BLEU) == expected


def test_alignments_are_left_out(run: Run) -> None:
    expected = run("evaluate", "--set", "t", "ref", "a=base", *BLEU)
    lines = Path("base").read_text("utf-8").splitlines()
    Path("base").write_text("".join(f"{line}||| 0-0 1-1 \n" for line in lines), "utf-8")
    assert run("evaluate", "--set", "t", "ref", "a=base", *BLEU) == expected


def test_the_stem_of_several_references(run: Run) -> None:
    for name in ("stem0", "stem1"):
        Path(name).write_bytes(Path("ref").read_bytes())
    refused = run("evaluate", "--set", "t", "stem", "a=base", *BLEU)
    assert (refused.status, "stem0,stem1" in refused.last_line) == (1, True)


@pytest.mark.parametrize("words", ["pipe a=pipe", "ref a=pipe b=link", "ref a=pipe --set u ref a=pipe"])
def test_a_pipe_is_read_once(run: Run, words: str) -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    refused = run("evaluate", "--set", "t", *words.split(), *BLEU)
    assert (refused.status, "pipe" in refused.last_line) == (2, True)


def test_equal_translations_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two systems too."""
    calls, count = [], Metric.segment_counts

    def counted(self: Metric, segment: int, text: str) -> list[float]:
        calls.append(segment)
        return count(self, segment, text)

    monkeypatch.setattr(Metric, "segment_counts", counted)
    Path("copy").write_bytes(Path("base").read_bytes())
    systems = {"a": ("base",), "b": ("copy",)}
    evaluate([SetFiles("t", ("ref",), systems)], metrics=("bleu", "ter"), samples=10)
    assert len(calls) == 2 * 120
