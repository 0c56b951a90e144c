"""The low-rank softmax of the output layer, without ever holding the logits of all positions.

p(y = k) = softmax_k(G_l g + b_G) with g = G_r s of R numbers and K = some 15,000 words: the logits of one batch would be a
hundred times larger than anything else in the model. So rows are taken a few at a time and, in training, the gradient
is formed while they are at hand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 128  # rows at a time: their logits (7.5 MB at K = 15,002) should stay in the last-level cache


class _CrossEntropy(torch.autograd.Function):
    """Σ_i -log softmax(G_l g_i + b)[target_i], with the gradients made in the forward pass."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, G_l: Tensor, b: Tensor, targets: Tensor) -> Tensor:
        wanted = any(ctx.needs_input_grad)
        total = g.new_zeros(())
        if wanted:
            d_g, d_G_l, d_b = torch.empty_like(g), torch.zeros_like(G_l), torch.zeros_like(b)
        for start in range(0, len(g), ROWS):
            rows = slice(start, start + ROWS)
            g_rows, target = g[rows], targets[rows].unsqueeze(1)
            logits = torch.addmm(b, g_rows, G_l.T)
            picked = logits.gather(1, target)
            if not wanted:
                total += (torch.logsumexp(logits, 1) - picked.squeeze(1)).sum()
                continue
            peak = logits.amax(1, keepdim=True)
            p = logits.sub_(peak).exp_()
            mass = p.sum(1, keepdim=True)
            total += (mass.log() + peak - picked).sum()
            p.div_(mass)
            p.scatter_add_(1, target, p.new_full((1, 1), -1.0).expand_as(target))  # ∂loss/∂logits = p - [target]
            torch.mm(p, G_l, out=d_g[rows])
            d_G_l.addmm_(p.T, g_rows)
            d_b += p.sum(0)
        if wanted:
            ctx.save_for_backward(d_g, d_G_l, d_b)
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = grad_outputs
        d_g, d_G_l, d_b = ctx.saved_tensors
        return d_g * scale, d_G_l * scale, d_b * scale, None


def cross_entropy(g: Tensor, G_l: Tensor, b: Tensor, targets: Tensor) -> Tensor:
    """The summed negative log-likelihood, natural log, of ``targets`` (n,) under softmax(g @ G_l.T + b): a scalar.

    g (n, R), G_l (K, R), b (K,). Exact; the gradient is that of the plain formula.
    """
    return _CrossEntropy.apply(g, G_l, b, targets)  # type: ignore[no-any-return, no-untyped-call]


def log_normaliser(g: Tensor, G_l: Tensor, b: Tensor) -> Tensor:
    """log Σ_k exp(G_l g + b)_k for every row of g (n, R): (n,), natural log."""
    out = g.new_empty(len(g))
    for start in range(0, len(g), ROWS):
        rows = slice(start, start + ROWS)
        torch.logsumexp(torch.addmm(b, g[rows], G_l.T), 1, out=out[rows])
    return out
