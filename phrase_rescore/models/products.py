"""x Mᵀ in the precision asked for: the matrix products that take nearly all of a score's time."""

from __future__ import annotations

import torch
from torch import Tensor

from phrase_rescore.models.gathered import gathered_product, gathering

_LEVELS = 63  # x in 7 bits, -63 to 63: with more, pairs of products overflow 16 bits on CPUs without VNNI
_ZERO = 64  # stands for x = 0
_MOST = 127  # M in 8 bits, -127 to 127
_TINY = torch.finfo(torch.float32).tiny


class Int8Matrix:
    """M (out, in) in 8-bit integers for products on CPUs, by oneDNN.

    Every row of M and of x has a scale of its own, so that what a row of x gives does not depend on the rows beside it.
    """

    def __init__(self, M: Tensor) -> None:
        M = M.detach().float()
        self._scales = M.abs().amax(1).div(_MOST).clamp_min(_TINY)
        self._zeros = torch.zeros(len(M), dtype=torch.int32)
        levels = M.div(self._scales.unsqueeze(1)).round().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(levels, None)

    def times(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        """x Mᵀ (+ add): (n, in) -> (n, out), float32."""
        if not len(x):
            return x.new_empty(0, len(self._scales))
        scales = torch.linalg.vector_norm(x, torch.inf, 1, keepdim=True).div_(_LEVELS).clamp_min_(_TINY)
        levels = x.div(scales).add_(_ZERO + 0.5).to(torch.uint8)  # cut off, so rounded
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, _ZERO, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y.mul_(scales) if add is None else torch.addcmul(add, y, scales, out=y)


Matrix = Tensor | Int8Matrix


def times(x: Tensor, M: Matrix, add: Tensor | None = None) -> Tensor:
    """x Mᵀ (+ add): (n, in) -> (n, out), in the precision of M and returned in that of x."""
    if isinstance(M, Tensor) and M.dtype == x.dtype:
        if gathering():
            y = gathered_product(x, M)
            return y if add is None else y + add
        return x @ M.T if add is None else torch.addmm(add, x, M.T)
    if isinstance(M, Int8Matrix):
        return M.times(x, add)
    y = (x.to(M.dtype) @ M.T).to(x.dtype)
    return y if add is None else y.add_(add)


def reduced(M: Tensor, precision: str) -> Matrix:
    """M as ``times`` takes it in a precision. (TF32 is a way of multiplying float32 matrices.)"""
    if precision == "int8":
        return Int8Matrix(M)
    return M.detach().bfloat16() if precision == "bf16" else M
