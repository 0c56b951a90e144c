"""The LSTM of Graves (2013, arXiv 1308.0850, equations 7 to 11) without peepholes, which is ``torch.nn.LSTM`` with one bias."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from phrase_rescore.nn.linear import times
from phrase_rescore.rnn.cells.cell import Cell, State, tanh


class LSTM(Cell):
    """A state is the output h and the memory m. Gates: i (input), f (forget), o (output), g (what is stored).

    The forget gate's bias starts at 1, so that the memory lasts until the gate has learnt when to forget (Gers et al. 2000;
    Jozefowicz et al. 2015): at 0 half of it would be lost, and half of the gradient, at every word.
    """

    GATES = ("_i", "_f", "_o", "_g")
    MEMORIES = 1
    START: ClassVar[dict[str, float]] = {"b_f": 1.0}

    def initial(self, c: Tensor) -> State:
        """Return h'_0 and m'_0 from summaries (n, H): the memory is V' c + b'_V, and the output that of an open gate."""
        m = times(c, self.V, self.b_V)
        return tanh(m), m

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next h and m, (n, H) each, from U h (+ C c) (n, 4 H), the state and W e + b (n, 4 H)."""
        (_, m), H = state, self.hidden
        gates, stored = (row + projected).split((3 * H, H), 1)
        i, f, o = torch.sigmoid(gates).split(H, 1)  # i, f, o = σ(W e + U h + C c + b)
        m = torch.addcmul(f * m, i, tanh(stored))  # m_t = f ⊙ m_{t-1} + i ⊙ g,  g = tanh(W_g e + U_g h + C_g c + b_g)
        return o * tanh(m), m  # h_t = o ⊙ tanh(m_t)
