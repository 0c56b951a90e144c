"""generate -m NMT: against what can be enumerated, and against the scores of rescore; batches; words that are unknown."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from small_models import small_lm, small_nmt

from phrase_rescore.data.ragged import EncodedPairs
from phrase_rescore.nmt import translator as translating
from phrase_rescore.nmt.checkpoint import Translation, load
from phrase_rescore.nmt.scorer import SentenceScorer
from phrase_rescore.nmt.translator import NORM, SentenceTranslator

SOURCE, TARGET = (b"das", b"haus", b"ist", b"klein"), (b"the", b"house", b"is", b"small")


@pytest.fixture
def model(tmp_path: Path) -> Translation:
    return load(str(small_nmt(tmp_path / "nmt", SOURCE, TARGET, 3.0)))


def sentences(n: int, longest: int = 7, seed: int = 1) -> list[list[bytes]]:
    rng = np.random.default_rng(seed)
    words = (*SOURCE, b"nobody", b"knows", b"small")
    return [[words[i] for i in rng.integers(0, len(words), rng.integers(1, longest))] for _ in range(n)]


def exact(model: Translation, source: list[bytes], targets: list[tuple[bytes, ...]]) -> list[float]:
    scorer = SentenceScorer(model)
    pairs = EncodedPairs(scorer.encode([source] * len(targets), 0), scorer.encode(targets, 1))
    return scorer.log_probs(pairs).tolist()


def test_a_beam_as_wide_as_all_prefixes_finds_the_best(model: Translation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "longest_target", lambda words: 3)
    for source in sentences(6):
        targets = [words for n in (1, 2, 3) for words in product((*TARGET, b"?"), repeat=n)]
        scores = [
            (p / (len(words) + 1) ** NORM, words) for words, p in zip(targets, exact(model, source, targets), strict=True)
        ]
        (found,) = SentenceTranslator(model).n_best([source], n=1, beam=1000)
        best = max(scores)
        assert found[0].score == pytest.approx(best[0], abs=1e-4)
        assert len(found[0].words) == len(best[1])
        assert all(word == expected or expected == b"?" for word, expected in zip(found[0].words, best[1], strict=True))


def test_the_same_translations_whatever_the_threads(model: Translation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "PREFIXES", 30)  # of five sources
    sources = sentences(23)
    for n in (1, 7):
        assert SentenceTranslator(model, threads=3).n_best(sources, n) == SentenceTranslator(model).n_best(sources, n)


def test_log_p_is_that_of_rescore_and_equal_texts_come_once(model: Translation) -> None:
    sources = sentences(20)
    for source, found in zip(sources, SentenceTranslator(model).n_best(sources, n=8), strict=True):
        texts = [hypothesis.words for hypothesis in found]
        assert len(set(texts)) == len(texts) > 1
        assert [hypothesis.log_p for hypothesis in found] == pytest.approx(exact(model, source, texts), abs=1e-4)
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([p.log_p / (len(p.words) + 1) ** NORM for p in found])


def test_sources_together_are_sources_alone(model: Translation) -> None:
    translator, sources = SentenceTranslator(model), sentences(40, longest=12)
    together = translator.n_best([*sources, []], n=4)
    assert together.pop()[0].words == ()
    for source, hypotheses in zip(sources, together, strict=True):
        (alone,) = translator.n_best([source], n=4)
        assert [p.words for p in alone] == [p.words for p in hypotheses]


def test_an_unknown_word_is_the_source_word_that_is_attended_to_most(model: Translation) -> None:
    with torch.no_grad():
        model.model.b_G[1] += 20.0  # UNK always
    source = [b"das", b"Xyz", b"klein"]
    (found,) = SentenceTranslator(model).n_best([source])
    assert found[0].words
    assert set(found[0].words) <= set(source)
    with torch.no_grad():
        model.model.Q.zero_()  # all are attended to alike: the first
    (found,) = SentenceTranslator(model).n_best([source])
    assert set(found[0].words) == {b"das"}


def test_lines_or_a_list(run: Run, model: Translation, tmp_path: Path) -> None:
    text = b"das haus ist klein\n\nist das haus klein\n"
    done = run("generate", "-m", tmp_path / "nmt", stdin=text)
    assert done.status == 0, done.err
    assert [bool(line) for line in done.out.split(b"\n")] == [True, False, True, False]
    listed = run("generate", "-m", tmp_path / "nmt", "-n", 3, stdin=text)
    entries = [line.split(b" ||| ") for line in listed.out.splitlines()]
    assert [int(fields[0]) for fields in entries] == [0] * 3 + [2] * 3
    assert [fields[1] for fields in entries[::3]] == [line for line in done.out.split(b"\n") if line]
    (tmp_path / "list").write_bytes(listed.out)
    (tmp_path / "source").write_bytes(text)
    again = run("rescore", tmp_path / "list", "-m", tmp_path / "nmt", "--source", tmp_path / "source", "--replace")
    assert again.status == 0, again.err
    for ours, rescored in zip(entries, again.out.splitlines(), strict=True):
        assert float(ours[2].split()[1]) == pytest.approx(float(rescored.split(b" ||| ")[2].split()[1]), abs=1e-4)
    pairs = run("generate", "-m", tmp_path / "nmt", stdin=b"das haus\ndas ||| the\n")
    assert (pairs.status, pairs.out.count(b"\n"), "<stdin>:2: " in pairs.last_line) == (1, 1, True)
    for of_phrases in (["--random"], ["--digits", 7]):
        refused = run("generate", "-m", tmp_path / "nmt", *of_phrases, stdin=text)
        assert (refused.status, of_phrases[0] in refused.last_line) == (2, True)
    other = run("generate", "-m", small_lm(tmp_path / "lm"), stdin=text)
    assert (other.status, "train-nmt" in other.last_line) == (1, True)
