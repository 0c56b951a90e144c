"""Products x Mᵀ in float32 and bf16, and what scores in bf16 owe to the rows beside them: nothing."""

import numpy as np
import pytest
import torch
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.nn.linear import filled, times
from phrase_rescore.rnn.scorer import Scorer


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_times_adds(dtype, atol):
    generator = torch.Generator().manual_seed(4)
    x, M, add = (torch.randn(*shape, generator=generator) for shape in ((7, 16), (5, 16), (7, 5)))
    M *= 0.2
    kept = add.clone()
    for found, exact in ((times(x, M.to(dtype)), x @ M.T), (times(x, M.to(dtype), add), x @ M.T + add)):
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, exact, atol=atol)
    np.testing.assert_allclose(times(x, M.to(dtype), add[0]), x @ M.T + add[0], atol=atol)
    assert torch.equal(add, kept)
    assert times(x[:0], M.to(dtype)).shape == (0, 5)


@pytest.mark.parametrize(("n", "rows"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_rows_are_filled_up_with_zeros(n, rows):
    x = torch.arange(1.0, n * 3 + 1).reshape(n, 3)
    found = filled(x, torch.bfloat16)
    assert (found.shape, found.dtype) == ((rows, 3), torch.bfloat16)
    assert torch.equal(found[:n], x.bfloat16())
    assert not found[n:].any()


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
