"""The facts of each section of the page, which ``page.html`` puts into words."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.sampling import hashes
from phrase_rescore.data.vocabulary import too_many_unknown
from phrase_rescore.messages import percent, share
from phrase_rescore.moses.text import readable
from phrase_rescore.report.charts import Records, Spec, scatter
from phrase_rescore.report.page import nats, number
from phrase_rescore.report.rows import Floats, SampleRows, SideWords, is_long
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.translator import Hypothesis, Translator

JOINT_EDGES = np.array([1, 2, 3, 5, 10, 30, 100, 1000])  # where a class of joint counts begins
JOINT_CLASSES = ("1", "2", "3–4", "5–9", "10–29", "30–99", "100–999", "1000+")
RARE = 5  # occurrences at most of a rare source
ENOUGH = 10  # occurrences of a source from which its relative frequencies say something
SHOWN_SOURCES = 8  # long frequent ones, and as many rare ones
SHOWN_ROWS = 12  # of each kind of disagreement
DRAWN, SHOWN_SAMPLES, SHOWN_TARGETS = 50, 5, 3  # of every source; the paper's tables 2 and 3
_COMMONEST = 12  # unknown words shown of a side
POINTS = 1000  # of each class of joint counts
_COMMON = 0.5  # of the words of a phrase, at most, are those of one that is shown already
_SEED = 1

Item = TypeVar("Item")
Ints = NDArray[np.int64]


def spearman(x: Floats, y: Floats) -> float:
    """Rank correlation; equal values share their mean rank. nan where one is constant.

    >>> round(spearman(np.array([1.0, 2.0, 5.0]), np.array([0.0, 3.0, 9.0])), 9)
    1.0
    """

    def ranks(values: Floats) -> Floats:
        _, which, times = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(times) - (times + 1) / 2)[which]

    of_x, of_y = ranks(x), ranks(y)
    return float(np.corrcoef(of_x, of_y)[0, 1]) if len(x) > 1 and of_x.std() and of_y.std() else math.nan


def _joint_classes(rows: SampleRows) -> Ints:
    """Return the place in JOINT_CLASSES of every row; rows without counts (nan) are taken as seen once."""
    return np.searchsorted(JOINT_EDGES, np.fmax(rows.joint, 1), "right") - 1


def diverse(items: Iterable[Item], words: Callable[[Item], bytes]) -> Iterator[Item]:
    """Yield the items that share no more than half of their words with an earlier one."""
    seen = list[set[bytes]]()
    for item in items:
        own = set(words(item).split(b" "))
        if all(len(own & other) <= _COMMON * min(len(own), len(other)) for other in seen):
            seen.append(own)
            yield item


class Targets:
    """The targets of each source that has several: log shares by φ and by the model, which sum to 1 over them."""

    def __init__(self, rows: SampleRows) -> None:
        several = rows.sizes > 1
        self.rows = rows[np.repeat(several, rows.sizes)]
        self.sizes = rows.sizes[several]
        self.begins = self.rows.starts
        self.group = np.repeat(np.arange(len(self.sizes)), self.sizes)
        both = self.rows.log_phi, self.rows.log_p
        self.log_phi, self.log_p = (logs - np.logaddexp.reduceat(logs, self.begins)[self.group] for logs in both)

    def best(self, values: Floats) -> Ints:
        """Return the row of the greatest value of each source, the first of equals."""
        rows: Ints = np.lexsort((-values, self.group))[self.begins]
        return rows

    def agreement(self) -> tuple[float, float]:
        """Return the share of sources whose best target by the model is one of the best by φ, and that of a random choice."""
        if not len(self.sizes):
            return math.nan, math.nan
        best = self.log_phi >= np.maximum.reduceat(self.log_phi, self.begins)[self.group] - 1e-9
        chance = np.add.reduceat(best.astype(float), self.begins) / self.sizes
        return float(best[self.best(self.log_p)].mean()), float(chance.mean())

    def disagreements(self, sign: int) -> Iterable[tuple[int, int]]:
        """Yield rows, and the best of the other score for their source, by what they add to the divergence of the two.

        ``sign`` 1: where the model gives more than φ, -1: less. Of each frequent source only the row that adds most.
        """
        of_one, of_other = (self.log_p, self.log_phi)[::sign]
        weight = np.exp(of_one) * (of_one - of_other)
        most, others = self.best(weight), self.best(of_other)
        counts = self.rows.occurrences
        for i in np.argsort(-weight[most], kind="stable").tolist():
            if counts[i] >= ENOUGH and weight[most[i]] > 0:
                yield int(most[i]), int(others[i])


def summary(rows: SampleRows, targets: Targets | None, sides: Sequence[SideWords], checkpoint: Checkpoint) -> dict[str, Any]:
    """The main figures."""
    given, predicted = checkpoint.sides
    frequent, sure = rows[rows.joint >= ENOUGH], rows.log_phi >= 0
    same, chance = targets.agreement() if targets else (math.nan, math.nan)
    lowest, highest = np.percentile(rows.log_p[sure], (10, 90)).tolist() if sure.any() else (math.nan, math.nan)
    loss, control = (_loss(checkpoint.training, name) for name in ("held_out", "held_out_other_sources"))
    return {
        "given": given, "predicted": predicted, "rho": spearman(rows.log_phi, rows.log_p), "n_frequent": len(frequent),
        "rho_frequent": spearman(frequent.log_phi, frequent.log_p), "several": len(targets.sizes) if targets else 0,
        "same": same, "chance": chance, "loss": loss, "control": control, "scored": len(rows), "lowest": lowest,
        "highest": highest, "sure": int(sure.sum()), "sure_once": int((sure & (_joint_classes(rows) == 0)).sum()),
        "known": {side.name: 1 - side.unknown_share for side in sides},
    }  # fmt: skip


def _loss(training: Any, name: str) -> float:
    """Return a loss in the training summary, which may be anything; nan if it is missing."""
    figures = training.get(name) if isinstance(training, dict) else None
    value = figures.get("loss") if isinstance(figures, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan


def scores(rows: SampleRows, of_table: int, sides: tuple[str, str]) -> tuple[dict[str, Any], Spec]:
    """Two scores of ``rows``, of so many of the table, and their chart; ``sides``: what the model reads and predicts."""
    order = np.argsort(hashes([src + b"\t" + tgt for src, tgt in zip(rows.src, rows.tgt, strict=True)]))
    classes, (read, predicted) = _joint_classes(rows), (rows.src, rows.tgt) if sides[0] == "source" else (rows.tgt, rows.src)
    records: Records = []
    for joint_class in range(len(JOINT_CLASSES)):
        of_class = order[classes[order] == joint_class]
        weight = share(len(of_class), min(len(of_class), POINTS)) * of_table / len(rows)
        for i in of_class[:POINTS].tolist():
            log_phi, log_p = float(rows.log_phi[i]), float(rows.log_p[i])
            records.append({
                "given": readable(read[i]), "predicted": readable(predicted[i]), "class": joint_class,
                "joint": float(rows.joint[i]), "log_phi": round(log_phi, 4), "log_p": round(log_p, 4),
                "phi": float(f"{math.exp(log_phi):.4g}"), "p": float(f"{math.exp(log_p):.4g}"), "weight": round(weight, 3),
            })  # fmt: skip
    medians = _medians(rows)
    left, right = (medians[-1], medians[0]) if len(medians) > 1 and medians[0]["log_phi"] == 0 else (None, None)
    return {"sampled": len(records), "left": left, "right": right}, scatter(records, medians, JOINT_CLASSES, *sides)


def _medians(rows: SampleRows) -> Records:
    """The median of log p in steps of log φ, downwards, that have 50 rows or more; φ = 1 has a step of its own."""
    width = 0.5
    steps = np.ceil(np.maximum(-rows.log_phi, 0) / width)
    points = Records()
    for step in np.unique(steps):
        values = rows.log_p[steps == step]
        if len(values) >= 50:
            points.append({"log_phi": float(-width * (step - 0.5)) if step else 0.0, "log_p": float(np.median(values))})
    return points


def targets(rows: SampleRows, checkpoint: Checkpoint) -> dict[str, Any]:
    """The paper's tables 2 and 3, of long sources with three targets or more: the most frequent ones, and rare ones."""
    groups = zip(rows.occurrences.tolist(), rows.starts.tolist(), rows.sizes.tolist(), strict=True)
    long = [(count, rows[begin : begin + size]) for count, begin, size in groups if size >= 3 and is_long(rows.src[begin])]
    by_frequency = sorted(long, key=lambda item: -item[0])
    frequent = _diverse_sources(source for count, source in by_frequency if count > RARE)
    rare = _diverse_sources(source for count, source in long if count <= RARE)
    phrases = [bytes(source.src[0]) for source in (*frequent, *rare)]
    drawn = dict(zip(phrases, Translator(checkpoint).samples(phrases, DRAWN, _SEED), strict=True))
    known = [phrase.target in source.tgt for source in (*frequent, *rare) for phrase in drawn[source.src[0]]]
    return {
        "frequent": [_entry(source, drawn[source.src[0]]) for source in frequent],
        "rare": [_entry(source, drawn[source.src[0]]) for source in rare],
        "n_drawn": len(known),
        "n_known": sum(known),
    }


