"""The gradient of one minibatch, from all cores and all processes.

The minibatch is cut into parts of like work, and every part's gradient is one core's work: several small problems side by side
are faster than one whose every product is shared out. The parts' sums are added in the order of the parts. So the result
depends on how many parts there are, and not on which was ready first.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from phrase_rescore.runtime import use_threads
from phrase_rescore.training.processes import ALONE, ProcessGroup

Loss = Callable[[nn.Module, Any], Tensor]  # (module, part): the summed loss, a scalar


class Gradients:
    """Computes the gradient of a module's loss, one part of the minibatch on each of ``threads``.

    ``Gradients(...)(parts, n)`` sets the ``grad`` of every parameter that learns and returns the summed loss of the parts.
    The gradient is that of the loss summed over the parts of all processes, divided by ``n``.
    """

    def __init__(self, module: nn.Module, loss: Loss, threads: int = 1, processes: ProcessGroup = ALONE) -> None:
        self.parts = 1 if processes.size > 1 else threads  # DistributedDataParallel wants one backward pass a process
        self._loss, self._processes = loss, processes
        self._module: nn.Module | None = processes.wrap(module)
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._executor = ThreadPoolExecutor(self.parts) if self.parts > 1 else None

    def __call__(self, parts: list[Any], n: float) -> float:
        assert self._module is not None, "closed"
        if self._executor is None:
            loss = self._loss(self._module, parts[0])
            for parameter in self._parameters:
                parameter.grad = None
            (loss * (self._processes.size / n)).backward()
            return float(loss.item())
        losses, gradients = zip(*self._executor.map(self._of_part, parts), strict=True)
        total = list(gradients[0])
        for other in gradients[1:]:
            torch._foreach_add_(total, list(other))
        torch._foreach_div_(total, n)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return float(sum(losses))

    def _of_part(self, part: Any) -> tuple[float, tuple[Tensor, ...]]:
        assert self._module is not None
        use_threads(1)
        loss = self._loss(self._module, part)
        return loss.item(), torch.autograd.grad(loss, self._parameters)

    def close(self) -> None:
        """End the threads and release the module and what wraps it."""
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._module = None
