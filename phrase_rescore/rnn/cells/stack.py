"""Cells in layers (Sutskever et al. 2014): the input of an upper one is the output h of the one below at the same word.

A stack is used as a cell is. Its state has the tensors of all layers, those of the uppermost first, so that its own output h is
the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from phrase_rescore.rnn.cells.cell import Cell, Rows, State


class Stack(nn.Module):
    """Layers of cells of one kind; the lowest one, number 0, reads ``inputs`` numbers a word. ``summary``: as for ``Cell``."""

    def __init__(self, cell: type[Cell], layers: int, inputs: int, hidden: int, summary: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(cell(hidden if n else inputs, hidden, summary, upper=n > 0) for n in range(layers))
        self._tensors = 1 + cell.MEMORIES  # of a layer's state

    @property
    def cells(self) -> list[Cell]:
        """The cells, the lowest one first."""
        return list(self.layers)  # type: ignore[arg-type]

    def named_weights(self) -> Iterator[tuple[int, str, Tensor]]:
        """Yield the number of a layer, the name of a weight and the weight, as a view."""
        for number, cell in enumerate(self.cells):
            for name, weight in cell.named_weights():
                yield number, name, weight

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
            after = (*cell.step(shared, before, cell.rows_from(after[0]) if after else row), *after)
        return after

    def _by_layer(self, state: State) -> list[State]:
        """Return the state of each layer, the lowest one first."""
        n = self._tensors
        return [state[place : place + n] for place in range(len(state) - n, -1, -n)]
