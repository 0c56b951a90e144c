"""The cells that ``--cell`` names."""

from __future__ import annotations

from dataclasses import dataclass

from phrase_rescore.errors import OptionError
from phrase_rescore.rnn.cells.cell import Cell
from phrase_rescore.rnn.cells.gru import ResetAfter, ResetBefore
from phrase_rescore.rnn.cells.lstm import LSTM
from phrase_rescore.rnn.cells.rnn import RNN


@dataclass(frozen=True)
class Cells:
    """The cells of both sides of a network, and what config.json calls them."""

    encoder: type[Cell]
    decoder: type[Cell]
    encoder_name: str
    decoder_name: str


CELLS = {
    "gru": Cells(ResetBefore, ResetAfter, "cho-gru-reset-before", "cho-gru-reset-after"),
    "lstm": Cells(LSTM, LSTM, "lstm", "lstm"),
    "rnn": Cells(RNN, RNN, "tanh-rnn", "tanh-rnn"),
}


def cells_of(name: str) -> Cells:
    """Return the cells of a name. Raises OptionError for one that is not known."""
    if name not in CELLS:
        raise OptionError(f"--cell {name}: no such cell; known are {', '.join(CELLS)}")
    return CELLS[name]
