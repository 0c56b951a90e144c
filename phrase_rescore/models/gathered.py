"""Weight gradients of recurrent products taken once a batch, not once a step.

Left to autograd, every step of a recurrence makes a gradient as large as its matrix and adds it to the last one: for
a thousand hidden units that is more memory traffic than the products themselves. The sum over steps Σ_t dy_tᵀ x_t is one
product of everything laid end to end.

The products x Mᵀ, dy M and Σ_t dy_tᵀ x_t may be made in bf16. What comes of them is turned to float32 at once, as under torch's
autocast, so that everything else, the update and the weights keep all their digits.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class _Gather:
    """The uses of one matrix in one forward pass, and what each contributes to its gradient."""

    def __init__(self, M: Tensor, dtype: torch.dtype | None) -> None:
        self.M = M.detach().to(dtype or M.dtype)  # M itself, or a copy of fewer digits made once
        self.uses = 0
        self.parts: list[tuple[Tensor, Tensor]] = []  # (dy, x)


class _Product(torch.autograd.Function):
    """x Mᵀ: (n, in) -> (n, out). The last use to be differentiated returns the gradient of them all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, M: Tensor, gather: _Gather) -> Tensor:
        low = x.to(gather.M.dtype)
        ctx.save_for_backward(low, gather.M)
        ctx.gather = gather
        gather.uses += 1
        return (low @ gather.M.T).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, M = ctx.saved_tensors
        dtype, dy = grad_outputs[0].dtype, grad_outputs[0].to(M.dtype)
        gather: _Gather = ctx.gather
        dx = (dy @ M).to(dtype) if ctx.needs_input_grad[0] else None
        dM = None
        if ctx.needs_input_grad[1]:
            gather.parts.append((dy, x))
            if len(gather.parts) == gather.uses:
                dys, xs = (torch.cat(tensors) for tensors in zip(*gather.parts, strict=True))
                dM = (dys.T @ xs).to(dtype)
                gather.parts.clear()  # x leads back to this use: a circle that nothing else would break
        return dx, dM, None


_active = threading.local()


@contextlib.contextmanager
def gathered_gradients(dtype: torch.dtype | None = None) -> Iterator[None]:
    """Within it, in this thread, products that get a gradient gather; they are made in ``dtype`` (None: that of their matrix).

    For one forward pass in which every product has a part in the loss.
    """
    _active.gathers, _active.dtype = {}, dtype
    try:
        yield
    finally:
        _active.gathers = None


def gathering() -> bool:
    """Whether this thread gathers: never where no gradient is wanted."""
    return getattr(_active, "gathers", None) is not None and torch.is_grad_enabled()


def gathered_product(x: Tensor, M: Tensor) -> Tensor:
    """x Mᵀ: (n, in) -> (n, out), while ``gathering()``."""
    if id(M) not in _active.gathers:
        _active.gathers[id(M)] = _Gather(M, _active.dtype)
    y: Tensor = _Product.apply(x, M, _active.gathers[id(M)])  # type: ignore[no-untyped-call]
    return y
