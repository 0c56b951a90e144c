"""The processes that train one model together, as torchrun starts them; one process is a group of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as one of them sees them."""

    rank: int = 0  # of this process
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process talks and writes, and its held-out figures count."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return the module such that backward leaves the mean of all processes' gradients."""
        return DistributedDataParallel(module) if self.size > 1 else module

    def broadcast(self, value: float) -> float:
        """Return the first process's value in all of them."""
        if self.size == 1:
            return value
        shared = _shared(value)
        dist.broadcast(shared, 0)
        return float(shared.item())

    def sum(self, value: float) -> float:
        """Return the sum over the processes in all of them."""
        if self.size == 1:
            return value
        shared = _shared(value)
        dist.all_reduce(shared)
        return float(shared.item())

    def barrier(self) -> None:
        """Wait until every process has come here."""
        if self.size > 1:  # NCCL would guess this process's GPU from its rank
            dist.barrier(device_ids=[torch.cuda.current_device()] if dist.get_backend() == "nccl" else None)


ALONE = ProcessGroup()


def _shared(value: float) -> Tensor:
    device = f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"
    return torch.tensor(value, dtype=torch.float64, device=device)


def launched() -> bool:
    """Tell whether torchrun, or Slurm with its variables exported, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_device(device: str) -> str:
    """Return this process's own GPU on its machine for ``cuda``, any other device as it is."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if launched() and device == "cuda" else device


@contextlib.contextmanager
def process_group(device: str) -> Iterator[ProcessGroup]:
    """Join the other processes for as long as the ``with`` block lasts: by NCCL among GPUs, by gloo among CPUs.

    No wrapped module may outlive the block (``Gradients.close`` lets go of its own). The reducer of DistributedDataParallel
    holds the process group; were it the last to do so, the group would be destroyed by a thread that holds Python's global
    lock and joins gloo's threads, which wait for that lock to free the tensors that they sent last.
    """
    if not launched():
        yield ALONE
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield ProcessGroup(dist.get_rank(), dist.get_world_size())
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames of a failed step hold the wrapped module
        raise
    finally:
        gc.collect()  # wrapped modules may be parts of circles
        dist.destroy_process_group()
