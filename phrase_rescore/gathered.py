"""Weight gradients of recurrent products taken once a batch, not once a step.

Left to autograd, every step of a recurrence makes a gradient as large as its matrix and adds it to the last one: for
a thousand hidden units that is more memory traffic than the products themselves. The sum over steps Σ_t dy_tᵀ x_t is one
product of everything laid end to end.
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

    def __init__(self) -> None:
        self.uses = 0
        self.parts: list[tuple[Tensor, Tensor]] = []  # (dy, x)


class _Product(torch.autograd.Function):
    """x Mᵀ: (n, in) -> (n, out). The last use to be differentiated returns the gradient of them all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, M: Tensor, gather: _Gather) -> Tensor:
        ctx.save_for_backward(x, M)
        ctx.gather = gather
        gather.uses += 1
        return x @ M.T

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        (dy,) = grad_outputs
        x, M = ctx.saved_tensors
        gather: _Gather = ctx.gather
        dx = dy @ M if ctx.needs_input_grad[0] else None
        dM = None
        if ctx.needs_input_grad[1]:
            gather.parts.append((dy, x))
            if len(gather.parts) == gather.uses:
                dys, xs = (torch.cat(tensors) for tensors in zip(*gather.parts, strict=True))
                dM = dys.T @ xs
                gather.parts.clear()  # x leads back to this use: a circle that nothing else would break
        return dx, dM, None


_active = threading.local()


@contextlib.contextmanager
def gathered_gradients() -> Iterator[None]:
    """Within it, in this thread, products gather. For one forward pass in which every product has a part in the loss."""
    _active.gathers = {}
    try:
        yield
    finally:
        _active.gathers = None


def gathering() -> bool:
    """Whether this thread gathers."""
    return getattr(_active, "gathers", None) is not None


def gathered_product(x: Tensor, M: Tensor) -> Tensor:
    """x Mᵀ: (n, in) -> (n, out), while ``gathering()``."""
    y: Tensor = _Product.apply(x, M, _active.gathers.setdefault(id(M), _Gather()))  # type: ignore[no-untyped-call]
    return y
