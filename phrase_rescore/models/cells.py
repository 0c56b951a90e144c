"""Recurrent cells: the only code that knows how a state follows from another.

Training over batches and the walk over prefix trees see a cell through the calls of ``Cell`` alone. A state is a tuple of
tensors (a GRU has one, an LSTM two), the output h first. All matrices act on row vectors as ``x @ M.T``: M has the shape
(out, in), as in the paper's M x. Sizes: H hidden units, E embedding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from phrase_rescore.models.linear import times

State = tuple[Tensor, ...]


def rows_of(state: State, index: Tensor) -> State:
    """Return the state's rows of an index (m,): every tensor (n, …) becomes (m, …)."""
    return tuple(part.index_select(0, index) for part in state)


def tanh(x: Tensor) -> Tensor:
    """Return tanh x, of any shape. On a CPU, where no gradient is made, it is 2 σ(2 x) - 1.

    That is within 2.4e-7 (absolutely; small values lose digits) and takes half the time of torch's tanh.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return torch.tanh(x)
    return torch.mul(x, 2.0).sigmoid_().mul_(2.0).sub_(1.0)


class Cell(nn.Module, ABC):
    """What training and scoring know of a cell, beside ``initial``, which gives the state before the first word."""

    PRODUCTS: ClassVar[tuple[str, ...]] = ()  # matrices of the large products, which may be made in lower precision

    @abstractmethod
    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their names in the paper, as views."""

    @abstractmethod
    def word_rows(self, embedding: Tensor) -> Tensor:
        """Return what words contribute to a step, computed once for each: embeddings (n, E) -> (n, …)."""

    @abstractmethod
    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return the part of the next step that all continuations of a state share: (n, …) each.

        ``context`` is what the summary contributes, in a decoder.
        """

    @abstractmethod
    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        """Return the next state, from what ``project`` gave, the state and the rows of the next words."""


class GRU(Cell):
    """What the two gated units of the paper share: three gates, concatenated in common matrices so that one product serves all.

    Their order is z (update), r (reset), h̃ (candidate).
    """

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.W = nn.Parameter(torch.empty(3 * hidden, embedding))
        self.b = nn.Parameter(torch.empty(3 * hidden))

    def gates(self, *names: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights of each gate: of the parameter W the views W_z, W_r and W."""
        for name in names:
            yield from zip((f"{name}_z", f"{name}_r", name), getattr(self, name).split(self.hidden), strict=True)

    def word_rows(self, embedding: Tensor) -> Tensor:
        """Return W e + b for rows of embeddings: (n, E) -> (n, 3 H). The zero vector e(y_0) has the row b."""
        return torch.addmm(self.b, embedding, self.W.T)


class EncoderCell(GRU):
    """The encoder's unit, equations 5 to 8 of the paper: the reset gate acts before the recurrent product."""

    PRODUCTS = ("U_gates", "U")

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__(embedding, hidden)
        self.U_gates = nn.Parameter(torch.empty(2 * hidden, hidden))
        self.U = nn.Parameter(torch.empty(hidden, hidden))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.gates("W", "b")
        yield from zip(("U_z", "U_r"), self.U_gates.split(self.hidden), strict=True)
        yield "U", self.U

    def initial(self, n: int) -> State:
        """Return h_0 = 0 for n phrases: one tensor (n, H)."""
        return (self.b.new_zeros(n, self.hidden),)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return U_z h and U_r h: (n, H) -> (n, 2 H). U (r ⊙ h) cannot be shared: r depends on the next word."""
        (h,) = state
        return times(h, self.U_gates)

    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        """Return the next state (n, H), from (n, 2 H), the state (n, H) and W e + b (n, 3 H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = word_row.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + projected).split(H, 1)  # z, r = σ(W e + U h)                 (6), (5)
        candidate = tanh(times(r * h, self.U, word_candidate))  # h̃ = tanh(W e + U (r ⊙ h))    (8)
        return (torch.lerp(candidate, h, z),)  # h_t = z ⊙ h_{t-1} + (1 - z) ⊙ h̃                      (7)


class DecoderCell(GRU):
    """The decoder's unit, appendix A: the reset gate acts after the recurrent product, and on the summary's part too."""

    PRODUCTS = ("U", "V", "C")

    def __init__(self, embedding: int, hidden: int, summary: int) -> None:
        super().__init__(embedding, hidden)
        self.U = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.V = nn.Parameter(torch.empty(hidden, summary))
        self.b_V = nn.Parameter(torch.empty(hidden))
        self.C = nn.Parameter(torch.empty(3 * hidden, summary))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.gates("W", "b", "U", "C")
        yield from (("V", self.V), ("b_V", self.b_V))

    def initial(self, c: Tensor) -> State:
        """Return h'_0 = tanh(V' c + b'_V): (n, H) -> one tensor (n, H)."""
        return (tanh(times(c, self.V, self.b_V)),)

    def context(self, c: Tensor) -> Tensor:
        """Return C_z c, C_r c, C c: (n, H) -> (n, 3 H), the same for every target phrase and step of a source."""
        return times(c, self.C)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return U' h' + C c for all three gates: (n, H), (n, 3 H) -> (n, 3 H)."""
        (h,) = state
        return times(h, self.U, context)

    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        """Return the next state (n, H), from (n, 3 H), the state (n, H) and W' e + b' (n, 3 H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = word_row.split((2 * H, H), 1)
        shared_gates, shared_candidate = projected.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + shared_gates).split(H, 1)  # z', r' = σ(W' e + U' h' + C c)
        candidate = tanh(torch.addcmul(word_candidate, r, shared_candidate))  # tanh(W' e + r' ⊙ (U' h' + C c))
        return (torch.lerp(candidate, h, z),)  # h'_t = z' ⊙ h'_{t-1} + (1 - z') ⊙ h̃'
