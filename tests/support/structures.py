"""Every cell, depth and encoder through the whole of the tool: train, be interrupted and resumed, annotate, meet the oracle."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from oracle import log_prob
from small_models import structure, weights
from small_trainings import Training, files

from phrase_rescore import annotate
from phrase_rescore.moses.columns import ColumnFormat
from phrase_rescore.moses.table import words
from phrase_rescore.rnn.checkpoint import Checkpoint, load
from phrase_rescore.rnn.config import ENCODERS, TrainingConfig
from phrase_rescore.rnn.network import CELLS

DEPTHS = (1, 2, 4)
STRUCTURES = [
    {"cell": cell, "layers": layers, "encoder": encoder} for cell, layers, encoder in product(CELLS, DEPTHS, ENCODERS)
]
QUICK = ("gru-1-forward", "lstm-2-bidirectional", "rnn-1-reversed")  # those of make check


def named(chosen: dict[str, Any]) -> str:
    return "-".join(map(str, chosen.values()))


def _case(chosen: dict[str, Any]) -> Any:
    name = named(chosen)
    return pytest.param(chosen, id=name, marks=() if name in QUICK else pytest.mark.slow)


every_structure = pytest.mark.parametrize("chosen", list(map(_case, STRUCTURES)))


def trained_twice(inputs: Iterable[str], folder: Path, config: TrainingConfig) -> tuple[Checkpoint, bool]:
    """Train at one sitting and at two; return the model, and whether both have the same bytes."""
    whole, parts = (Training(tuple(inputs), str(folder / name), config) for name in ("whole", "parts"))
    whole.run()
    parts.stop_after(config.recipe.max_steps * 7 // 10)
    parts.but(resume=True).run()
    return load(whole.model_dir), files(Path(whole.model_dir)) == files(Path(parts.model_dir))


def largest_difference(
    checkpoint: Checkpoint, table: Path, out: Path, model: Path, judged: int, **options: Any
) -> tuple[int, float]:
    """Annotate a table; return its rows, and the largest difference of some rows' log p from the oracle's."""
    annotate(table, model, out, columns=ColumnFormat(scale="log", digits=12), **options)
    lines = out.read_bytes().splitlines()
    w, given = weights(checkpoint), structure(checkpoint)
    differences = []
    for line in lines[:: max(1, len(lines) // judged)]:
        src, tgt, scores = line.split(b" ||| ")[:3]
        ids = [list(vocab.encode(words(side))) for vocab, side in zip(checkpoint.vocabs, (src, tgt), strict=True)]
        differences.append(abs(log_prob(w, *ids, **given) - float(scores.split()[-2])))
    return len(lines), max(differences)
