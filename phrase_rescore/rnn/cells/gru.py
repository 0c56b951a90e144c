"""The two gated units of Cho et al. (2014): an encoder's, equations 5 to 8, and a decoder's, appendix A."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from phrase_rescore.nn.linear import times
from phrase_rescore.rnn.cells.cell import Cell, State, tanh


class ResetBefore(Cell):
    """The encoder's unit: the reset gate acts before the recurrent product. Gates: z (update), r (reset), h̃ (candidate)."""

    GATES = ("_z", "_r", "")
    U_gates: Tensor

    @classmethod
    def recurrent(cls, hidden: int) -> dict[str, int]:
        """Return the names of the matrices that act on h or r ⊙ h, and how many rows each has."""
        return {"U_gates": 2 * hidden, "U": hidden}

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their names in docs/model.md, as views."""
        yield from self.gates("W", "b")
        yield from zip(("U_z", "U_r"), self.U_gates.split(self.hidden), strict=True)
        yield "U", self.U

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return U_z h and U_r h: (n, H) -> (n, 2 H). U (r ⊙ h) cannot be shared: r depends on the next word."""
        (h,) = state
        return times(h, self.U_gates)

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state (n, H), from (n, 2 H), the state (n, H) and W e + b (n, 3 H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = row.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + projected).split(H, 1)  # z, r = σ(W e + U h)                 (6), (5)
        candidate = tanh(times(r * h, self.U, word_candidate))  # h̃ = tanh(W e + U (r ⊙ h))    (8)
        return (torch.lerp(candidate, h, z),)  # h_t = z ⊙ h_{t-1} + (1 - z) ⊙ h̃                      (7)


class ResetAfter(Cell):
    """The decoder's unit: the reset gate acts after the recurrent product, and on the summary's part too. Gates as above."""

    GATES = ("_z", "_r", "")

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state (n, H), from U' h' + C c (n, 3 H), the state (n, H) and W' e + b' (n, 3 H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = row.split((2 * H, H), 1)
        shared_gates, shared_candidate = projected.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + shared_gates).split(H, 1)  # z', r' = σ(W' e + U' h' + C c)
        candidate = tanh(torch.addcmul(word_candidate, r, shared_candidate))  # tanh(W' e + r' ⊙ (U' h' + C c))
        return (torch.lerp(candidate, h, z),)  # h'_t = z' ⊙ h'_{t-1} + (1 - z') ⊙ h̃'
