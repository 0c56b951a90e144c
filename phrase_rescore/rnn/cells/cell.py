"""What a recurrent cell is: the narrow interface through which everything else sees one.

A state is a tuple of tensors (a GRU has one, an LSTM two), the output h first. All matrices act on row vectors as ``x @ M.T``:
M has the shape (out, in), as in the paper's M x. Sizes: H hidden units, G gates (of any kind), E inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from phrase_rescore.nn.linear import times

State = tuple[Tensor, ...]
Rows = tuple[Tensor, ...]  # several tensors (n, …) of the same n


def rows_of(tensors: Rows, index: Tensor) -> Rows:
    """Return the rows of an index (m,): every tensor (n, …) becomes (m, …)."""
    return tuple(part.index_select(0, index) for part in tensors)


def tanh(x: Tensor) -> Tensor:
    """Return tanh x, of any shape. On a CPU, where no gradient is made, it is 2 σ(2 x) - 1.

    That is within 2.4e-7 (absolutely; small values lose digits) and takes half the time of torch's tanh.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return torch.tanh(x)
    return torch.mul(x, 2.0).sigmoid_().mul_(2.0).sub_(1.0)


class Cell(nn.Module, ABC):
    """A cell, with its weights from the input (W, b) and, in a decoder, from the summary c (V, b_V, C); U are a subclass's.

    The gates' weights are concatenated in common matrices, so that one product serves all, in the order of ``GATES``.
    ``summary``: the size of c, in a decoder. A cell of an upper layer has for input the output of the one below.
    """

    GATES: ClassVar[tuple[str, ...]]  # what follows W, U, b and C in the name of each gate's weights
    MEMORIES: ClassVar[int] = 0  # tensors of a state beside h
    START: ClassVar[dict[str, float]] = {}  # biases that do not start at 0
    U: Tensor

    def __init__(self, inputs: int, hidden: int, summary: int | None, upper: bool) -> None:
        super().__init__()
        self.hidden, self.has_summary = hidden, summary is not None
        gates = len(self.GATES) * hidden
        self.W = nn.Parameter(torch.empty(gates, inputs))
        self.b = nn.Parameter(torch.empty(gates))
        for name, outputs in self.recurrent(hidden).items():
            self.register_parameter(name, nn.Parameter(torch.empty(outputs, hidden)))
        if summary is not None:
            self.V = nn.Parameter(torch.empty(hidden, summary))
            self.b_V = nn.Parameter(torch.empty(hidden))
            self.C = nn.Parameter(torch.empty(gates, summary))
        # The matrices of the large products, which may be made in lower precision; not a word's, made once
        self.products = (*self.recurrent(hidden), *(("V", "C") if self.has_summary else ()), *(("W",) if upper else ()))

    @classmethod
    def recurrent(cls, hidden: int) -> dict[str, int]:
        """Return the names of the matrices that act on h, and how many rows each has."""
        return {"U": len(cls.GATES) * hidden}

    @classmethod
    def parameters_of(cls, inputs: int, hidden: int, summary: int | None) -> int:
        """Return how many numbers a cell of these sizes has."""
        gates = len(cls.GATES) * hidden
        own = gates * (inputs + 1) + hidden * sum(cls.recurrent(hidden).values())
        return own if summary is None else own + gates * summary + hidden * (summary + 1)

    def gates(self, *names: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of each gate: of a GRU's parameter W the views W_z, W_r and W."""
        for name in names:
            yield from zip((name + gate for gate in self.GATES), getattr(self, name).split(self.hidden), strict=True)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their names in docs/model.md, as views."""
        yield from self.gates("W", "b", "U")
        if self.has_summary:
            yield from self.gates("C")
            yield from (("V", self.V), ("b_V", self.b_V))

    def empty(self, n: int) -> State:
        """Return the state 0 before the first word of n phrases, in an encoder: tensors (n, H)."""
        return tuple(self.b.new_zeros(n, self.hidden) for _ in range(1 + self.MEMORIES))

    def initial(self, c: Tensor) -> State:
        """Return the state before the first word, in a decoder: summaries (n, H) -> tensors (n, H)."""
        return (tanh(times(c, self.V, self.b_V)),)  # h'_0 = tanh(V' c + b'_V)

    def context(self, c: Tensor) -> Tensor:
        """Return C c of all gates: (n, H) -> (n, G H), the same for every target phrase and step of a source."""
        return times(c, self.C)

    def word_rows(self, embedding: Tensor) -> Tensor:
        """Return W e + b, computed once for each word: (n, E) -> (n, G H). The zero vector e(y_0) has the row b."""
        return torch.addmm(self.b, embedding, self.W.T)

    def rows_from(self, below: Tensor) -> Tensor:
        """Return W h + b for the outputs h of the layer below: (n, H) -> (n, G H)."""
        return times(below, self.W, self.b)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return the part of the next step that all continuations of a state share: U h, and in a decoder + C c, (n, G H)."""
        return times(state[0], self.U, context)

    @abstractmethod
    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state, from what ``project`` gave, the state and W x + b of the next inputs x (n, G H)."""
