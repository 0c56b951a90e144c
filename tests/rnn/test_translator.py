"""Beam search and sampling against what can be enumerated, and against the scorer."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from small_models import scores_of, small_checkpoint, vocabulary

from phrase_rescore.data.vocabulary import Vocabulary
from phrase_rescore.nn.search import best_of_each
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.model import Model
from phrase_rescore.rnn.scorer import Scorer
from phrase_rescore.rnn.translator import Hypothesis, Translator

SOURCES = [b"s0", b"s1 s2 s0", b"s3 s3", b"s9 s8 s7 s6", b"nobody knows", b"s5"]
LONGEST = 3
EVERY_PREFIX = 10**6


def sources_like(n: int, seed: int = 0) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return sorted({b" ".join(b"s%d" % word for word in rng.integers(0, 10, rng.integers(1, 6))) for _ in range(n)})


def enumerated(checkpoint: Checkpoint, source: bytes, longest: int = LONGEST, unk: bool = False) -> list[Hypothesis]:
    """Every target of up to ``longest`` words, as the scorer scores it, best first."""
    known = [*checkpoint.tgt_vocab.words, *([b"UNK"] if unk else [])]
    targets = [b" ".join(words) for n in range(1, longest + 1) for words in product(known, repeat=n)]
    log_p = scores_of(Scorer(checkpoint), [(source, target) for target in targets])
    found = [Hypothesis(t, p, t.split().count(b"UNK")) for t, p in zip(targets, log_p.tolist(), strict=True)]
    return sorted(found, key=lambda hypothesis: -hypothesis.log_p)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    """The same targets in the same order, but where two are within rounding of each other."""
    assert [p.log_p for p in found] == pytest.approx([p.log_p for p in expected], abs=1e-4)
    apart = [i for i in range(len(found)) if all(abs(found[i].log_p - p.log_p) > 1e-5 for p in expected if p != expected[i])]
    assert len(apart) > len(found) // 2
    for i in apart:
        assert (found[i].target, found[i].unknown) == (expected[i].target, expected[i].unknown)


@pytest.mark.parametrize("unk", [False, True])
def test_a_beam_as_wide_as_the_live_prefixes_finds_the_exact_best(unk: bool) -> None:
    checkpoint = small_checkpoint()
    found = Translator(checkpoint).n_best(SOURCES, n=30, beam=EVERY_PREFIX, unk=unk, max_length=LONGEST)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert_same(hypotheses, enumerated(checkpoint, source, unk=unk)[:30])
    assert any(p.unknown for hypotheses in found for p in hypotheses) == unk


def test_log_p_is_that_of_the_scorer() -> None:
    checkpoint = small_checkpoint()
    with torch.no_grad():
        checkpoint.model.decoder.b_G[1] += 5.0  # UNK
    sources, scorer, translator = sources_like(30), Scorer(checkpoint), Translator(checkpoint)
    for found in (translator.n_best(sources, unk=True), translator.samples(sources, 5, seed=1, unk=True)):
        pairs = [(source, p.target) for source, hypotheses in zip(sources, found, strict=True) for p in hypotheses]
        expected = scores_of(scorer, pairs)
        assert [p.log_p for hypotheses in found for p in hypotheses] == pytest.approx(expected.tolist(), abs=1e-4)
        assert sum(p.unknown for hypotheses in found for p in hypotheses) == sum(t.split().count(b"UNK") for _, t in pairs) > 0


@pytest.mark.slow
def test_sources_together_are_sources_alone() -> None:
    translator, sources = Translator(small_checkpoint()), sources_like(40)
    together = translator.n_best([*sources, *sources[:3]], n=5)
    assert together[-3:] == together[:3]
    for source, hypotheses in zip(sources, together, strict=False):
        assert_same(translator.n_best([source], n=5)[0], hypotheses)
    drawn = translator.samples(sources, 6, seed=3)
    turned = translator.samples(sources[::-1], 6, seed=3)[::-1]
    assert [[p.target for p in s] for s in turned] == [[p.target for p in s] for s in drawn]
    for source, hypotheses in zip(sources, drawn, strict=True):
        alone = translator.samples([b" " + source.replace(b" ", b"  ")], 4, seed=3)[0]
        assert [p.target for p in alone] == [p.target for p in hypotheses[:4]]
    assert translator.samples(sources, 6, seed=4) != drawn


def test_nothing_depends_on_how_many_fit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, sources = Translator(small_checkpoint()), sources_like(40)
    whole = translator.n_best(sources), translator.samples(sources, 5, seed=1)
    ten, narrow, usual = (translator.n_best(sources, n=1, beam=beam) for beam in (10, 1, None))
    assert usual == ten != narrow
    monkeypatch.setattr("phrase_rescore.rnn.translator.PREFIXES", 30)
    monkeypatch.setattr("phrase_rescore.nn.softmax.TILE_ROWS", 7)
    monkeypatch.setattr("phrase_rescore.rnn.translator.DRAWS", 3)
    for found, expected in zip((translator.n_best(sources), translator.samples(sources, 5, seed=1)), whole, strict=True):
        for a, b in zip(found, expected, strict=True):
            assert [p.target for p in a] == [p.target for p in b]
            assert [p.log_p for p in a] == pytest.approx([p.log_p for p in b], abs=1e-4)  # 1.6e-5 on Zen 3


def probabilities(checkpoint: Checkpoint, source: bytes, longest: int) -> dict[bytes, float]:
    """Of every target, by the words' own probabilities: EOS is no first word, and the last possible length ends."""
    scorer, words = Scorer(checkpoint), checkpoint.tgt_vocab.words
    found = {b"": 1.0}
    for length in range(longest):
        longer = {}
        for prefix, p in found.items():
            if len(prefix.split()) < length:
                longer[prefix] = longer.get(prefix, 0.0) + p
                continue
            pairs = [(source, (prefix + b" " + word).strip()) for word in words] + [(source, prefix)] * (length > 0)
            flat, offsets = scorer.word_log_probs(scorer.encode_phrases(*zip(*pairs, strict=True)))
            log_p = np.array([flat[offsets[i] + length] for i in range(len(pairs))])
            weights = np.exp(log_p)
            for (_, target), share in zip(pairs, weights / weights.sum(), strict=True):
                longer[target.strip()] = longer.get(target.strip(), 0.0) + p * share
        found = longer
    return {target: p for target, p in found.items() if p > 0}


