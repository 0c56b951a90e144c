"""``phrase-rescore score``: pairs of standard input, a line each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import TARGET_WORDS, MakeModel, Run
from small_models import phrases_of, scores_of

from phrase_rescore.rnn.checkpoint import load, save
from phrase_rescore.rnn.scorer import BATCH, Scorer


@pytest.mark.slow
def test_scores_are_those_of_the_library_and_of_annotate(run: Run, model_dir: str, tmp_path: Path) -> None:
    pairs = phrases_of(load(model_dir), BATCH + 100)  # more than are scored at once
    done = run("score", "-m", model_dir, stdin=b"".join(b"%b\t%b\n" % pair for pair in pairs))
    assert done.status == 0, done.err
    found = [line.split(b"\t") for line in done.out.splitlines()]
    assert np.array([float(log_p) for log_p, _ in found]) == pytest.approx(scores_of(Scorer(load(model_dir)), pairs), abs=1e-5)
    assert [int(n) for _, n in found] == [sum(word not in TARGET_WORDS for word in tgt.split()) for _, tgt in pairs]
    rows = b"".join(b"%b ||| %b ||| 0.5 ||| 0-0 ||| 1 1 1 ||| |||\n" % pair for pair in pairs)
    (tmp_path / "table").write_bytes(rows)
    of_rows = run("score", "-m", model_dir, stdin=rows)
    assert of_rows.out == done.out, "a table's rows are pairs too"
    annotated = run("annotate", tmp_path / "table", "-m", model_dir, "--scale", "log")
    assert [row.split(b"|||")[2].split()[1:] for row in annotated.out.splitlines()] == found


def test_words_add_up_to_the_pair(run: Run, model_dir: str) -> None:
    done = run("score", "-m", model_dir, "--per-word", "--digits", 9, stdin=b"the house ||| das zzz haus\n")
    log_p, unknown, words = done.out.rstrip(b"\n").split(b"\t")
    assert unknown == b"1"
    assert words.split()[::2] == [b"das", b"zzz", b"haus", b"</s>"]
    assert sum(map(float, words.split()[1::2])) == pytest.approx(float(log_p), abs=1e-6)


def test_an_inverse_model_predicts_sources(run: Run, model_dir: str, tmp_path: Path) -> None:
    forward = load(model_dir)
    save(replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True), str(tmp_path))
    expected = run("score", "-m", model_dir, "--per-word", stdin=b"the house\tdas\nold zz\tzz\n")
    found = run("score", "-m", tmp_path, "--per-word", stdin=b"das\tthe house\nzz\told zz\n")
    assert found.out == expected.out


@pytest.mark.parametrize(("line", "told"), [
    (b"house", "no phrase pair in 'house'; write 'source ||| target', or source, tab, target"),
    (b"", "no phrase pair in ''; write 'source ||| target', or source, tab, target"),
    (b"the ||| ", "the target phrase is empty; every row needs both phrases"),
])  # fmt: skip
def test_a_bad_line_is_named_after_the_scores_before_it(run: Run, model_dir: str, line: bytes, told: str) -> None:
    done = run("score", "-m", model_dir, stdin=b"the ||| das\nold ||| alt\n" + line + b"\nthe ||| das\n")
    assert done.status == 1
    assert done.out.count(b"\n") == 2
    assert f"error: <stdin>:3: {told}" in done.last_line


def test_factors_are_asked_for(run: Run, model_dir: str, tmp_path: Path) -> None:
    save(replace(load(model_dir), factors=(1, None)), str(tmp_path))
    done = run("score", "-m", tmp_path, stdin=b"DT|the ||| das\nthe ||| das\n")
    assert done.out == run("score", "-m", model_dir, stdin=b"the\tdas\n").out
    assert "<stdin>:2: source word 'the' has no factor 1" in done.last_line


def test_a_model_that_never_saw_unknown_words(run: Run, make_model: MakeModel) -> None:
    done = run("score", "-m", make_model(unk_shares=(0.1, 0.0)), stdin=b"the ||| das\n")
    assert done.status == 0
    assert "warning: no target word was unknown in training: scores of pairs with such a word mean nothing" in done.err
    assert "source word" not in done.err
