"""Matrix products x Mᵀ, which take nearly all of the time, and their gradients, taken once a batch and not once a step.

Left to autograd, every step of a recurrence makes a gradient as large as its matrix and adds it to the last one: more memory
traffic than the products themselves. The sum over steps Σ_t dy_tᵀ x_t is one product of all dy_t and all x_t, concatenated.

The products x Mᵀ, dy M and Σ_t dy_tᵀ x_t may be made in bf16. Their results become float32 at once, as under torch's
autocast. On a CPU torch makes them by oneDNN, which compiles a program for every new shape, and to compile takes longer than to
multiply: so rows are filled up with zeros to a multiple of ``MULTIPLE``, and shapes come back. Programs are kept, too: rows by
the thousand are filled up further, which took a gigabyte less after 280 steps of the verses, and 5 % less time.
oneDNN's products in float32 are as exact as MKL's and take 0.4 of the time on AMD's CPUs with AVX-512: scoring has them there.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from phrase_rescore.runtime import onednn_is_faster

MULTIPLE = 64  # the rows of oneDNN's products are filled up to one


def in_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x itself if it has this type, else ``filled``."""
    return x if x.dtype == dtype else filled(x, dtype)


def filled(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of x (…, n, m) of this type, with rows of zeros up to a multiple of ``MULTIPLE``, of many rows of four."""
    *matrices, n, m = x.shape
    multiple = MULTIPLE if n <= 8 * MULTIPLE else 4 * MULTIPLE
    copy = x.new_empty(*matrices, -(-n // multiple) * multiple, m, dtype=dtype)
    copy[..., :n, :], copy[..., n:, :] = x, 0.0
    return copy


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
        low = in_dtype(x, gather.M.dtype)
        ctx.save_for_backward(low, gather.M)
        ctx.gather = gather
        gather.uses += 1
        return (low @ gather.M.T)[: len(x)].to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, M = ctx.saved_tensors
        dtype, n, dy = grad_outputs[0].dtype, len(grad_outputs[0]), in_dtype(grad_outputs[0], M.dtype)
        gather: _Gather = ctx.gather
        dx = (dy @ M)[:n].to(dtype) if ctx.needs_input_grad[0] else None
        dM = None
        if ctx.needs_input_grad[1]:
            gather.parts.append((dy, x))
            if len(gather.parts) == gather.uses:
                dys, xs = (torch.cat(tensors) for tensors in zip(*gather.parts, strict=True))
                dM = (dys.T @ xs).to(dtype)
                gather.parts.clear()  # x leads back to this use: a circle that nothing else would break
        return dx, dM, None


class _Gathering(threading.local):
    """The gradients that a thread gathers, and their precision."""

    matrices: dict[int, _Gather] | None = None  # by id; None: none are gathered
    dtype: torch.dtype | None = None


_active = _Gathering()


@contextlib.contextmanager
def gathered_gradients(dtype: torch.dtype | None = None) -> Iterator[None]:
    """Gather the gradients of this thread's products, made in ``dtype`` (None: the matrix's), in a forward pass to the loss."""
    _active.matrices, _active.dtype = {}, dtype
    try:
        yield
    finally:
        _active.matrices = None


def by_onednn(x: Tensor) -> bool:
    """Return whether ``product`` is oneDNN's: then ``filled`` rows are made in less time than new shapes."""
    float32 = x.device.type == "cpu" and x.dtype == torch.float32
    return float32 and not torch.is_grad_enabled() and onednn_is_faster()


def product(x: Tensor, M: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x Mᵀ, without a gradient, by the library that is faster here: (n, in) -> (n, out). It may lie in ``out``."""
    if by_onednn(x):
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, M.contiguous(), None, "none", [], None)
        return y
    return torch.mm(x, M.T, out=out)


def plain_times(x: Tensor, M: Tensor, add: Tensor | None = None) -> Tensor:
    """Return what ``times`` returns, by the equation: tests compare the two and their gradients."""
    return x @ M.T if add is None else x @ M.T + add


# Why ``times`` looks for its matrix by ``id``, among those of its thread: a network's formulas name a matrix where they use it,
# and should not carry what gathers its gradient through every cell. An id is that of one tensor while a forward pass runs, for
# the module holds its matrices. Threads compute parts of a minibatch at once, and their gradients must not mix.


def times(x: Tensor, M: Tensor, add: Tensor | None = None) -> Tensor:
    """Return x Mᵀ (+ add): (n, in) -> (n, out), made in the precision of M and returned in that of x."""
    if _active.matrices is not None and torch.is_grad_enabled():
        if id(M) not in _active.matrices:
            _active.matrices[id(M)] = _Gather(M, _active.dtype)
        y: Tensor = _Product.apply(x, M, _active.matrices[id(M)])  # type: ignore[no-untyped-call]
    elif M.dtype != x.dtype:
        y = (in_dtype(x, M.dtype) @ M.T)[: len(x)].to(x.dtype)
    elif by_onednn(x):
        y = product(filled(x, x.dtype), M)[: len(x)]
    else:
        return x @ M.T if add is None else torch.addmm(add, x, M.T)
    return y if add is None else y + add