@pytest.mark.slow
def test_samples_come_as_often_as_they_are_probable() -> None:
    """χ² of 20,000 samples; targets that should come less than 10 times are taken together."""
    checkpoint, n = small_checkpoint(spread=0.3), 20_000
    expected = probabilities(checkpoint, b"s1 s2", 2)
    (drawn,) = Translator(checkpoint).samples([b"s1 s2"], n, seed=5, max_length=2)
    counts = Counter(p.target for p in drawn)
    assert counts.keys() <= expected.keys()
    common = [target for target, p in expected.items() if n * p >= 10]
    rare = 1 - sum(expected[target] for target in common)
    cells = [(counts[target], n * expected[target]) for target in common]
    if n * rare >= 10:
        cells.append((n - sum(counts[target] for target in common), n * rare))
    degrees = len(cells) - 1
    assert degrees > 8
    chi2 = sum((found - mean) ** 2 / mean for found, mean in cells)
    z = ((chi2 / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / (2 / (9 * degrees)) ** 0.5  # Wilson and Hilferty
    assert z < 2.33, "less probable than 1 %"
    wrong = sum((counts[t] - n * q) ** 2 / (n * q) for t, q in zip(common, (expected[t] for t in common[::-1]), strict=True))
    assert wrong > 10 * chi2, "the test sees a difference"


def test_nothing_that_was_not_asked_for() -> None:
    checkpoint = small_checkpoint()
    with torch.no_grad():
        checkpoint.model.decoder.b_G[0] = 16.0  # to end at once is by far the likeliest
        checkpoint.model.decoder.b_G[1] = 12.0  # then UNK
    translator = Translator(checkpoint)
    for found in (translator.n_best(SOURCES, n=20), translator.samples(SOURCES, 20, seed=1)):
        assert all(len(hypotheses) == 20 for hypotheses in found)
        assert all(p.target and not p.unknown for hypotheses in found for p in hypotheses)
    with_unk = translator.n_best(SOURCES, unk=True)
    assert all(hypotheses[0] == Hypothesis(b"UNK", hypotheses[0].log_p, 1) for hypotheses in with_unk)
    assert any(p.unknown for hypotheses in translator.samples(SOURCES, 20, seed=1, unk=True) for p in hypotheses)


def test_no_target_is_longer_than_it_may_be() -> None:
    checkpoint = small_checkpoint()
    with torch.no_grad():
        checkpoint.model.decoder.b_G[0] = -20.0  # no target would ever end
    translator, scorer = Translator(checkpoint), Scorer(checkpoint)
    for found in (Model(checkpoint).generate(SOURCES, max_length=4), translator.samples(SOURCES, 5, seed=1, max_length=4)):
        for source, hypotheses in zip(SOURCES, found, strict=True):
            expected = scores_of(scorer, [(source, p.target) for p in hypotheses])
            assert [p.log_p for p in hypotheses] == pytest.approx(expected.tolist(), abs=1e-4)
            assert max(len(p.target.split()) for p in hypotheses) <= 4
    assert {len(p.target.split()) for hypotheses in found for p in hypotheses} == {4}, "of samples"


def test_equal_log_p_keeps_the_order_of_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of equal weights differ in the last digit on some machines: they are rounded here."""
    logits = LogNormaliser._logits
    monkeypatch.setattr(LogNormaliser, "_logits", lambda *args: [found.round(decimals=4) for found in logits(*args)])
    checkpoint = small_checkpoint()
    decoder = checkpoint.model.decoder
    with torch.no_grad():
        for weight in (decoder.G_l, decoder.b_G, decoder.embedding):
            weight[3:13] = weight[2].clone()  # words t1 … t10 are t0 under other names
    (found,) = Translator(checkpoint).n_best([b"s0"], n=4, beam=4, max_length=1)
    assert [p.target for p in found] == [b"t0", b"t1", b"t2", b"t3"]
    assert len({p.log_p for p in found}) == 1
    assert best_of_each(np.array([0, 0, 0]), np.array([-1.0, -1.0, -1.0]), 2).tolist() == [0, 1]


def test_words_that_cannot_stand_in_a_table_are_not_proposed() -> None:
    forward = small_checkpoint()
    words = (b"[X]", b"a|||b", b"|||", b"\xff", b"UNK", b"</s>", *vocabulary(5).words)
    checkpoint = replace(forward, tgt_vocab=Vocabulary(words, (1,) * 11))
    translator = Translator(checkpoint)
    (found,) = translator.n_best([b"s0"], n=10**4, beam=EVERY_PREFIX, max_length=2)
    assert len(found) == 8 + 8**2
    assert {word for p in found for word in p.target.split()} == set(words[3:])
    assert not any(p.unknown for p in found), "a word spelt UNK is a word"
    nothing = replace(forward, tgt_vocab=Vocabulary((b"[X]",) * 11, (1,) * 11))
    assert Translator(nothing).n_best([b"s0"]) == Translator(nothing).samples([b"s0"], 3, seed=1) == [[]]


def test_a_model_whose_numbers_overflow_proposes_nothing() -> None:
    checkpoint = small_checkpoint()
    with torch.no_grad():
        for _, weight in checkpoint.model.named_weights():
            weight.fill_(3e38)
    translator = Translator(checkpoint)
    assert translator.n_best([b"s0"]) == translator.samples([b"s0"], 3, seed=1) == [[]]
