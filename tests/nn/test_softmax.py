"""The softmax without logits in memory is that of its equation: value, gradient, extremes, bf16, drawn words."""

import math

import pytest
import torch

from phrase_rescore.nn import softmax
from phrase_rescore.nn.softmax import LogNormaliser, cross_entropy, plain_cross_entropy


@pytest.mark.parametrize("rows", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (255, 256, 600)), 257])
@pytest.mark.parametrize("alpha", [0.0, pytest.param(0.1, marks=pytest.mark.slow), 2.0])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_cross_entropy_and_its_gradient_are_those_of_the_plain_formula(alpha, scale, rows, monkeypatch):
    monkeypatch.setattr(softmax, "TILE_SYMBOLS", 7)
    generator = torch.Generator().manual_seed(3)
    K, R = 17, 6
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((rows, R), (K, R), (K,))]
    leaves[0] *= scale
    targets = torch.randint(0, K, (rows,), generator=generator)
    g, G, b = ours = [leaf.clone().requires_grad_() for leaf in leaves]
    loss = cross_entropy(g, G, b, targets, alpha)
    (3.0 * loss).backward()
    plain = [leaf.clone().requires_grad_() for leaf in leaves]
    expected = plain_cross_entropy(*plain, targets, alpha)
    (3.0 * expected).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    for a, c in zip(ours, plain, strict=True):
        assert torch.allclose(a.grad, c.grad, rtol=1e-7, atol=1e-7 * scale)
    with torch.no_grad():
        assert cross_entropy(g, G, b, targets, alpha).item() == pytest.approx(expected.item(), rel=1e-9)
        assert torch.allclose(LogNormaliser(G, b)(g), (g @ G.T + b).logsumexp(1), rtol=1e-12)


@pytest.mark.parametrize("n", [130, 192, 300])  # rows: filled up to a multiple of 64, one already, both
def test_with_bf16_the_gradient_is_nearly_the_same_and_b_keeps_its_digits(n):
    generator, shapes = torch.Generator().manual_seed(5), {(n, 16): 0.1, (400, 16): 1.0, (400,): 10.0}
    g, G, b = ((torch.randn(shape, generator=generator) * scale).requires_grad_() for shape, scale in shapes.items())
    targets = torch.randint(0, 400, (n,), generator=generator)
    losses = [cross_entropy(g, G, b, targets, 0.1, dtype) for dtype in (None, torch.bfloat16)]
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=6e-4)
    exact, low = (torch.autograd.grad(loss, (g, G, b)) for loss in losses)
    for a, c in zip(exact, low, strict=True):
        assert 0 < (a - c).norm() < 0.02 * a.norm()
    with torch.no_grad():  # what is measured is exact
        assert cross_entropy(g, G, b, targets, 0.1, torch.bfloat16) == cross_entropy(g, G, b, targets, 0.1)


def test_logits_far_out_are_normalised_without_overflow():
    """exp overflows at 88, loses digits at -88, then vanishes; the sums must not, nor their products with large weights."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(5, 3, generator=generator) / 100
    G_l, targets = torch.randn(40, 3, generator=generator) * 100, torch.arange(5)
    for offset, above in ((-500.0, 200.0), (500.0, 200.0), (-100.0, 0.0), (80.0, 0.0)):
        b = torch.full((40,), offset)
        b[7] += above
        expected = torch.logsumexp((g @ G_l.T).double() + b.double(), 1)
        assert torch.allclose(LogNormaliser(G_l, b)(g).double(), expected, rtol=1e-6)
        leaf = g.clone().requires_grad_(True)
        loss = cross_entropy(leaf, G_l, b, targets)
        exact = g.double().requires_grad_(True)
        plain = plain_cross_entropy(exact, G_l.double(), b.double(), targets)
        assert loss.item() == pytest.approx(plain.item(), rel=1e-5)
        (loss + plain).backward()
        torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-3, atol=1e-3)


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


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("offset", [0.0, -500.0])
def test_the_best_next_words_are_those_of_all_logits(k, offset, monkeypatch):
    """The lower of equal ones, also where equal ones lie in several groups; the last group is not full."""
    monkeypatch.setattr(softmax, "TILE_SYMBOLS", 8)
    monkeypatch.setattr(softmax, "GROUP", 4)
    monkeypatch.setattr(softmax, "TILE_ROWS", 5)
    logits = LogNormaliser._logits
    monkeypatch.setattr(LogNormaliser, "_logits", lambda *args: [found.round(decimals=1) for found in logits(*args)])
    generator = torch.Generator().manual_seed(0)
    G_l, b = torch.randn(42, 3, generator=generator), torch.full((42,), offset)
    g = torch.randn(12, 3, generator=generator)
    barred = torch.tensor([0, 9, 41])
    found = LogNormaliser(G_l, b).next_words(g, min(k, 39), barred)
    of_words, _, log_z = LogNormaliser(G_l, b)._logits(g)
    torch.testing.assert_close(of_words.view(-1, 12)[:42], ((g @ G_l.T + b) * softmax.LOG2_E).T, atol=0.06, rtol=0)
    log_p = (of_words.view(-1, 12)[:42].double() / softmax.LOG2_E - log_z).T
    torch.testing.assert_close(torch.from_numpy(found.end), log_p[:, 0], atol=1e-4, rtol=0)
    log_p[:, barred] = -torch.inf
    ordered, order = log_p.sort(dim=1, descending=True, stable=True)
    assert list(map(sorted, found.ids.tolist())) == list(map(sorted, order[:, : min(k, 39)].tolist()))
    torch.testing.assert_close(torch.from_numpy(found.log_p), ordered[:, : min(k, 39)], atol=1e-3, rtol=0)


def test_barred_words_do_not_hide_others(monkeypatch):
    """Two barred words are far above the rest, each of a group of its own."""
    monkeypatch.setattr(softmax, "TILE_SYMBOLS", 8)
    monkeypatch.setattr(softmax, "GROUP", 4)
    b = torch.arange(16.0)
    b[[1, 5]] = 90.0
    found = LogNormaliser(torch.zeros(16, 2), b).next_words(torch.ones(1, 2), 1, torch.tensor([1, 5]))
    assert found.ids.tolist() == [[15]]
