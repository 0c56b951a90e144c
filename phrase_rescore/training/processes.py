"""The processes that train one model, as torchrun starts them (one is a group), and the gradients that their cores compute."""

import contextlib
import gc
import os
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phrase_rescore.errors import OptionError, RescoreError
from phrase_rescore.runtime import use_threads

_MINUTE = timedelta(minutes=1)
_OUTCOME = "outcome"
_LOST = re.compile("gloo.*(peer|[Tt]imed out)|nccl|NCCL", re.DOTALL)  # of a RuntimeError: the words of torch's backends


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as one of them sees them."""

    rank: int = 0  # of this process
    size: int = 1
    store: Any = None  # of torch.distributed, for messages; None if there is one process

    @property
    def is_first(self) -> bool:
        """Whether this process reports and writes, and its held-out figures count."""
        return self.rank == 0

    def gather(self, *values: float) -> list[list[float]]:
        """Return the values of each process in all of them."""
        if self.size == 1:
            return [list(values)]
        device = f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"
        own = torch.tensor(values, dtype=torch.float64, device=device)
        shared = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(shared, own)
        return [numbers.tolist() for numbers in shared]

    def first_alone(self, work: Callable[[], bool]) -> bool:
        """Run ``work`` in the first process while the others wait, and return its result in all of them.

        They wait without a collective, whose time would be limited. Raises what ``work`` raises, in the others RescoreError if
        it failed or the store is gone.
        """
        if self.store is None:
            return work()
        if self.is_first:
            outcome = "failed"
            try:
                done = work()
                outcome = "true" if done else "false"
            finally:
                with contextlib.suppress(RuntimeError):  # the store is gone: the others too
                    self.store.set(_OUTCOME, outcome)
            return done
        told = b""
        while not told:
            try:
                self.store.wait([_OUTCOME], _MINUTE)  # signals are heard in between
                told = self.store.get(_OUTCOME)
            except dist.DistStoreError:  # not yet
                continue
            except RuntimeError as error:
                raise RescoreError(f"the first process is gone ({str(error).splitlines()[0]}); see its error") from None
        if told == b"failed":
            raise RescoreError("the first process failed; see its error")
        return bool(told == b"true")


ALONE = ProcessGroup()


def launched() -> bool:
    """Return whether torchrun, or Slurm with its variables exported, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_device(device: str) -> str:
    """Return this process's own GPU on its machine for ``cuda``, any other device as it is."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if launched() and device == "cuda" else device


def find_processes() -> ProcessGroup:
    """Connect to the other processes that were launched, if any. Nothing collective is possible yet."""
    if not launched():
        return ALONE
    try:
        store, rank, size = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    except ValueError as error:
        raise OptionError(f"{error}; start the processes with torchrun") from None
    return ProcessGroup(rank, size, dist.PrefixStore("phrase-rescore", store))  # type: ignore[attr-defined]


@contextlib.contextmanager
def process_group(device: str, processes: ProcessGroup) -> Iterator[ProcessGroup]:
    """Join the other processes for the ``with`` block, by NCCL (GPUs) or gloo (CPUs). Raises RescoreError if one is lost.

    No wrapped module may outlive the block. Were its reducer the last to hold the process group, a thread that holds Python's
    global lock would destroy that and join gloo's threads, which wait for the lock to free the tensors that they sent last.
    """
    if processes.store is None:
        yield processes
        return
    if on_gpu := torch.device(device).type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, store=processes.store, rank=processes.rank, world_size=processes.size)
    try:
        yield processes
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames of a failed step hold the wrapped module
        if isinstance(error, RuntimeError) and _LOST.search(str(error)):
            reason = str(error).split("This is typically")[0].strip()
            raise RescoreError(f"another process of this training is lost ({reason}); start all again with --resume") from None
        raise
    finally:
        gc.collect()  # wrapped modules may be parts of circles
        dist.destroy_process_group()


class Summed(Protocol):
    """What ``loop.Task`` has to compute gradients."""

    def pieces(self, part: Any) -> list[Any]:
        """Cut a part into pieces that memory holds one at a time."""

    def loss(self, module: nn.Module, piece: Any) -> Tensor:
        """Return the summed loss of a piece."""


class Gradients:
    """The gradient of one minibatch's loss, from all cores and all processes.

    The minibatch is cut into a part of like work for each core: several small problems side by side are faster than one whose
    every product is shared out. Pieces of a part come one after the other. ``Gradients(...)(parts, n)`` sets the ``grad`` of
    every trained parameter, that of the loss over all processes divided by ``n``, added in the order of the parts, and returns
    the summed loss of the parts.
    """

    def __init__(self, module: nn.Module, task: Summed, threads: int = 1, processes: ProcessGroup = ALONE) -> None:
        self.parts = 1 if processes.size > 1 else threads  # DistributedDataParallel wants one backward pass a process
        self._task, self._processes = task, processes
        self._module = DistributedDataParallel(module) if processes.size > 1 else module  # backward leaves the mean gradient
        self._parameters = list(module.parameters())
        self._executor = ThreadPoolExecutor(self.parts) if self.parts > 1 else None

    def __call__(self, parts: list[Any], n: float) -> float:
        if self._executor is None:
            return self._alone(parts[0], n)
        losses, gradients = zip(*self._executor.map(self._of_part, parts), strict=True)
        total = _sum(gradients)
        torch._foreach_div_(total, n)
        for parameter, gradient in zip(self._parameters, total, strict=True):
            parameter.grad = gradient
        return float(sum(losses))

    def _alone(self, part: Any, n: float) -> float:
        """Compute a part whose gradients are added up where they stay; other processes wait for the last piece's."""
        total, pieces = 0.0, self._task.pieces(part)
        for number, piece in enumerate(pieces, 1):
            waits = isinstance(self._module, DistributedDataParallel) and number < len(pieces)
            with self._module.no_sync() if waits else contextlib.nullcontext():  # type: ignore[operator]
                loss = self._task.loss(self._module, piece)
                if number == 1:
                    for parameter in self._parameters:
                        parameter.grad = None
                (loss * (self._processes.size / n)).backward()
            total += loss.item()
        return total

    def _of_part(self, part: Any) -> tuple[float, list[Tensor]]:
        use_threads(1)
        total, gradients = 0.0, list[Sequence[Tensor]]()
        for piece in self._task.pieces(part):
            loss = self._task.loss(self._module, piece)
            gradients = [_sum([*gradients, torch.autograd.grad(loss, self._parameters)])]
            total += loss.item()
        return total, list(gradients[0])

    def close(self) -> None:
        """End the threads and release the module and what wraps it."""
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        del self._module


def _sum(gradients: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Add up gradients, into the first."""
    total = list(gradients[0])
    for other in gradients[1:]:
        torch._foreach_add_(total, list(other))
    return total
