"""Recurrent cells, and cells in layers. A new cell is a class here; ``rnn.network.CELLS`` offers it for phrases.

A state is a tuple of tensors (a GRU has one, an LSTM two), the output h first. All matrices act on row vectors as ``x @ M.T``:
M has the shape (out, in), as in the paper's M x. Sizes: H hidden units, G gates (of any kind), E inputs.
"""

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
    """Return tanh x. On a CPU without gradients it is 2 σ(2 x) - 1: within 2.4e-7, in half the time of torch's tanh."""
    if torch.is_grad_enabled() or x.device.type != "cpu":
        return torch.tanh(x)
    return torch.mul(x, 2.0).sigmoid_().mul_(2.0).sub_(1.0)


class RecurrentCell(nn.Module, ABC):
    """A cell: weights of the input (W, b), of h (U) and, in a decoder, of the summary c of ``summary`` numbers (V, b_V, C).

    The gates' weights are concatenated in common matrices, so that one product serves all, in the order of ``GATES``.
    """

    NAME: ClassVar[str]  # in config.json
    GATES: ClassVar[tuple[str, ...]]  # what follows W, U, b and C in the name of each gate's weights
    MEMORIES: ClassVar[int] = 0  # tensors of a state beside h
    START: ClassVar[dict[str, float]] = {}  # biases that do not start at 0
    U: Tensor

    def __init__(self, inputs: int, hidden: int, summary: int | None = None, upper: bool = False) -> None:
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

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their names in docs/model.md, as views: of a GRU's parameter W these are W_z, W_r and W."""
        matrices = {"W": ["W"], "b": ["b"], "U": [*self.recurrent(self.hidden)]} | ({"C": ["C"]} if self.has_summary else {})
        for symbol, names in matrices.items():
            views = [view for name in names for view in getattr(self, name).split(self.hidden)]
            yield from zip((symbol + gate for gate in self.GATES), views, strict=True)
        if self.has_summary:
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
        return times(embedding, self.W, self.b)

    def project(self, state: State, context: Tensor | None = None) -> Tensor:
        """Return the part of the next step that all continuations of a state share: U h, and in a decoder + C c, (n, G H)."""
        return times(state[0], self.U, context)

    @abstractmethod
    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state, from what ``project`` gave, the state and W x + b of the next inputs x (n, G H)."""


class ResetBefore(RecurrentCell):
    """The encoder's unit of Cho et al. (2014, equations 5 to 8): reset before the product. Gates: z (update), r (reset), h̃."""

    NAME = "cho-gru-reset-before"
    GATES = ("_z", "_r", "")
    U_gates: Tensor

    @classmethod
    def recurrent(cls, hidden: int) -> dict[str, int]:
        """Return the names of the matrices that act on h or r ⊙ h, and how many rows each has."""
        return {"U_gates": 2 * hidden, "U": hidden}

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


class ResetAfter(RecurrentCell):
    """The decoder's unit of Cho et al. (2014, appendix A): reset after the product, of the summary too. Gates as above."""

    NAME = "cho-gru-reset-after"
    GATES = ("_z", "_r", "")

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state (n, H), from U' h' + C c (n, 3 H), the state (n, H) and W' e + b' (n, 3 H)."""
        (h,), H = state, self.hidden
        word_gates, word_candidate = row.split((2 * H, H), 1)
        shared_gates, shared_candidate = projected.split((2 * H, H), 1)
        z, r = torch.sigmoid(word_gates + shared_gates).split(H, 1)  # z', r' = σ(W' e + U' h' + C c)
        candidate = tanh(torch.addcmul(word_candidate, r, shared_candidate))  # tanh(W' e + r' ⊙ (U' h' + C c))
        return (torch.lerp(candidate, h, z),)  # h'_t = z' ⊙ h'_{t-1} + (1 - z') ⊙ h̃'


class LSTM(RecurrentCell):
    """The LSTM of Graves (2013, arXiv 1308.0850, equations 7 to 11) without peepholes: ``torch.nn.LSTM`` with one bias.

    A state is the output h and the memory m. Gates: i (input), f (forget), o (output), g (what is stored). The forget gate's
    bias starts at 1, so that the memory lasts until the gate is trained to forget (Jozefowicz et al. 2015).
    """

    NAME = "lstm"
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


class RNN(RecurrentCell):
    """The plain recurrent unit (Elman 1990), ``torch.nn.RNN`` with one bias: a tanh of everything, and no gates."""

    NAME = "tanh-rnn"
    GATES = ("",)

    def step(self, projected: Tensor, state: State, row: Tensor) -> State:
        """Return the next state (n, H), from U h (+ C c) (n, H), the state and W e + b (n, H)."""
        return (tanh(row + projected),)  # h_t = tanh(W e + U h_{t-1} + C c + b)


class Stack(nn.Module):
    """Layers of cells of one kind (Sutskever et al. 2014), used as a cell. A state has the uppermost layer's tensors first."""

    def __init__(self, cell: type[RecurrentCell], layers: int, inputs: int, hidden: int, summary: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(cell(hidden if n else inputs, hidden, summary, upper=n > 0) for n in range(layers))

    @property
    def cells(self) -> list[RecurrentCell]:
        """The cells, the lowest one first."""
        return list(self.layers)  # type: ignore[arg-type]

    def named_weights(self, side: str, direction: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights under their names in the files, as views."""
        for number, cell in enumerate(self.cells):
            for name, weight in cell.named_weights():
                yield f"{side}.layer{number}.{direction}.{name}", weight

    def empty(self, n: int) -> State:
        """Return the state 0 of n phrases."""
        return tuple(part for cell in self.cells for part in cell.empty(n))

    def initial(self, c: Tensor) -> State:
        """Return the state before the first word, in a decoder, from summaries (n, H)."""
        return tuple(part for cell in reversed(self.cells) for part in cell.initial(c))

    def context(self, c: Tensor) -> Rows:
        """Return C c of every layer, the lowest one first."""
        return tuple(cell.context(c) for cell in self.cells)

    def word_rows(self, embedding: Tensor) -> Tensor:
        """Return what words give to the lowest layer: (n, E) -> (n, G H)."""
        return self.cells[0].word_rows(embedding)

    def project(self, state: State, context: Rows | None = None) -> Rows:
        """Return for every layer the part of the next step that all continuations of a state share."""
        layers = zip(self.cells, self._by_layer(state), context or (None,) * len(self.layers), strict=True)
        return tuple(cell.project(before, shared) for cell, before, shared in layers)

    def step(self, projected: Rows, state: State, row: Tensor) -> State:
        """Return the next state, from what ``project`` gave, the state and the rows of the next words."""
        after: State = ()
        for cell, shared, before in zip(self.cells, projected, self._by_layer(state), strict=True):
            given = times(after[0], cell.W, cell.b) if after else row  # W h + b, h being the output of the layer below
            after = (*cell.step(shared, before, given), *after)
        return after

    def _by_layer(self, state: State) -> list[State]:
        n = len(state) // len(self.layers)
        return [state[place : place + n] for place in range(len(state) - n, -1, -n)]
