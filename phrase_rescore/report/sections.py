"""What each section of the page says: its charts, and the facts that ``page.html`` puts into words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phrase_rescore.data.coverage import too_many_unknown
from phrase_rescore.data.sketch import hashes
from phrase_rescore.errors import percent, share
from phrase_rescore.moses.text import readable
from phrase_rescore.report import charts, statistics
from phrase_rescore.report.maps import WordMap
from phrase_rescore.report.page import nats, number
from phrase_rescore.report.rows import LONG, Floats, SampleRows, SideWords, TableReader
from phrase_rescore.report.statistics import JOINT_CLASSES, Targets, diverse, joint_classes, percentiles
from phrase_rescore.report.theme import Records, Spec
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.translator import Hypothesis

SHOWN_SOURCES = 8  # long frequent ones, and as many rare ones
SHOWN_ROWS = 12  # of each kind of disagreement
DRAWN, SHOWN_SAMPLES, SHOWN_TARGETS = 50, 5, 3  # of every source; the paper's tables 2 and 3
_COMMONEST = 12  # unknown words shown of a side
_POINTS = 1000  # of each class of joint counts

Sides = tuple[str, str]  # the side that the model reads and the one that it predicts


@dataclass(frozen=True)
class Section:
    """Facts, by the name that the template knows them by, and charts by theirs."""

    facts: Any
    charts: Mapping[str, Spec] = field(default_factory=dict)


def summary(rows: SampleRows, targets: Targets | None, table: TableReader, checkpoint: Checkpoint) -> dict[str, Any]:
    """The figures by which one decides."""
    given, predicted = checkpoint.sides
    frequent, sure = rows[rows.joint >= statistics.ENOUGH], rows.log_phi >= 0
    same, chance = targets.agreement() if targets else (math.nan, math.nan)
    lowest, highest = percentiles(rows.log_p[sure], 10, 90)
    loss, control = (_loss(checkpoint.training, name) for name in ("held_out", "held_out_other_sources"))
    return {
        "given": given, "predicted": predicted, "signature": checkpoint.signature,
        "rho": statistics.spearman(rows.log_phi, rows.log_p), "n_ranked": len(rows), "n_frequent": len(frequent),
        "rho_frequent": statistics.spearman(frequent.log_phi, frequent.log_p), "enough": statistics.ENOUGH,
        "grouped": targets is not None, "several": len(targets.sizes) if targets else 0, "same": same, "chance": chance,
        "loss": loss, "control": control, "counted": table.counted,
        "known": {side.name: 1 - side.unknown_share for side in table.sides},
        "scored": len(rows), "sure": int(sure.sum()), "sure_once": int((sure & (joint_classes(rows) == 0)).sum()),
        "lowest": lowest, "highest": highest, "table_rows": table.rows,
    }  # fmt: skip


def _loss(training: Any, name: str) -> float:
    """A loss in the training summary, which nothing has checked; nan if it is not there."""
    figures = training.get(name) if isinstance(training, dict) else None
    value = figures.get("loss") if isinstance(figures, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan


def scores(rows: SampleRows, table: TableReader, sides: Sides) -> Section:
    """(a) every row's two scores."""
    inverse = sides[0] == "target"
    order = np.argsort(hashes([src + b"\t" + tgt for src, tgt in zip(rows.src, rows.tgt, strict=True)]))
    classes = joint_classes(rows)
    records: Records = []
    for joint_class in range(len(JOINT_CLASSES)):
        of_class = order[classes[order] == joint_class]
        weight = share(len(of_class), min(len(of_class), _POINTS)) * table.rows / len(rows)
        for i in of_class[:_POINTS].tolist():
            given, predicted = (rows.tgt[i], rows.src[i]) if inverse else (rows.src[i], rows.tgt[i])
            log_phi, log_p = float(rows.log_phi[i]), float(rows.log_p[i])
            records.append({
                "given": readable(given), "predicted": readable(predicted), "words": given.count(b" ") + 1,
                "class": joint_class, "joint": float(rows.joint[i]), "log_phi": round(log_phi, 4), "log_p": round(log_p, 4),
                "phi": float(f"{math.exp(log_phi):.4g}"), "p": float(f"{math.exp(log_p):.4g}"), "weight": round(weight, 3),
            })  # fmt: skip
    medians = [{"log_phi": x, "log_p": y} for x, y in statistics.median_by_phi(rows)]
    longest = max([record["words"] for record in records], default=1)
    facts: dict[str, Any] = {"sampled": len(records), "most": _POINTS, "counted": table.counted, "left": None}
    if len(medians) > 1:
        left, *_, right = sorted(medians, key=lambda median: median["log_phi"])
        facts |= {"left": left, "right": right}
    return Section(facts, {"scatter": charts.scatter(records, medians, JOINT_CLASSES, longest, *sides)})


