"""score-lm: every line against a loop over its words, and the totals as KenLM's query counts them."""

import math
from pathlib import Path

import pytest
import torch
from conftest import Run
from small_models import language_model, scaled, small_lm

from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.lm.checkpoint import save

TEXT = b"the house .\n\na zebra b\n  the\t house  \r\n\xff \x00 UNK <unk>\nhouse"


@pytest.fixture
def lm(tmp_path: Path) -> Path:
    return small_lm(tmp_path / "lm")


def steps(words: list[bytes]) -> list[float]:
    model, vocab = language_model().model, language_model().vocab
    ids = [*vocab.encode(words).tolist(), EOS]
    places = model.config.order - 1
    found = []
    for i, word in enumerate(ids):
        context = ([EOS] * places + ids[:i])[-places:]
        found.append(-model(torch.tensor([context]), torch.tensor([word])).item())
    return found


def test_lines_in_lines_out(run: Run, lm: Path) -> None:
    result = run("score-lm", "-", "-m", lm, "--per-word", "--digits", 12, stdin=TEXT)
    assert result.status == 0, result.err
    lines = result.out.split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == 6
    total, tokens, unknown, known = 0.0, 0, 0, 0.0
    for line, sentence in zip(lines, TEXT.split(b"\n"), strict=True):
        words = [word for word in sentence.rstrip(b"\r").replace(b"\t", b" ").split(b" ") if word]
        expected = steps(words)
        log_p, n, per_word = line.split(b"\t")
        pairs = per_word.split(b" ")
        assert pairs[::2] == [*words, b"</s>"]
        assert [float(x) for x in pairs[1::2]] == pytest.approx(expected, abs=1e-5)
        assert float(log_p) == pytest.approx(sum(expected), abs=1e-5)
        ids = language_model().vocab.encode(words).tolist()
        assert int(n) == ids.count(UNK)
        total, tokens, unknown = total + sum(expected), tokens + len(expected), unknown + ids.count(UNK)
        known += sum(p for p, i in zip(expected, [*ids, EOS], strict=True) if i != UNK)
    warning, *lines_told = result.err.splitlines()
    assert warning.startswith(f"phrase-rescore: warning: {unknown / (tokens - 6):.1%} of the words are unknown")
    told = dict(line.removeprefix("phrase-rescore: ").split(": ") for line in lines_told)
    assert (int(told["Tokens"]), int(told["OOVs"])) == (tokens, unknown)
    assert float(told["Perplexity including OOVs"]) == pytest.approx(math.exp(-total / tokens), rel=1e-5)
    assert float(told["Perplexity excluding OOVs"]) == pytest.approx(math.exp(-known / (tokens - unknown)), rel=1e-5)


def test_marks_of_sentences_are_left_out(run: Run, lm: Path) -> None:
    texts = (b"the house\na\n", b"<s> the house </s>\na </s>\n")
    plain, marked = (run("score-lm", "-", "-m", lm, stdin=text) for text in texts)
    assert marked.out == plain.out
    warning, rest = marked.err.split("\n", 1)
    assert ("warning: " in warning, "2 sentences" in warning, rest) == (True, True, plain.err)
    refused = run("score-lm", "-", "-m", lm, stdin=b"a\na </s> <s> b\n")
    assert (refused.status, refused.out.count(b"\n")) == (1, 1)
    assert "<stdin>:2: '</s>' between words" in refused.err


def test_a_file_is_as_standard_input(run: Run, lm: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(TEXT)
    assert run("score-lm", tmp_path / "text", "-m", lm) == run("score-lm", "-m", lm, stdin=TEXT)
    at_once, flushed = (run("score-lm", "-m", lm, *more, stdin=TEXT).out.split() for more in ((), ("--flush",)))
    assert list(map(float, flushed)) == pytest.approx(list(map(float, at_once)), abs=1e-4)


def test_no_text(run: Run, lm: Path) -> None:
    result = run("score-lm", "-m", lm)
    assert (result.status, result.out) == (0, b"")
    assert "Tokens: 0" in result.err


@pytest.mark.parametrize(("scale", "line", "told"), [(1, 0, ""), (30, 0, "log p of a word is "), (1e38, 1, "<stdin>:1: ")])
def test_a_model_whose_training_diverged(run: Run, tmp_path: Path, scale: float, line: int, told: str) -> None:
    """Its perplexity may have hundreds of digits, or be more than a number can be."""
    lm = language_model()
    scaled(lm.model, scale)
    save(lm, str(tmp_path))
    done = run("score-lm", "-m", tmp_path, stdin=b"the house\n")
    assert done.status == (1 if line else 0)
    found = next((text for text in done.err.splitlines() if "--learning-rate" in text), "")
    assert (bool(found), told in found) == (bool(told), True)


def test_the_line_of_a_score_that_is_not_finite(run: Run, tmp_path: Path) -> None:
    lm = language_model(tied=False)
    lm.model.embedding.data[lm.vocab.ids[b"house"]] = 3e38
    save(lm, str(tmp_path))
    text = b"the a\n" * 3 + b"the house\na\n"
    for more, before in (([], 0), (["--flush"], 3)):
        refused = run("score-lm", "-m", tmp_path, *more, stdin=text)
        assert (refused.status, refused.out.count(b"\n")) == (1, before)
        assert "<stdin>:4: " in refused.last_line
