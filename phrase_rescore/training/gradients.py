"""The gradient of one minibatch, from all cores and all processes.

The batch is cut into parts of like work; every part's gradient is one core's work, as in scoring: several small problems side
by side are faster than one whose every product is shared out. The parts' sums are added in the order of the parts, so
the result depends on how many there are and not on which was ready first.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from phrase_rescore.runtime import use_threads
from phrase_rescore.training.distributed import ALONE, Ranks

Loss = Callable[[nn.Module, Any], Tensor]  # (module, part): the summed loss, a scalar


class Gradients:
    """``Gradients(...)(parts, n)`` sets the ``grad`` of every parameter of ``module`` and returns the summed loss of the parts.

    One part for each of ``threads``. The gradient is that of the loss summed over the parts of all processes, over ``n``.
    """

    def __init__(self, module: nn.Module, loss: Loss, threads: int = 1, ranks: Ranks = ALONE) -> None:
        self._loss, self._ranks = loss, ranks
        self._module: nn.Module | None = ranks.wrap(module)
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._parts = 1 if ranks.world > 1 else threads  # of DistributedDataParallel each process has one backward pass
        self._executor = ThreadPoolExecutor(self._parts) if self._parts > 1 else None

    @property
    def parts(self) -> int:
        """Into how many parts this process wants its share of a batch."""
        return self._parts

    def _of_part(self, part: Any) -> tuple[float, tuple[Tensor, ...]]:
        assert self._module is not None
        use_threads(1)
        loss = self._loss(self._module, part)
        return loss.item(), torch.autograd.grad(loss, self._parameters)

    def __call__(self, parts: list[Any], n: float) -> float:
        assert self._module is not None, "closed"
        if self._executor is None:
            loss = self._loss(self._module, parts[0])
            for parameter in self._parameters:
                parameter.grad = None
            (loss * (self._ranks.world / n)).backward()
            return float(loss.item())
        losses, gradients = zip(*self._executor.map(self._of_part, parts), strict=True)
        total = list(gradients[0])
        for other in gradients[1:]:
            torch._foreach_add_(total, list(other))
        torch._foreach_div_(total, n)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return float(sum(losses))

    def close(self) -> None:
        """Ends the threads and lets go of the module and of what wraps it."""
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._module = None