def _diverse_sources(sources: Iterable[SampleRows]) -> list[SampleRows]:
    return list(islice(diverse(sources, lambda source: bytes(source.src[0])), SHOWN_SOURCES))


def _entry(rows: SampleRows, drawn: Sequence[Hypothesis]) -> dict[str, Any]:
    """A source, its best targets by φ and by the model, and the likeliest drawn ones: (target, figure, known)."""

    def top(values: Floats) -> list[int]:
        return list(map(int, np.argsort(-values, kind="stable")[:SHOWN_TARGETS]))

    by_phi, by_p, of_model = [], [], []
    for i in top(rows.log_phi):
        joint = f" ({number(float(rows.joint[i]))})" if math.isfinite(rows.joint[i]) else ""
        by_phi.append((rows.tgt[i], f"{math.exp(rows.log_phi[i]):.3g}{joint}", True))
    for i in top(rows.log_p):
        by_p.append((rows.tgt[i], nats(float(rows.log_p[i])), True))
    times = Counter(phrase.target for phrase in drawn)
    log_ps = {phrase.target: phrase.log_p for phrase in drawn}
    for target, log_p in sorted(log_ps.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_SAMPLES]:
        of_model.append((target, f"{nats(log_p)} ({times[target]})", target in rows.tgt))
    return {"src": rows.src[0], "targets": len(rows), "count": rows.occurrences[0], "lists": [by_phi, by_p, of_model]}


