"""``phrase-rescore score``: pairs of standard input, a line each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TARGET_WORDS, Run
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


def test_pairs_are_judged_once_by_many_of_them(run: Run, model_dir: str) -> None:
    swapped = b"das haus ist alt\tthe house is old\n"
    assert run("score", "-m", model_dir, stdin=swapped).status == 1
    for flush, before in ((["--flush"], b""), ([], b"the\tdas\n" * BATCH)):
        done = run("score", "-m", model_dir, *flush, stdin=before + swapped)
        assert (done.status, done.out.count(b"\n")) == (0, before.count(b"\n") + 1)


def test_words_add_up_to_the_pair(run: Run, model_dir: str) -> None:
    done = run("score", "-m", model_dir, "--per-word", "--digits", 9, stdin=b"the house ||| das zzz haus\n")
    log_p, unknown, words = done.out.rstrip(b"\n").split(b"\t")
    assert unknown == b"1"
    assert words.split()[::2] == [b"das", b"zzz", b"haus", b"</s>"]
    assert sum(map(float, words.split()[1::2])) == pytest.approx(float(log_p), abs=1e-6)


def test_the_line_of_a_score_that_is_not_finite(
    run: Run, model_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model whose training diverged, here where it reads a certain word."""
    checkpoint = load(model_dir)
    with torch.no_grad():
        checkpoint.model.decoder.embedding[checkpoint.tgt_vocab.ids[b"haus"]] = 3e38
    save(checkpoint, str(tmp_path))
    monkeypatch.setattr("phrase_rescore.queries.score.BATCH", 2)
    pairs = [b"the ||| das", b"the ||| ist", b"the ||| das", b"the ||| ist haus", b"the ||| das"]
    rows = b"".join(b"%b ||| 0.5 ||| 0-0 ||| 1 1 1 ||| |||\n" % pair for pair in pairs)
    (tmp_path / "table").write_bytes(rows)
    of_pairs = run("score", "-m", tmp_path, stdin=rows)
    assert of_pairs.out.count(b"\n") == 2
    of_rows = run("annotate", tmp_path / "table", "-m", tmp_path, "--block-size", 2)
    for refused, where in ((of_pairs, "<stdin>:4"), (of_rows, "table:4")):
        assert refused.status == 1
        told = next(line for line in refused.err.splitlines() if "error: " in line)
        assert f"{where}: " in told
        assert "--learning-rate" in told


def test_an_inverse_model_predicts_sources(run: Run, model_dir: str, tmp_path: Path) -> None:
    forward = load(model_dir)
    save(replace(forward, src_vocab=forward.tgt_vocab, tgt_vocab=forward.src_vocab, inverse=True), str(tmp_path))
    expected = run("score", "-m", model_dir, "--per-word", stdin=b"the house\tdas\nold zz\tzz\n")
    found = run("score", "-m", tmp_path, "--per-word", stdin=b"das\tthe house\nzz\told zz\n")
    assert found.out == expected.out
