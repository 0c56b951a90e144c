"""Recurrent cells: the only code that knows how a state follows from another.

Everything else (training over batches, the walk over prefix trees) sees a cell through five calls:

- ``initial(c)``: the state before the first word;
- ``project(state, context)``: the part of the next step that all continuations of a state share;
- ``step(projected, state, word_row)``: the next state;
- ``word_rows(embedding)`` and ``context(c)``: what words and the summary contribute, computed once for each.

A state is a tuple of tensors (one here; an LSTM has two), its first the output h. All matrices act on row vectors as
``x @ M.T``: M has shape (out, in), as in the paper's M x. The gates of a cell lie on end in one matrix, in the order
z (update), r (reset), h̃ (candidate), so that one product serves them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from phrase_rescore.models.products import times

State = tuple[Tensor, ...]


def rows_of(state: State, index: Tensor) -> State:
    """The state's rows of an index (m,): every tensor (n, …) becomes (m, …)."""
    return tuple(part.index_select(0, index) for part in state)


def tanh(x: Tensor) -> Tensor:
    """tanh x, of any shape. Where no gradient is made it takes the place of x, on a CPU as 2 σ(2 x) - 1.

    That is within 2.4e-7 (absolutely; small values lose digits) and takes half the time of torch's tanh.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return torch.tanh(x)
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def _gates(parameter: Tensor, hidden: int, names: tuple[str, ...]) -> Iterator[tuple[str, Tensor]]:
    """The gates' parts of a stacked parameter, as views."""
    return zip(names, parameter.split(hidden), strict=True)


class Cell(nn.Module):
    """What training and scoring know of a cell. Sizes: H hidden units, E embedding."""

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.W = nn.Parameter(torch.empty(3 * hidden, embedding))
        self.b = nn.Parameter(torch.empty(3 * hidden))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """(name in the paper, view of the weight), each of its own; shapes (H, E), (H, H) or (H,)."""
        yield from _gates(self.W, self.hidden, ("W_z", "W_r", "W"))
        yield from _gates(self.b, self.hidden, ("b_z", "b_r", "b"))

    def word_rows(self, embedding: Tensor) -> Tensor:
        """W e + b for rows of embeddings: (n, E) -> (n, 3 H). The zero vector e(y_0) has the row b."""
        return torch.addmm(self.b, embedding, self.W.T)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        raise NotImplementedError


class EncoderCell(Cell):
    """The encoder's unit, equations 5 to 8 of the paper: the reset gate acts before the recurrent product."""

    PRODUCTS = ("U_gates", "U")

    def __init__(self, embedding: int, hidden: int) -> None:
        super().__init__(embedding, hidden)
        self.U_gates = nn.Parameter(torch.empty(2 * hidden, hidden))
        self.U = nn.Parameter(torch.empty(hidden, hidden))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from super().named_weights()
        yield from _gates(self.U_gates, self.hidden, ("U_z", "U_r"))
        yield "U", self.U

    def initial(self, n: int) -> State:
        """h_0 = 0 for n phrases: one tensor (n, H)."""
        return (self.b.new_zeros(n, self.hidden),)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """U_z h and U_r h: (n, H) -> (n, 2 H). U (r ⊙ h) cannot be shared: r depends on the next word."""
        (h,) = state
        return times(h, self.U_gates)

    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        """From (n, 2 H), the state (n, H) and W e + b (n, 3 H) to the next state (n, H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = word_row.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + projected).split(H, 1)  # z, r = σ(W e + U h)                 (6), (5)
        candidate = tanh(times(r * h, self.U, word_candidate))  # h̃ = tanh(W e + U (r ⊙ h))    (8)
        return (torch.lerp(candidate, h, z),)  # h_t = z ⊙ h_{t-1} + (1 - z) ⊙ h̃                      (7)


class DecoderCell(Cell):
    """The decoder's unit, appendix A: the reset gate acts after the recurrent product, and on the summary's part too."""

    PRODUCTS = ("U", "V", "C")

    def __init__(self, embedding: int, hidden: int, summary: int) -> None:
        super().__init__(embedding, hidden)
        self.U = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.V = nn.Parameter(torch.empty(hidden, summary))
        self.b_V = nn.Parameter(torch.empty(hidden))
        self.C = nn.Parameter(torch.empty(3 * hidden, summary))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from super().named_weights()
        yield from _gates(self.U, self.hidden, ("U_z", "U_r", "U"))
        yield from _gates(self.C, self.hidden, ("C_z", "C_r", "C"))
        yield from (("V", self.V), ("b_V", self.b_V))

    def initial(self, c: Tensor) -> State:
        """h'_0 = tanh(V' c + b'_V): (n, H) -> one tensor (n, H)."""
        return (tanh(times(c, self.V, self.b_V)),)

    def context(self, c: Tensor) -> Tensor:
        """C_z c, C_r c, C c: (n, H) -> (n, 3 H), the same for every target phrase and step of a source."""
        return times(c, self.C)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """U' h' + C c for all three gates: (n, H), (n, 3 H) -> (n, 3 H)."""
        (h,) = state
        return times(h, self.U, context)

    def step(self, projected: Tensor, state: State, word_row: Tensor) -> State:
        """From (n, 3 H), the state (n, H) and W' e + b' (n, 3 H) to the next state (n, H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = word_row.split((2 * H, H), 1)
        shared_gates, shared_candidate = projected.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + shared_gates).split(H, 1)  # z', r' = σ(W' e + U' h' + C c)
        candidate = tanh(torch.addcmul(word_candidate, r, shared_candidate))  # tanh(W' e + r' ⊙ (U' h' + C c))
        return (torch.lerp(candidate, h, z),)  # h'_t = z' ⊙ h'_{t-1} + (1 - z') ⊙ h̃'
