"""What is a column worth? n-best lists tell, if there are enough of them: thousands of the training text, each half of which is
translated by tables, n-grams and networks of the other half.

usage: columns.py WEIGHTS.ini SRC TGT HALF... SYSTEM...     a line of JSON on standard output

A HALF is a folder with lists.gz (with segmentation) of corpus/dev.SRC, whose translation is corpus/dev.TGT, and for every
SYSTEM systems/SYSTEM/phrase-table.gz, tables of the same phrase pairs with other scores. The features of an entry are those of
the decoder, but the logarithms of the table's scores, summed over the phrase pairs, come from the system's table; a pair that
it lacks, a word passed through, adds 0.

Weights start from WEIGHTS.ini, which made the lists, and climb the BLEU of the expected counts (Rosti et al. 2011), with
exp(total) / Σ exp(total) the probability of an entry in its list. That has many tops: they climb again from where they ended,
with all weights three times as large, so that the probabilities are nearer to 0 and 1, and the weights are kept that choose
best; from these, as small as at first, the climbs are made once more. Every SYSTEM but the first starts from the first one's
weights, 0 for what that does not have, so that no column loses because its climb went astray. Weights are tuned on two thirds
of the segments and choose among the entries of the last third, three times. Gains are those over the first SYSTEM, p by
randomization over segments; it does not know that another climb would have ended elsewhere.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from phrase_rescore.errors import RescoreError
from phrase_rescore.evaluation.metrics import Metric
from phrase_rescore.evaluation.significance import randomization_p_values
from phrase_rescore.files.inputs import open_input
from phrase_rescore.moses.hypotheses import read_entries
from phrase_rescore.moses.ini import read_weights
from phrase_rescore.moses.table import split_fields, words
from phrase_rescore.rescoring.tune import climbed, expected_bleu

FOLDS = 3
SHARPNESS = 30.0  # of the entries' probabilities at the start: mert's weights have absolute values that sum to 1
CLIMBS, SHARPER, ROUNDS = 4, 3.0, 2
STEPS = 200
SAMPLES = 1000
TABLE = b"TranslationModel0"

Pair = tuple[bytes, bytes]
Rows = NDArray[np.int64]
Floats = NDArray[np.float64]


class Lists(NamedTuple):
    """The entries of all lists: n of them, in S segments."""

    segment: Rows  # (n,) from 0, never falling
    counts: Floats  # (n, 10) sacrebleu's: lengths of output and reference, matches, n-grams
    decoder: Floats  # (n, features) of the decoder, without those of the table
    labels: list[str]  # of these features
    pairs: list[Pair]
    used: Rows  # (k,) which pair,
    by: Rows  # (k,) and which entry takes it


def read_lists(half: Path, languages: Sequence[str]) -> Lists:
    sources, references = ((half / "corpus" / f"dev.{language}").read_bytes().split(b"\n") for language in languages)
    src, ref = [words(line) for line in sources], [line.decode() for line in references]
    places: dict[Pair, int] = {}
    segment, hypotheses, decoder, used, by = list[int](), list[str](), list[list[float]](), list[int](), list[int]()
    labels: list[str] = []
    with open_input(str(half / "lists.gz")) as rows:
        entries = sorted(read_entries(rows, str(half / "lists.gz")), key=lambda entry: (entry.segment, entry.fields))
        for number, entry in enumerate(entries):  # moses orders equal ones by where they lie in memory
            features = {label: values for label, values in entry.features().items() if label != TABLE}
            labels = labels or [f"{label.decode()}.{i}" for label, values in features.items() for i in range(len(values))]
            decoder.append([value for values in features.values() for value in values])
            segment.append(entry.segment)
            hypotheses.append(b" ".join(entry.hypothesis()).decode())
            for first, last, tgt in entry.derivation():
                pair = b" ".join(src[entry.segment][first : last + 1]), tgt
                used.append(places.setdefault(pair, len(places)))
                by.append(number)
    counts = Metric("bleu", [tuple(ref[i] for i in segment)]).counts(tuple(hypotheses))
    return Lists(
        np.unique(segment, return_inverse=True)[1], counts, np.array(decoder), labels,
        list(places), np.array(used), np.array(by),
    )  # fmt: skip


def read_table(path: Path, lists: Lists) -> Floats:
    """Return the logarithms of a table's scores, summed over the pairs of each entry: (n, scores)."""
    places = {pair: i for i, pair in enumerate(lists.pairs)}
    found: dict[int, list[float]] = {}
    with open_input(str(path)) as rows:
        for row in rows:
            src, tgt, scores, *_ = (field.strip() for field in split_fields(row, 3))
            if (place := places.get((src, tgt))) is not None:
                found[place] = [float(score) for score in words(scores)]
    width = len(next(iter(found.values())))
    logs = np.zeros((len(places), width))
    logs[list(found)] = np.log(np.maximum(np.array(list(found.values())), 1e-30))
    columns = [np.bincount(lists.by, column[lists.used], len(lists.segment)) for column in logs.T]
    return np.stack(columns, axis=1)


def chosen(features: Tensor, weights: Tensor, segment: Rows) -> Rows:
    """Return which entry of every segment has the highest total, the first of equal ones."""
    total = (features @ weights).numpy()
    order = np.lexsort((-total, segment))
    return order[np.append(True, np.diff(segment[order]) > 0)]


