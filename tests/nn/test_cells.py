"""Recurrent cells are torch's own where the definitions agree."""

import pytest
import torch

from phrase_rescore.nn.cells import LSTM, RNN, ResetAfter, Stack, tanh


def filled(stack: Stack, seed: int = 0) -> Stack:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return stack.double()


# Where torch has the same thing: the order of its gates, as indices of ours
TORCHS = {LSTM: (torch.nn.LSTM, (0, 1, 3, 2)), RNN: (torch.nn.RNN, (0,)), ResetAfter: (torch.nn.GRU, (1, 0, 2))}


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("cell", TORCHS)
def test_stacks_are_torch_s_where_the_definitions_agree(cell: type, layers: int) -> None:
    """``ResetAfter`` without a summary is ``torch.nn.GRU`` whose bias within the reset gate is 0."""
    E, H, steps = 3, 5, 6
    stack = filled(Stack(cell, layers, E, H))
    make, order = TORCHS[cell]
    theirs = make(E, H, layers, batch_first=True).double()

    def turned(weight: torch.Tensor) -> torch.Tensor:
        return torch.cat([weight.split(H)[gate] for gate in order])

    with torch.no_grad():
        for n, layer in enumerate(stack.cells):
            getattr(theirs, f"weight_ih_l{n}").copy_(turned(layer.W))
            getattr(theirs, f"weight_hh_l{n}").copy_(turned(layer.U))
            getattr(theirs, f"bias_ih_l{n}").copy_(turned(layer.b))
            getattr(theirs, f"bias_hh_l{n}").zero_()
        x = torch.randn(2, steps, E, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        expected = theirs(x)[0]
        state = stack.empty(2)
        for t in range(steps):
            state = stack.step(stack.project(state), state, stack.word_rows(x[:, t]))
            torch.testing.assert_close(state[0], expected[:, t], atol=1e-12, rtol=0)


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
