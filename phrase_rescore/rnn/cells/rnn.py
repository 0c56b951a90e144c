"""The plain recurrent unit (Elman 1990), which is ``torch.nn.RNN`` with one bias."""

from __future__ import annotations

from torch import Tensor

from phrase_rescore.rnn.cells.cell import Cell, State, tanh


class RNN(Cell):
    """A tanh of everything, and no gates."""

    GATES = ("",)

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state (n, H), from U h (+ C c) (n, H), the state and W e + b (n, H)."""
        return (tanh(row + projected),)  # h_t = tanh(W e + U h_{t-1} + C c + b)