def disagreements(targets: Targets) -> dict[str, Any]:
    """Return where the two would decide differently, without repetitions for nearly the same source."""
    rows = targets.rows

    def shares(i: int) -> list[str]:
        return [percent(math.exp(targets.log_phi[i])), percent(math.exp(targets.log_p[i]))]

    def cells(i: int, other: int) -> list[str]:
        joint = f"{number(rows.joint[i])} of {number(rows.src_count[i])}" if math.isfinite(rows.joint[i]) else "–"
        src, tgt, instead = map(readable, (rows.src[i], rows.tgt[i], rows.tgt[other]))
        return [src, tgt, joint, *shares(i), nats(float(rows.log_p[i])), instead, *shares(other)]

    def listed(sign: int) -> list[list[str]]:
        items = diverse(targets.disagreements(sign), lambda item: bytes(rows.src[item[0]]))
        return [cells(*item) for item in islice(items, SHOWN_ROWS)]

    return {"model_more": listed(1), "table_more": listed(-1)}


def coverage(sides: Sequence[SideWords], trained: Sequence[float]) -> dict[str, Any]:
    """Words that the model does not know; ``trained``: their shares in training, source and target."""
    cells, unknown, fits = [], [], True
    for side, of_training in zip(sides, trained, strict=True):
        fits = fits and not too_many_unknown(side.unknown_share, of_training)
        words = side.unknown_words()
        ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
        seen = f"{len(side.counts) - len(ranked):,} of {len(side.vocabulary.words):,}"
        shares = percent(side.unknown_share), percent(of_training)
        cells.append([side.name, number(side.counts.total()), number(words.total()), *shares, seen])
        unknown.append((side.name, len(ranked), ranked[:_COMMONEST]))
    return {"rows": cells, "unknown": unknown, "fits": fits}