def best_tuned(features: Tensor, counts: Tensor, segment: Tensor, start: Tensor) -> Tensor:
    """Return those weights of all climbs, or of the start, whose choice of entries has the best BLEU: (features,)."""

    def score(weights: Tensor) -> float:
        return float(expected_bleu(counts[chosen(features, weights, segment.numpy())].sum(0)))

    best, highest = start, score(start)
    for _ in range(ROUNDS):
        found = best * (start.norm() / best.norm())
        for _ in range(CLIMBS):
            found = climbed(features, counts, segment, found, STEPS)
            if (reached := score(found)) > highest:
                best, highest = found, reached
            found = SHARPER * found
    return best


def judged(features: Floats, lists: Lists, starts: Sequence[Floats]) -> tuple[list[Floats], Rows]:
    """Return the tuned weights of every fold, each (features,), and the entry that is chosen for every segment, (S,).

    ``starts`` are weights for every fold, (features,), of any size.
    """
    scale = np.where(features.std(0) > 1e-9, features.std(0), 1.0)
    scaled, counts = torch.from_numpy(features / scale), torch.from_numpy(lists.counts)
    choice, weights = np.zeros(lists.segment[-1] + 1, np.int64), []
    for fold, start in enumerate(starts):
        held = np.flatnonzero(lists.segment % FOLDS == fold)
        rest = np.flatnonzero(lists.segment % FOLDS != fold)
        segment = torch.from_numpy(np.unique(lists.segment[rest], return_inverse=True)[1])
        size = SHARPNESS / np.abs(start).sum()
        found = best_tuned(scaled[rest], counts[rest], segment, torch.from_numpy(start * size * scale))
        best = held[chosen(scaled[held], found, lists.segment[held])]
        choice[lists.segment[best]] = best
        weights.append(found.numpy() / scale)
    return weights, choice


def joined(halves: list[Lists]) -> Lists:
    """Concatenate lists; pairs of different halves are different, as their tables are."""
    segments = np.cumsum([0, *(half.segment[-1] + 1 for half in halves)])
    entries = np.cumsum([0, *(len(half.segment) for half in halves)])
    pairs = np.cumsum([0, *(len(half.pairs) for half in halves)])
    return Lists(
        np.concatenate([half.segment + first for half, first in zip(halves, segments, strict=False)]),
        np.concatenate([half.counts for half in halves]),
        np.concatenate([half.decoder for half in halves]),
        halves[0].labels,
        [pair for half in halves for pair in half.pairs],
        np.concatenate([half.used + first for half, first in zip(halves, pairs, strict=False)]),
        np.concatenate([half.by + first for half, first in zip(halves, entries, strict=False)]),
    )


def columns(ini: str, languages: Sequence[str], folders: list[Path], systems: list[str]) -> dict[str, object]:
    given = {label.decode(): weights for label, weights in read_weights(ini).items()}
    halves = [read_lists(folder, languages) for folder in folders]
    lists, found, base, of_base = joined(halves), dict[str, object](), np.zeros(0), list[dict[str, float]]()
    for system in systems:
        tables = [
            read_table(folder / "systems" / system / "phrase-table.gz", half)
            for folder, half in zip(folders, halves, strict=True)
        ]
        features = np.concatenate([lists.decoder, np.concatenate(tables)], axis=1)
        labels = [*lists.labels, *(f"{TABLE.decode()}.{i}" for i in range(tables[0].shape[1]))]
        mert = [float(dict(enumerate(given[name])).get(int(i), 0.0)) for name, i in (label.split(".") for label in labels)]
        known = of_base or [dict(zip(labels, mert, strict=True))] * FOLDS
        of_folds, choice = judged(features, lists, [np.array([start.get(label, 0.0) for label in labels]) for start in known])
        of_base = of_base or [dict(zip(labels, weights.tolist(), strict=True)) for weights in of_folds]
        weights = np.mean([weights / np.abs(weights).sum() for weights in of_folds], axis=0)
        counts = lists.counts[choice]
        base = counts if not len(base) else base
        score = float(expected_bleu(torch.from_numpy(counts.sum(0))))
        found[system] = {
            "bleu": score,
            "gain": score - float(expected_bleu(torch.from_numpy(base.sum(0)))),
            "p": randomization_p_values(
                [base[None]], [counts[None]], [lambda sums: float(expected_bleu(torch.tensor(sums)))], SAMPLES, 1
            )[0],
            "length": counts[:, 0].sum() / counts[:, 1].sum(),
            "weights": dict(zip(labels, weights.round(4).tolist(), strict=True)),
        }
    return {"segments": int(lists.segment[-1]) + 1, "entries": len(lists.segment), "systems": found}


def main() -> None:
    torch.set_num_threads(1)  # sums in one order, whatever the machine
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    ini, src, tgt, *rest = sys.argv[1:]
    folders = [Path(name) for name in rest if (Path(name) / "lists.gz").exists()]
    if not folders or len(folders) == len(rest):
        sys.exit(__doc__)
    print(json.dumps(columns(ini, (src, tgt), folders, rest[len(folders) :])))


if __name__ == "__main__":
    try:
        main()
    except RescoreError as error:
        sys.exit(f"columns.py: {error}")
