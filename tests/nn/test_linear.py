"""Products x Mᵀ in float32 and bf16, and what scores in bf16 owe to the rows beside them: nothing."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from small_models import encoded, random_pairs, small_checkpoint
from torch import Tensor

from phrase_rescore.nn import linear
from phrase_rescore.nn.linear import MULTIPLE, by_onednn, gathered_gradients, plain_times, times
from phrase_rescore.nn.softmax import LogNormaliser
from phrase_rescore.rnn.scorer import Scorer


def test_scores_in_bf16():
    """Near the exact ones, not equal to them, and whatever else is in the batch."""
    checkpoint, pairs = small_checkpoint(), encoded(random_pairs(200))
    exact, scorer = Scorer(checkpoint).log_probs(pairs), Scorer(checkpoint, precision="bf16")
    found = scorer.log_probs(pairs)
    assert 1e-4 < abs(found - exact).mean() < 0.2
    assert abs(found - exact).max() < 1.0
    order = np.random.default_rng(1).permutation(200)
    again = scorer.log_probs(pairs.take(order))
    assert np.median(abs(again - found[order])) < 1e-5, "now and then a number is rounded the other way"
    np.testing.assert_array_equal(Scorer(checkpoint).log_probs(pairs), exact, "the checkpoint's own weights stay")


Product = Callable[..., Tensor]


def recurrence(x: Tensor, M: Tensor, b: Tensor, product: Product) -> Tensor:
    """A sum over three steps, each of which uses the matrix, with and without what is added."""
    h, total = torch.zeros_like(x), x.new_zeros(())
    for _ in range(3):
        h = torch.tanh(product(h, M, b) + product(x, M))
        total = total + h.sum()
    return total


def gradients(rows: int, dtype: torch.dtype | None, product: Product = times, seed: int = 1) -> list[Tensor]:
    """The value of ``recurrence``, and its gradients by x, M and b, in float64, or in float32 with products in ``dtype``."""
    generator, kind = torch.Generator().manual_seed(seed), torch.float32 if dtype else torch.float64
    leaves = [torch.randn(shape, generator=generator, dtype=kind) / 4 for shape in ((rows, 8), (8, 8), (8,))]
    for leaf in leaves:
        leaf.requires_grad_(True)
    with gathered_gradients(dtype):
        value = recurrence(*leaves, product)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


@pytest.mark.parametrize("rows", [1, 5, MULTIPLE + 1])
def test_gathered_gradients_are_those_of_the_equation(rows: int) -> None:
    for found, expected in zip(gradients(rows, None), gradients(rows, None, plain_times), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, MULTIPLE, MULTIPLE + 1])  # filled up, or full already
def test_products_in_bf16_have_its_digits(rows: int) -> None:
    """8 bits are 0.4 % of each number; results and gradients are float32."""
    for found, expected in zip(gradients(rows, torch.bfloat16), gradients(rows, torch.float32), strict=True):
        assert found.dtype == torch.float32
        assert found.shape == expected.shape
        assert 0 < (found - expected).norm() < 0.01 * expected.norm() + 0.01


def test_without_gradients_it_is_the_equation_in_the_precision_of_the_matrix() -> None:
    generator = torch.Generator().manual_seed(1)
    x, M, b = (torch.randn(shape, generator=generator) for shape in ((5, 8), (3, 8), (3,)))
    with torch.no_grad():
        assert torch.allclose(times(x, M, b), plain_times(x, M, b), atol=1e-5)
        low = times(x, M.bfloat16(), b)
    assert low.dtype == torch.float32
    assert 0 < (low - plain_times(x, M, b)).abs().max() < 0.1


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 64, 700])
def test_products_of_scoring_are_exact_by_either_library(rows: int, onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: onednn)
    generator = torch.Generator().manual_seed(1)
    x, M, b, wide = (torch.randn(shape, generator=generator) for shape in ((rows, 50), (1100, 50), (1100,), (1100, 80)))
    with torch.inference_mode():
        assert by_onednn(x) == onednn
        assert not by_onednn(x.double())
        for matrix in (M, wide[:, 30:]):
            expected = x.double() @ matrix.double().T
            torch.testing.assert_close(times(x, matrix).double(), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(times(x, matrix, b).double(), expected + b, rtol=1e-5, atol=1e-5)
        logits, log_z = x.double() @ M.double().T + b, LogNormaliser(M, b)(x)
        torch.testing.assert_close(log_z.double(), logits.logsumexp(1), rtol=1e-6, atol=1e-6)
        if rows:
            best = LogNormaliser(M, b).next_words(x, 3, torch.tensor([0]))
            np.testing.assert_allclose(
                best.log_p, (logits[:, 1:].topk(3).values - logits.logsumexp(1, True)).numpy(), atol=5e-5
            )


def test_threads_do_not_mix_their_gradients() -> None:
    alone = [gradients(40, None, seed=seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as executor:
        together = list(executor.map(lambda seed: gradients(40, None, seed=seed), range(8)))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_nothing_of_a_step_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a matrix gathered leads back to itself through the graph of the step; Python's collector cannot see that circle."""
    alive: weakref.WeakSet[linear._Gather] = weakref.WeakSet()

    class Watched(linear._Gather):
        def __init__(self, M: Tensor, dtype: torch.dtype | None) -> None:
            super().__init__(M, dtype)
            alive.add(self)

    monkeypatch.setattr(linear, "_Gather", Watched)
    gradients(4, None)
    gc.collect()
    assert not alive
