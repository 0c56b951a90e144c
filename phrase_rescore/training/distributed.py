"""The processes that train one model together, as torchrun starts them; one process is a world of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process talks and writes, and its held-out figures count."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module whose gradients, after backward, are the mean of all processes' gradients."""
        return DistributedDataParallel(module) if self.world > 1 else module

    def agreed(self, value: float) -> float:
        """The first process's value, in all of them."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=_device())
        dist.broadcast(shared, 0)
        return float(shared.item())

    def total(self, value: float) -> float:
        """The sum over processes, in all of them."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64, device=_device())
        dist.all_reduce(shared)
        return float(shared.item())


ALONE = Ranks()


def _device() -> str:
    return f"cuda:{torch.cuda.current_device()}" if dist.get_backend() == "nccl" else "cpu"


def launched() -> bool:
    """Whether torchrun, or Slurm with its variables exported, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_device(device: str) -> str:
    """``cuda`` to this process's own GPU on its machine."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if launched() and device == "cuda" else device


@contextlib.contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Joins the other processes for as long as the ``with`` block lasts: NCCL among GPUs, gloo among CPUs.

    No wrapped module may outlive the block (``Gradients.close`` lets go of its own). The reducer of DistributedDataParallel
    holds the process group; were it the last to do so, the group would be destroyed by a thread that holds Python's global
    lock and joins gloo's threads, which wait for that lock to free the tensors that they sent last.
    """
    if not launched():
        yield ALONE
        return
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if torch.device(device).type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames of a failed step hold the wrapped module
        raise
    finally:
        gc.collect()  # wrapped modules may be parts of circles
        dist.destroy_process_group()
