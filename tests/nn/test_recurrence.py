"""Layers that read whole sequences do what their cells do step by step, and so do their gradients."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from phrase_rescore.nn.cells import ResetAfter
from phrase_rescore.nn.recurrence import outputs

INPUTS, HIDDEN = 3, 4


def step_by_step(cell: ResetAfter, x: Tensor, counts: Sequence[int]) -> Tensor:
    h, found = x.new_zeros(counts[0], HIDDEN), []
    for row in cell.word_rows(x).split(list(counts)):
        before = (h[: len(row)],)
        (h,) = cell.step(cell.project(before), before, row)
        found.append(h)
    return torch.cat(found)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("counts", [(1,), (5,), (2, 2), (5, 5, 3, 1)])
@pytest.mark.parametrize(("dtype", "within"), [(None, 1e-12), (torch.bfloat16, 0.05)])
def test_layers_are_their_cells(counts: tuple[int, ...], layers: int, dtype: torch.dtype | None, within: float) -> None:
    torch.manual_seed(1)
    kind = torch.float32 if dtype else torch.float64
    cells = [ResetAfter(INPUTS, HIDDEN).to(kind) for _ in range(layers)]
    inputs = [torch.randn(sum(counts), INPUTS, dtype=kind, requires_grad=True) for _ in cells]
    for cell in cells:
        for weight in cell.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    leaves = [*inputs, *(weight for cell in cells for weight in (cell.W, cell.b, cell.U))]
    expected = torch.stack([step_by_step(cell, x, counts) for cell, x in zip(cells, inputs, strict=True)])
    rows = torch.stack([cell.word_rows(x) for cell, x in zip(cells, inputs, strict=True)])
    found = outputs(rows, torch.stack([cell.U for cell in cells]), counts, dtype)
    torch.testing.assert_close(found, expected, atol=within, rtol=within)
    wanted = torch.randn_like(expected)
    pairs = zip(*(torch.autograd.grad(h, leaves, wanted) for h in (found, expected)), strict=True)
    for of_layers, of_cells in pairs:
        torch.testing.assert_close(of_layers, of_cells, atol=3 * within, rtol=within)
