"""Products in lower precision against float64, and what they owe to the rows beside them: nothing."""

import numpy as np
import pytest
import torch
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.errors import OptionError
from phrase_rescore.inference.scorer import Scorer
from phrase_rescore.models.products import Int8Matrix, reduced, times
from phrase_rescore.runtime import check_precision, resolve_device, resolve_devices


def rounded(x: np.ndarray, levels: int) -> np.ndarray:
    """Every row to whole multiples of its largest number / levels."""
    scales = np.abs(x).max(1, keepdims=True) / levels
    return np.rint(x / scales) * scales


def test_int8_is_the_product_of_rounded_matrices():
    generator = torch.Generator().manual_seed(3)
    x, M = torch.randn(40, 30, generator=generator), torch.randn(50, 30, generator=generator) * 0.1
    exact = rounded(x.double().numpy(), 63) @ rounded(M.double().numpy(), 127).T
    found = Int8Matrix(M).times(x).numpy()
    assert np.mean(np.abs(found - exact) < 1e-5) > 0.99, "a number halfway between two levels may go either way"
    np.testing.assert_allclose(found, exact, atol=0.05)
    np.testing.assert_allclose(found, (x @ M.T).numpy(), atol=0.1)


@pytest.mark.parametrize("extreme", [1.0, 1e-30, 1e30])
def test_int8_at_the_ends_of_its_range(extreme):
    """All numbers as large as they can be: sums of products that 16 bits could not hold."""
    x, M = torch.full((3, 1000), extreme), torch.ones(4, 1000)
    x[1] *= -1.0
    x[2] = 0.0
    found = Int8Matrix(M).times(x) / extreme
    np.testing.assert_allclose(found[:2], [[1000.0] * 4, [-1000.0] * 4], rtol=1e-5)
    assert (found[2] == 0).all()
    assert (Int8Matrix(torch.zeros(4, 1000)).times(x) == 0).all()


@pytest.mark.parametrize(("precision", "atol"), [("float32", 1e-5), ("bf16", 0.05), ("int8", 0.1)])
def test_times_adds(precision, atol):
    generator = torch.Generator().manual_seed(4)
    x, M, add = (torch.randn(*shape, generator=generator) for shape in ((7, 16), (5, 16), (7, 5)))
    M *= 0.2
    kept = add.clone()
    np.testing.assert_allclose(times(x, reduced(M, precision), add), x @ M.T + add, atol=atol)
    np.testing.assert_allclose(times(x, reduced(M, precision), add[0]), x @ M.T + add[0], atol=atol)
    assert torch.equal(add, kept)
    assert times(x[:0], reduced(M, precision)).shape == (0, 5)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_scores_in_lower_precision(precision):
    """Near the exact ones, not equal to them, and whatever else is in the batch."""
    checkpoint, pairs = small_checkpoint(), encoded(random_pairs(200))
    exact, scorer = Scorer(checkpoint).log_probs(pairs), Scorer(checkpoint, precision=precision)
    found = scorer.log_probs(pairs)
    assert 1e-4 < abs(found - exact).mean() < 0.2
    assert abs(found - exact).max() < 1.0
    order = np.random.default_rng(1).permutation(200)
    again = scorer.log_probs(pairs.take(order))
    assert np.median(abs(again - found[order])) < 1e-5, "now and then a number falls on the other side of half a level"
    np.testing.assert_array_equal(Scorer(checkpoint).log_probs(pairs), exact, "the checkpoint's own weights stay")


def test_precisions_that_a_device_lacks():
    assert check_precision("float32", "cpu") == check_precision("int8", "cpu") == check_precision("tf32", "cuda:1") == ""
    for precision, device, told in (("tf32", "cpu", "int8"), ("int8", "cuda", "tf32 or bf16")):
        with pytest.raises(OptionError, match=told):
            check_precision(precision, device)


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_devices("auto") == ("cuda:0", "cuda:1")
    assert resolve_devices("cuda:1, cuda:1") == ("cuda:1", "cuda:1")
    assert resolve_device("auto") == "cuda"
    for names in ("cuda:2", "cpu,cuda:0", "", "gpu", "cpu,", "meta"):
        with pytest.raises(OptionError, match="--device"):
            resolve_devices(names)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert resolve_devices("auto") == ("cpu",)
    with pytest.raises(OptionError, match="no such device"):
        resolve_devices("cuda")
