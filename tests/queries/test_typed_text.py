"""``--tokenize``: text as people write it becomes tokens of Moses, as the model knows them."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MakeModel, Run
from small_models import small_lm

from phrase_rescore.rnn.checkpoint import load, save

TOKENIZE = {"score": ["--tokenize", "en", "fr"], "generate": ["--tokenize", "en"], "embed": ["--tokenize", "en"]}


@pytest.fixture
def model(make_model: MakeModel) -> str:
    return make_model(source=(b"can", b"&apos;t", b"the", b"File", b"i", b"NATO", b"."), target=(b"l&apos;", b"eau", b"Nil"))


@pytest.mark.parametrize(("command", "typed", "tokens"), [
    ("generate", b"I can't open the File.\r\n", b"i can &apos;t open the File .\n"),
    ("generate", b"The  NATO [x]|y\n", b"the NATO &#91; x &#93; &#124; y\n"),
    ("embed", b"The NATO can't.\n", b"the NATO can &apos;t .\n"),
    ("score", b"The File ||| L'eau\n", b"the File ||| l&apos; eau\n"),
    ("score", b"Can't\tL'Eau Nil\n", b"can &apos;t\tl&apos; eau Nil\n"),
])  # fmt: skip
def test_typed_text_is_as_its_tokens(run: Run, model: str, command: str, typed: bytes, tokens: bytes) -> None:
    found = run(command, "-m", model, *TOKENIZE[command], stdin=typed)
    assert found.status == 0, found.err
    assert found.out == run(command, "-m", model, stdin=tokens).out


def test_a_language_model_scores_typed_text(run: Run, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    typed = run("score-lm", "-m", lm, "--tokenize", "en", "--per-word", stdin=b"The house.\n<s>\n")
    assert typed.out == run("score-lm", "-m", lm, "--per-word", stdin=b"the house .\n&lt; s &gt;\n").out


@pytest.mark.parametrize(("known", "typed", "tokens"), [
    ((b"a",), b"e-mail", b"e-mail"), ((b"@-@",), b"e-mail", b"e @-@ mail"),
    ((b"File", b"file", b"open"), b"Open File Zebra", b"open File Zebra"),
])  # fmt: skip
def test_dashes_and_case_are_those_that_the_model_knows(run: Run, make_model: MakeModel, known, typed, tokens) -> None:
    found = run("generate", "-m", make_model(source=known), "-n", 1, "--tokenize", "en", stdin=typed + b"\n")
    assert found.out.split(b"\t")[0] == tokens


def test_an_inverse_model_reads_typed_targets(run: Run, make_model: MakeModel, tmp_path: Path) -> None:
    forward = load(make_model(source=(b"l&apos;", b"eau"), target=(b"x",)))
    save(replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True), str(tmp_path))
    assert run("generate", "-m", tmp_path, "-n", 1, "--tokenize", "fr", stdin=b"L'eau\n").out.split(b"\t")[1] == b"l&apos; eau"


@pytest.mark.parametrize(("command", "line"), [("generate", b"\xff\n"), ("score", b"the\t\xff\n"), ("generate", b"a\tb\n")])
def test_a_bad_line_is_named(run: Run, model: str, command: str, line: bytes) -> None:
    bad = run(command, "-m", model, *TOKENIZE[command], stdin=line)
    assert bad.status == 1
    assert "<stdin>:1: " in bad.last_line


@pytest.mark.parametrize("languages", [("en", "xx"), ("xx", "en"), ("english", "fr"), ("", "fr")])
def test_an_unknown_language_is_not_taken_for_english(run: Run, model: str, languages: tuple[str, str]) -> None:
    refused = run("score", "-m", model, "--tokenize", *languages, stdin=b"a\tb\n")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, b"", 1)
    unknown = next(language for language in languages if language not in ("en", "fr"))
    assert f"--tokenize '{unknown}'" in refused.err
