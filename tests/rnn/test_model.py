import math
from dataclasses import asdict, astuple

import pytest
import torch
from small_models import encoded

from phrase_rescore.nn import softmax
from phrase_rescore.nn.cells import tanh
from phrase_rescore.nn.packed import pack_pairs
from phrase_rescore.nn.softmax import LogNormaliser, cross_entropy
from phrase_rescore.nn.storage import numbers_of
from phrase_rescore.rnn.config import PRESETS
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder


def test_paper_preset_has_the_paper_s_sizes_and_parameter_count():
    paper = PRESETS["paper"]
    structure, sizes = ("gru", 1, "forward"), (1000, 100, 500, 100)
    assert astuple(paper.network) == (*structure, *sizes)
    assert (paper.pairs.shortlist, paper.recipe.batch_size) == (15_000, 64)
    assert (paper.recipe.optimizer, paper.recipe.objective) == ("adadelta", "sum")
    with torch.device("meta"):
        model = RNNEncoderDecoder(ModelConfig(15_002, 15_002, **asdict(paper.network)))
    assert numbers_of(model) == 18_250_600 + 24_002, "weights and biases, with 15,000 words + UNK + EOS a side"


def test_by_hand_with_all_weights_zero_every_word_is_equally_likely():
    model = RNNEncoderDecoder(ModelConfig(4, 8, 2, 2, 2, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loss = model(*pack_pairs(encoded([([2], [3, 4])])))
    assert loss.item() == pytest.approx(3 * math.log(8))  # two words and EOS, eight symbols


def test_the_words_of_a_sampled_softmax(monkeypatch):
    """Word k is drawn with the chance 5 / k, the first five and all targets for certain, and stands for as many."""
    monkeypatch.setattr(softmax, "SURE", 5)
    targets = torch.tensor([3, 20, 31, 20])
    chances = {word: 1.0 if word < 5 or word in (20, 31) else 5 / (word + 1) for word in range(40)}
    counts = dict.fromkeys(range(40), 0)
    for n in range(400):
        words, log_number = softmax.sampled_words(targets, 40, (1, n))
        assert words.tolist() == sorted(set(words.tolist())) == softmax.sampled_words(targets, 40, (1, n))[0].tolist()
        for word, log in zip(words.tolist(), log_number.tolist(), strict=True):
            counts[word] += 1
            assert log == pytest.approx(-math.log(chances[word]), abs=1e-6)
    for word, p in chances.items():
        assert abs(counts[word] - 400 * p) <= 4 * (400 * p * (1 - p)) ** 0.5, word  # four standard deviations


def test_a_sampled_softmax_estimates_z_without_bias(monkeypatch):
    monkeypatch.setattr(softmax, "SURE", 8)
    generator = torch.Generator().manual_seed(0)
    g, G_l = (torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (9, 60))
    b, targets = torch.randn(60, generator=generator, dtype=torch.float64), torch.arange(9) * 6
    g.requires_grad_(True)
    picked = (g * G_l[targets]).sum(1) + b[targets]
    z = torch.logsumexp(g @ G_l.T + b, 1).exp()
    estimates = []
    for seed in range(3000):
        words, log_number = softmax.sampled_words(targets, 60, (seed,))
        estimates.append(torch.logsumexp(g @ G_l[words].T + b[words] + log_number, 1).exp())
        if seed == 0:
            loss = cross_entropy(g, G_l, b, targets, seed=(seed,))
            assert loss.item() == pytest.approx((estimates[0].log() - picked).sum().item(), rel=1e-12)
            wanted = torch.autograd.grad((estimates[0].log() - picked).sum(), g)[0]
            assert torch.allclose(torch.autograd.grad(loss, g)[0], wanted, rtol=1e-10, atol=1e-12)
    found = torch.stack(estimates).detach()
    error = (found.mean(0) - z).abs() / (found.std(0) / 3000**0.5)
    assert error.max() < 4.5
    monkeypatch.setattr(softmax, "SURE", 60)  # all words: nothing is estimated
    full = cross_entropy(g, G_l, b, targets).item()
    assert cross_entropy(g, G_l, b, targets, seed=(1,)).item() == pytest.approx(full, rel=1e-12)


def test_logits_far_out_are_normalised_without_overflow():
    """exp would overflow at 88 and vanish at -88; the sums must not."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(5, 3, generator=generator)
    G_l, targets = torch.randn(40, 3, generator=generator), torch.arange(5)
    for offset in (-500.0, 500.0):
        b = torch.full((40,), offset)
        b[7] += 200.0
        expected = torch.logsumexp((g @ G_l.T).double() + b.double(), 1)
        assert torch.allclose(LogNormaliser(G_l, b)(g).double(), expected, rtol=1e-6)
        leaf = g.clone().requires_grad_(True)
        loss = cross_entropy(leaf, G_l, b, targets)
        plain = torch.nn.functional.cross_entropy((g @ G_l.T + b).double(), targets, reduction="sum")
        assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
        loss.backward()
        assert torch.isfinite(leaf.grad).all()


def test_a_row_far_out_leaves_the_others_of_its_tile_alone():
    generator = torch.Generator().manual_seed(0)
    G_l, b = torch.randn(40, 3, generator=generator), torch.randn(40, generator=generator)
    g = torch.randn(6, 3, generator=generator)
    g[2] *= 300.0
    expected = torch.logsumexp((g @ G_l.T + b).double(), 1)
    torch.testing.assert_close(LogNormaliser(G_l, b)(g).double(), expected, rtol=1e-6, atol=1e-6)
    assert LogNormaliser(G_l, b)(g[:0]).shape == (0,)
    g[4, 0] = torch.nan
    assert LogNormaliser(G_l, b)(g).isnan().tolist() == [i == 4 for i in range(6)]


def test_tanh():
    x = torch.cat((torch.linspace(-25, 25, 100_001), torch.tensor([0.0, -0.0, 1e-30, torch.inf, -torch.inf, torch.nan])))
    kept = x.clone()
    expected = torch.tanh(x.double())
    with torch.no_grad():
        found = tanh(x)
    assert torch.equal(x[:-1], kept[:-1])
    assert (found[:-1] - expected[:-1]).abs().max() < 2.4e-7
    assert found[-1].isnan()
    x = kept.clone()
    assert torch.equal(tanh(x)[:-1], torch.tanh(kept)[:-1])
    assert torch.equal(x[:-1], kept[:-1])
