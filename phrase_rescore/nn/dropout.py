"""Dropout that depends on a seed alone."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

Drop = Callable[[Tensor], Tensor]


def dropout(share: float, seed: Sequence[int] | None, device: torch.device | str) -> Drop:
    """Return what multiplies a share of what it gets by 0, the rest by what keeps the mean; without a seed it does nothing."""
    if seed is None or not share:
        return lambda x: x
    kept = 1.0 - share
    generator = torch.Generator(device).manual_seed(int(np.random.SeedSequence(tuple(seed)).generate_state(1)[0]))

    def drop(x: Tensor) -> Tensor:
        drawn = torch.rand(x.shape, generator=generator, device=x.device)
        return x * (drawn < kept).to(x.dtype).div_(kept)

    return drop
