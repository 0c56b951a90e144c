"""A layer of gated units (``cells.ResetAfter``) that reads whole sequences, with a gradient by hand.

Autograd would take a node for each of ten operations a step, and for most of them make the gradient of a slice in a tensor of
zeros. Here what a step needs lies where it was made, and ∂/∂U is one product of all steps. Several layers of one size that read
the same number of words, as the two directions of an encoder, take their steps together.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from phrase_rescore.nn.linear import in_dtype


def outputs(rows: Tensor, U: Tensor, counts: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """Return all h of D layers that start from 0: rows W x + b (D, Σ counts, 3 H) and U (D, 3 H, H) -> (D, Σ counts, H).

    ``counts``: the rows of each step, as ``PackedSequences`` has them. ``dtype``: of the products with U, None for that of U.
    """
    return _Layers.apply(rows, U, tuple(counts), dtype or U.dtype)  # type: ignore[no-untyped-call, no-any-return]


class _Layers(torch.autograd.Function):
    """The equations of ``cells.ResetAfter``, and their derivatives; ``shared`` is what r multiplies, U h of the candidate."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, U: Tensor, counts: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        H, M = U.shape[2], U.to(dtype)
        M_t = M.transpose(1, 2).contiguous()
        of_gates, of_candidate = rows.split((2 * H, H), 2)
        gates, shared, candidates, h = torch.empty_like(of_gates), *(torch.empty_like(of_candidate) for _ in range(3))
        before = rows.new_zeros(len(rows), counts[0], H)
        for here in _steps(counts):
            before = before[:, : here.stop - here.start]
            projected = _product(before, M_t)
            shared[:, here] = projected[..., 2 * H :]
            z, r = torch.add(of_gates[:, here], projected[..., : 2 * H], out=gates[:, here]).sigmoid_().split(H, 2)
            candidate = torch.addcmul(of_candidate[:, here], r, shared[:, here], out=candidates[:, here]).tanh_()
            before = torch.lerp(candidate, before, z, out=h[:, here])
        ctx.save_for_backward(gates, shared, candidates, h, M)
        ctx.counts = counts
        return h

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        gates, shared, candidates, h, M = ctx.saved_tensors
        H, counts, steps = M.shape[2], ctx.counts, _steps(ctx.counts)
        d_projected, d_candidates = gates.new_empty(*gates.shape[:2], 3 * H), torch.empty_like(candidates)
        after, start = grad_outputs[0][:, :0], h.new_zeros(len(h), counts[0], H)
        for t in range(len(counts) - 1, -1, -1):
            here = steps[t]
            before = h[:, steps[t - 1]][:, : counts[t]] if t else start
            of_step, candidate = gates[:, here], candidates[:, here]
            z, r = of_step.split(H, 2)
            d_h = grad_outputs[0][:, here].clone()
            d_h[:, : after.shape[1]] += after
            d_candidate = torch.ops.aten.tanh_backward(torch.addcmul(d_h, d_h, z, value=-1.0), candidate)
            d_candidates[:, here] = d_candidate
            d_step = d_projected[:, here]
            d_gates = torch.cat((d_h * (before - candidate), d_candidate * shared[:, here]), 2)
            torch.ops.aten.sigmoid_backward(d_gates, of_step, grad_input=d_step[..., : 2 * H])
            torch.mul(d_candidate, r, out=d_step[..., 2 * H :])
            after = d_h.mul_(z).add_(_product(d_step, M))
        read = [h[:, here][:, :n] for here, n in zip(steps, counts[1:], strict=False)]  # before every step but the first
        d_later = in_dtype(d_projected[:, counts[0] :], M.dtype)
        dU = torch.bmm(d_later.transpose(1, 2), in_dtype(torch.cat((start[:, :0], *read), 1), M.dtype)).to(h.dtype)
        d_projected[..., 2 * H :] = d_candidates
        return d_projected, dU, None, None


def _steps(counts: Sequence[int]) -> list[slice]:
    """Return where the rows of each step lie."""
    ends = torch.tensor((0, *counts)).cumsum(0).tolist()
    return [slice(*of_step) for of_step in pairwise(ends)]


def _product(x: Tensor, M: Tensor) -> Tensor:
    """Return x M of every layer, (D, n, …), made in the precision of M and returned in that of x."""
    return torch.bmm(in_dtype(x, M.dtype), M)[:, : x.shape[1]].to(x.dtype)
