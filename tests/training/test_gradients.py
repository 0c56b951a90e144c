"""Gradients of training, however the work is cut; orders without memory."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.data.sampling import DistinctSample, Permutation, drawn_rows
from phrase_rescore.nn.packed import pack_pairs
from phrase_rescore.rnn.network import RNNEncoderDecoder
from phrase_rescore.training.pairs import PairTask
from phrase_rescore.training.processes import Gradients


def small_model(dtype: torch.dtype = torch.float64, **chosen: Any) -> RNNEncoderDecoder:
    return small_checkpoint(**chosen).model.to(dtype).requires_grad_(True)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_gradient_is_that_of_every_pair_alone(threads):
    """Packed, in as many parts as there are threads: the gradient of the mean loss, in float64."""
    model, pairs = small_model(), random_pairs(23)
    expected_loss = sum(model(*pack_pairs(encoded([pair]))) for pair in pairs)
    expected = torch.autograd.grad(expected_loss / 23, list(model.parameters()))
    task = PairTask(model, encoded(pairs), encoded([]), 23, seed=0)
    gradients = Gradients(model, task, threads)
    value = gradients(task.parts(encoded(pairs), gradients.parts), 23)
    gradients.close()
    assert value == pytest.approx(expected_loss.item(), rel=1e-12)
    for (name, parameter), gradient in zip(model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("chosen", [{}, {"cell": "lstm", "layers": 2, "encoder": "bidirectional"}, {"cell": "rnn"}])
def test_gradients_in_bf16_are_those_of_float32_nearly(chosen):
    """Large products alone lose digits: 8 bits are 0.4 % of each number."""
    grads = []
    for dtype in (None, torch.bfloat16):
        model = small_model(torch.float32, **chosen)
        model.loss_dtype = dtype
        task = PairTask(model, encoded(random_pairs(200)), encoded([]), 200, seed=0)
        Gradients(model, task, 1)(task.parts(encoded(random_pairs(200)), 1), 200)
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        with torch.no_grad():  # what is measured is measured in float32
            measured = [m(*pack_pairs(encoded(random_pairs(9)))).item() for m in (model, small_model(torch.float32, **chosen))]
            assert measured[0] == measured[1]
    difference = (grads[1] - grads[0]).norm() / grads[0].norm()
    assert 1e-5 < difference < 1e-2


@given(st.integers(1, 300), st.data())
def test_drawn_rows_are_every_one_once_a_pass_and_depend_on_their_number_alone(n, data):
    size, first = data.draw(st.integers(1, n)), data.draw(st.integers(0, 9))
    rows = np.concatenate(list(islice(drawn_rows(n, size, 5), 3 * n // size + 1)))
    for start in range(0, len(rows) - n + 1, n):
        assert sorted(rows[start : start + n].tolist()) == list(range(n))
    later = next(drawn_rows(n, size, 5, first))
    assert later.tolist() == next(islice(drawn_rows(n, size, 5), first, None)).tolist()


def test_every_pass_has_an_order_of_its_own():
    one, other = islice(drawn_rows(300, 300, 5), 2)
    assert one.tolist() != other.tolist()


def test_a_sample_has_the_second_line_of_each_of_its_phrases():
    sample = DistinctSample(3)
    for start in (0, 9):
        sample.add([b"%d" % i for i in range(9)], np.arange(start, start + 9))
    assert (sample.exact, len(sample.repeated)) == (False, 3)


def test_permutations_of_many_look_random():
    n = 3_000_001
    orders = [Permutation(n, (1, k)).at(np.arange(100_000)) for k in (0, 1)]
    for order in orders:
        assert len(np.unique(order)) == 100_000
        assert abs(np.corrcoef(np.arange(100_000), order)[0, 1]) < 0.02
        assert abs(order.mean() / n - 0.5) < 0.005
        assert np.histogram(order, 20, (0, n))[0] == pytest.approx(5000, rel=0.1)
    assert (orders[0] == orders[1]).mean() < 0.001