def frequency(rows: SampleRows) -> Section:
    """(e) scores by how often a pair was seen."""
    classes, sure = joint_classes(rows), rows.log_phi >= 0

    def means(some: NDArray[np.bool_]) -> dict[str, float] | None:
        return {"log_phi": float(rows.log_phi[some].mean()), "log_p": float(rows.log_p[some].mean())} if some.any() else None

    cells = []
    for place, name in enumerate(JOINT_CLASSES):
        some = classes == place
        if found := means(some):
            (low, high), (of_sure,) = percentiles(rows.log_p[some], 10, 90), percentiles(rows.log_p[some & sure], 50)
            of_log_p = nats(found["log_p"]), nats(low, 1), nats(high, 1)
            shares = percent(float(sure[some].mean())), nats(of_sure, 1)
            cells.append([name, number(int(some.sum())), nats(found["log_phi"]), *of_log_p, *shares])
    often = classes >= int(np.searchsorted(statistics.JOINT_EDGES, statistics.ENOUGH))
    return Section({"rows": cells, "once": means(classes == 0), "often": means(often)})


def choose(rows: SampleRows) -> list[list[SampleRows]]:
    """Choose long frequent and long rare sources to show."""
    return [diverse(items, lambda of: bytes(of.src[0]), SHOWN_SOURCES) for items in statistics.long_sources(rows)]


def targets(chosen: Sequence[Sequence[SampleRows]], drawn: Mapping[bytes, Sequence[Hypothesis]]) -> Section:
    """(b) the paper's tables 2 and 3; ``drawn``: phrases drawn from the model for each source."""
    frequent, rare = ([_entry(rows, drawn.get(rows.src[0], ())) for rows in listed] for listed in chosen)
    known = [phrase.target in rows.tgt for listed in chosen for rows in listed for phrase in drawn.get(rows.src[0], ())]
    return Section({
        "frequent": frequent, "rare": rare, "long": LONG, "rare_count": statistics.RARE, "best": SHOWN_TARGETS,
        "likely": SHOWN_SAMPLES, "drawn": DRAWN, "n_drawn": len(known), "n_known": sum(known),
    })  # fmt: skip


def _entry(rows: SampleRows, drawn: Sequence[Hypothesis]) -> dict[str, Any]:
    """A source, its best targets by φ and by the model, and the likeliest drawn ones."""

    def top(values: Floats) -> list[int]:
        return list(map(int, np.argsort(-values, kind="stable")[:SHOWN_TARGETS]))

    joint = [f" ({number(n)})" if math.isfinite(n) else "" for n in rows.joint.tolist()]
    times = Counter(phrase.target for phrase in drawn)
    likely = sorted({phrase.target: phrase.log_p for phrase in drawn}.items(), key=lambda item: (-item[1], item[0]))
    return {
        "src": rows.src[0], "targets": len(rows), "count": rows.src_count[0] if math.isfinite(rows.src_count[0]) else len(rows),
        "lists": [
            [{"tgt": rows.tgt[i], "figure": f"{math.exp(rows.log_phi[i]):.3g}{joint[i]}", "known": True}
             for i in top(rows.log_phi)],
            [{"tgt": rows.tgt[i], "figure": nats(float(rows.log_p[i])), "known": True} for i in top(rows.log_p)],
            [{"tgt": phrase, "figure": f"{nats(log_p)} ({times[phrase]})", "known": phrase in rows.tgt}
             for phrase, log_p in likely[:SHOWN_SAMPLES]],
        ],
    }  # fmt: skip


def disagreements(of: Targets) -> Section:
    """(d) where the two would decide differently, without those that say the same of nearly the same source."""
    rows = of.rows

    def cells(i: int, other: int) -> list[str]:
        def shares(i: int) -> list[str]:
            return [percent(math.exp(of.log_phi[i])), percent(math.exp(of.log_p[i]))]

        joint = f"{number(rows.joint[i])} of {number(rows.src_count[i])}" if math.isfinite(rows.joint[i]) else "–"
        src, tgt, instead = map(readable, (rows.src[i], rows.tgt[i], rows.tgt[other]))
        return [src, tgt, joint, *shares(i), nats(float(rows.log_p[i])), instead, *shares(other)]

    kinds = {
        name: diverse(of.disagreements(sign), lambda item: bytes(rows.src[item[0]]), SHOWN_ROWS)
        for name, sign in (("model_more", 1), ("table_more", -1))
    }
    return Section({"enough": statistics.ENOUGH} | {name: [cells(*item) for item in kind] for name, kind in kinds.items()})


def maps(drawn: Sequence[WordMap]) -> Section:
    """(c) what the model takes to be alike."""
    return Section(drawn, {one.name: charts.words_map(one.records, by_length=one.name == "phrases") for one in drawn})


def coverage(sides: Sequence[SideWords], rows: int, trained: Sequence[float]) -> Section:
    """(e) words that the model does not know; ``trained``: their shares in training, source and target."""
    cells, unknown = [], []
    for side, of_training in zip(sides, trained, strict=True):
        ranked = sorted(side.unknown_words().items(), key=lambda item: (-item[1], item[0]))
        seen = f"{len(side.counts) - len(ranked):,} of {len(side.vocabulary.words):,}"
        cells.append([
            side.name, number(side.counts.total()), number(side.unknown_words().total()), percent(side.unknown_share),
            percent(of_training), number(side.rows), percent(share(side.rows, rows)), seen,
        ])  # fmt: skip
        unknown.append((side.name, len(ranked), ranked[:_COMMONEST]))
    fits = not any(too_many_unknown(side.unknown_share, its) for side, its in zip(sides, trained, strict=True))
    return Section({"rows": cells, "unknown": unknown, "fits": fits})
