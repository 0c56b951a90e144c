"""``phrase-rescore embed``: words and lines in; vectors out."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, SOURCE_WORDS, TARGET_WORDS, Run
from small_models import by_the_oracle
from word2vec import word2vec

from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.scorer import BATCH, PhraseEncoder

ROUNDING = 1e-5


@pytest.fixture(scope="module")
def phrases() -> list[bytes]:
    """More than are read at once, all of them distinct, some with unknown words."""
    rng = np.random.default_rng(1)
    some = (*SOURCE_WORDS, b"unheard-of", b"_")
    drawn = {b" ".join(rng.choice(np.array(some, object), rng.integers(1, 6)).tolist()) for _ in range(4000)}
    assert len(drawn) > BATCH + 100
    return sorted(drawn, key=lambda phrase: phrase + b"\t")


def lines_of(phrases: list[bytes]) -> bytes:
    return b"".join(phrase + b"\n" for phrase in phrases)


def columns(out: bytes) -> list[list[bytes]]:
    return [line.split(b"\t") for line in out.split(b"\n")[:-1]]


def test_vectors_are_those_of_the_model(run: Run, model_dir: str, phrases: list[bytes], tmp_path: Path) -> None:
    given = columns(run("embed", "-m", model_dir, stdin=lines_of(phrases)).out)
    assert [row[0] for row in given] == phrases
    vectors = np.array([row[1:] for row in given], float).astype(np.float32)
    np.testing.assert_array_equal(vectors, PhraseEncoder(load(model_dir)).vectors(phrases))
    np.testing.assert_allclose(vectors[::37], by_the_oracle(load(model_dir), phrases[::37]), atol=ROUNDING)
    done = run("embed", "-m", model_dir, "-o", tmp_path / "c.vec", stdin=lines_of(phrases[:9]))
    assert done.err.splitlines()[0] == "phrase-rescore: 9 vectors of 7 numbers"
    found = word2vec(tmp_path / "c.vec")
    np.testing.assert_allclose(found.vectors, vectors[:9], atol=ROUNDING)


def test_an_inverse_and_factored_model_reads_that_factor_of_targets(run: Run, model_dir: str, tmp_path: Path) -> None:
    forward = load(model_dir)
    inverse = replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True, factors=(3, 1))
    inverse = replace(inverse, unk_shares=(0.1, 0.0))
    (tmp_path / "model").mkdir()
    save(inverse, str(tmp_path / "model"))
    done = run("embed", "-m", tmp_path / "model", stdin=b"a|old\nb|the c|house\n")
    assert "no target word was unknown" in done.err
    found = columns(done.out)
    assert [row[0] for row in found] == [b"old", b"the house"]
    expected = PhraseEncoder(forward).vectors([b"old", b"the house"])
    np.testing.assert_allclose(np.array([row[1:] for row in found], float), expected, atol=ROUNDING)
    of_source, of_target = (run("embed", "-m", model, "--words", side).out for model, side in (
        (tmp_path / "model", "source"), (model_dir, "target")))  # fmt: skip
    assert of_source == of_target


@pytest.mark.slow
@pytest.mark.parametrize(("side", "words"), [("source", SOURCE_WORDS), ("target", TARGET_WORDS)])
def test_words(run: Run, model_dir: str, tmp_path: Path, side: str, words: tuple[bytes, ...]) -> None:
    model = load(model_dir).model
    expected = (model.encoder if side == "source" else model.decoder).embedding.numpy()
    names = [b"<end of phrase>", b"<unknown word>", *words]
    done = run("embed", "-m", model_dir, "--words", side)
    assert [row[0] for row in columns(done.out)] == names, "words that are spelt UNK and </s> are words"
    np.testing.assert_array_equal(np.array([row[1:] for row in columns(done.out)], float).astype(np.float32), expected)
    assert run("embed", "-m", model_dir, "--words", side, "-o", tmp_path / "w.txt").status == 0
    found = word2vec(tmp_path / "w.txt")
    assert found.index_to_key == [name.decode("utf-8", "backslashreplace").replace(" ", "_") for name in names]
    np.testing.assert_array_equal(found.vectors, expected)
    piped = run("embed", "-m", model_dir, "--words", side, "--format", "txt")
    assert piped.out == (tmp_path / "w.txt").read_bytes()


@pytest.mark.slow
def test_python_of_the_documentation_runs(run, model_dir, tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("gensim", reason="needs gensim")
    monkeypatch.chdir(tmp_path)
    for args in (["--words", "source", "-o", "words.txt"], ["-o", "c.txt"]):
        assert run("embed", "-m", model_dir, *args, stdin=b"the house\nold\nis old\n").status == 0
    examples = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "embed.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for example in examples:
        exec(example, {})
    near_words, near_phrases = capsys.readouterr().out.splitlines()
    assert near_words.count("(") == 4
    assert "'old'" in near_phrases
    assert "'is_old'" in near_phrases


@pytest.mark.parametrize(("args", "told"), [
    (["-o", "c.txt.gz"], "cannot write c.txt.gz: vectors are not compressed; "),
    (["-o", "c.dat"], "-o c.dat does not end in .txt, .vec, .tsv; choose a --format"),
    (["--format", "txt"], "--format txt begins with the number of phrases, known only at the end; name "),
])  # fmt: skip
def test_options_that_do_not_go_together(run: Run, model_dir: str, args: list[str], told: str) -> None:
    done = run("embed", "-m", model_dir, *args, stdin=b"the\n")
    assert (done.status, done.out) == (2, b"")
    assert done.last_line.startswith(f"phrase-rescore: error: {told}")
