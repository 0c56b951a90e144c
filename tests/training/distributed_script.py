"""Twenty steps of training in float64, alone or under torchrun; the gradients of every step and the last weights go to a file.

usage: [torchrun …] distributed_script.py FOLDER MINIBATCH …

Writes FOLDER/MINIBATCH.npz for each. One that ends in p is computed in pieces if there are several processes.
"""

import sys

import numpy as np
import torch
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.training import pairs
from phrase_rescore.training.pairs import PairTask
from phrase_rescore.training.processes import Gradients, ProcessGroup, find_processes, process_group

STEPS = 20


def train(processes: ProcessGroup, path: str, batch_size: int, padded: bool) -> None:
    model = small_checkpoint().model.double().requires_grad_(True)
    task = PairTask(model, encoded(random_pairs(300)), encoded([]), batch_size, seed=2, padded=padded and processes.size > 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found: dict[str, np.ndarray] = {}
    gradients = Gradients(model, task, 1, processes)
    for step, batch in zip(range(STEPS), task.batches(0), strict=False):
        loss = gradients([task.parts(batch, processes.size)[processes.rank]], len(batch))
        found[f"loss.{step}"] = np.array(processes.gather(loss)).sum()
        for name, parameter in model.named_parameters():
            found[f"{step}.{name}"] = parameter.grad.numpy().copy()
        optimizer.step()
    gradients.close()
    found |= {f"weight.{name}": parameter.detach().numpy() for name, parameter in model.named_parameters()}
    if processes.is_first:
        np.savez(path, **found)


def main() -> None:
    folder, *sizes = sys.argv[1:]
    pairs.ROOM = 24_000  # of which a process has half: for a pair or two
    with process_group("cpu", find_processes()) as processes:
        for size in sizes:
            train(processes, f"{folder}/{size}.npz", int(size.removesuffix("p")), size.endswith("p"))
        assert processes.gather(float(processes.rank + 7))[0] == [7.0]


if __name__ == "__main__":
    main()
