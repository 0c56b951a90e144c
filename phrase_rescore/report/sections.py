"""What each section of the page says: its charts, and the facts that ``page.html`` puts into words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phrase_rescore.data.coverage import too_many_unknown
from phrase_rescore.moses.text import readable
from phrase_rescore.pages.page import nats, number, percent
from phrase_rescore.pages.theme import FULL, Records, Spec
from phrase_rescore.report import charts, statistics
from phrase_rescore.report.curves import curves
from phrase_rescore.report.maps import Map
from phrase_rescore.report.rows import Floats
from phrase_rescore.report.statistics import Disagreement, SideCoverage, Source, TableStatistics, diverse, share, total
from phrase_rescore.rnn.checkpoint import Checkpoint
from phrase_rescore.rnn.translator import Hypothesis
from phrase_rescore.training.log import Run

SHOWN_SOURCES = 8  # long frequent ones, and as many rare ones
SHOWN_ROWS = 12  # of each kind of disagreement
DRAWN, SHOWN_SAMPLES, SHOWN_TARGETS = 50, 5, 3  # of every source; the paper's tables 2 and 3
_COMMONEST = 12  # unknown words shown of a side
_FEWEST = 30  # rows or sources of a mean that is drawn

Sides = tuple[str, str]  # the side that the model reads and the one that it predicts
Chosen = tuple[list[Source], list[Source]]  # long sources: frequent ones, rare ones


@dataclass(frozen=True)
class Section:
    """Facts, by the name that the template knows them by, and charts by theirs."""

    facts: Any
    charts: Mapping[str, Spec] = field(default_factory=dict)


def summary(s: TableStatistics, checkpoint: Checkpoint) -> dict[str, Any]:
    """The figures by which one decides."""
    given, predicted = checkpoint.sides
    rho, n_ranked = s.rank_correlation()
    rho_frequent, n_frequent = s.rank_correlation(statistics.ENOUGH)
    best, (lowest, _, highest) = total(s.best), s.spread(sure=True)
    loss, control = (_loss(checkpoint.training, name) for name in ("held_out", "held_out_other_sources"))
    return {
        "given": given, "predicted": predicted, "signature": checkpoint.signature,
        "rho": rho, "n_ranked": n_ranked, "rho_frequent": rho_frequent, "n_frequent": n_frequent, "enough": statistics.ENOUGH,
        "grouped": s.grouped, "several": int(best["n"]), "same": share(best["same"], best["n"]),
        "chance": share(best["chance"], best["n"]), "loss": loss, "control": control, "counted": s.counted,
        "known": {side: 1 - coverage.unknown_share for side, coverage in s.coverage.items()},
        "scored": s.rows, "sure": total(s.by_joint)["sure"], "sure_once": float(s.by_joint["sure"][0]),
        "lowest": lowest, "highest": highest,
    }  # fmt: skip


def _loss(training: Any, name: str) -> float:
    """A loss in the training summary, which nothing has checked; nan if it is not there."""
    figures = training.get(name) if isinstance(training, dict) else None
    value = figures.get("loss") if isinstance(figures, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan


def scores(s: TableStatistics, sides: Sides) -> Section:
    """(a) every row's two scores."""
    inverse = sides[0] == "target"
    records: Records = []
    for n, largest in zip(s.by_joint["n"].tolist(), s.points, strict=True):
        points = largest.ranked()
        for point in points:
            given, predicted = (point.tgt, point.src) if inverse else (point.src, point.tgt)
            records.append({
                "given": readable(given), "predicted": readable(predicted), "words": given.count(b" ") + 1,
                "class": point.joint_class, "joint": point.joint, "log_phi": round(point.log_phi, 4),
                "log_p": round(point.log_p, 4), "phi": float(f"{math.exp(point.log_phi):.4g}"),
                "p": float(f"{math.exp(point.log_p):.4g}"), "weight": round(n / len(points), 3),
            })  # fmt: skip
    medians = [{"log_phi": x, "log_p": y} for x, y in s.median_by_phi()]
    longest = max([record["words"] for record in records], default=1)
    facts: dict[str, Any] = {"sampled": len(records), "most": statistics.POINTS, "counted": s.counted, "left": None}
    if len(medians) > 1:
        left, *_, right = sorted(medians, key=lambda median: median["log_phi"])
        facts |= {"left": left, "right": right}
    return Section(facts, {"scatter": charts.scatter(records, medians, statistics.JOINT_CLASSES, longest, *sides)})


def frequency(s: TableStatistics) -> Section:
    """(e) scores by how often a pair was seen, and shares among a source's targets."""
    records, rows = [], []
    for i, (name, sums) in enumerate(zip(statistics.JOINT_CLASSES, s.by_joint, strict=True)):
        if not (n := int(sums["n"])):
            continue
        means = {key: float(sums[key] / n) for key in ("log_phi", "log_p", "sure")}
        (low, _, high), (_, of_sure, _) = s.spread(i), s.spread(i, sure=True)
        common = {"seen": name, "low": math.nan, "high": math.nan, "sure": means["sure"], "rows": n}
        records += [
            common | {"series": "log φ, mean", "value": means["log_phi"]},
            common | {"series": "log p, mean", "value": means["log_p"], "low": low, "high": high},
            common | {"series": "log p where φ = 1, median", "value": of_sure if sums["sure"] >= _FEWEST else math.nan},
        ]
        rows.append([name, number(n), nats(means["log_phi"]), nats(means["log_p"]), nats(low, 1), nats(high, 1),
                     percent(means["sure"]), nats(of_sure, 1)])  # fmt: skip
    ends = {"once": s.by_joint[:1], "often": s.by_joint[np.searchsorted(statistics.JOINT_EDGES, statistics.ENOUGH) :]}
    facts: dict[str, Any] = {"rows": rows, "compared": s.grouped and bool(s.best["n"].any())}
    for name, part in ends.items():
        sums = total(part)
        facts[name] = {key: sums[key] / sums["n"] for key in ("log_phi", "log_p")} if sums["n"] else None
    specs = {"frequency": charts.frequency(records, statistics.JOINT_CLASSES)}
    if facts["compared"]:
        specs["calibration"] = _calibration(s)
    return Section(facts, specs)


def _calibration(s: TableStatistics) -> Spec:
    records = [
        {"seen": name, "rows": int(sums["n"])} | {whose: float(sums[whose] / sums["n"]) for whose in ("model", "table")}
        for name, bins in zip(statistics.SOURCE_CLASSES, s.shares, strict=True)
        for sums in bins[bins["n"] >= _FEWEST]
    ]
    best = [
        {"seen": name, "who": who, "share": float(sums[key] / sums["n"]), "sources": int(sums["n"])}
        for name, sums in zip(statistics.SOURCE_CLASSES, s.best, strict=True)
        for who, key in (("model", "same"), ("chance", "chance"))
        if sums["n"]
    ]
    return charts.shares(records, best, statistics.SOURCE_CLASSES)


def length(s: TableStatistics, sides: Sides) -> Section:
    """(b) does the model favour short targets?"""
    by_lengths = s.by_lengths.T if sides[0] == "target" else s.by_lengths
    records = [
        {"given": a, "predicted": b, "score": score, "value": float(sums[key] / sums["n"]), "rows": int(sums["n"])}
        for a in range(1, statistics.LONGEST + 1)
        for b in range(1, statistics.LONGEST + 1)
        for score, key in (("phi", "log_phi"), ("p", "log_p"))
        if (sums := by_lengths[a, b])["n"] >= _FEWEST
    ]
    best = [
        {"given": a, "whose": whose, "value": float(sums[whose] / sums["n"]), "sources": int(sums["n"])}
        for a, sums in enumerate(s.best_lengths)
        for whose in ("table", "model")
        if sums["n"] >= _FEWEST
    ]
    sums = total(s.best_lengths)
    facts = {"predicted": sides[1], "compared": int(sums["n"]), "drawn": bool(records)}
    facts |= {whose: share(sums[whose], sums["n"]) for whose in ("table", "model")}
    return Section(facts, {"length-bias": charts.lengths(records, best, *sides)} if records else {})


def choose(s: TableStatistics) -> Chosen:
    """Choose long frequent and long rare sources to show."""
    frequent, rare = (diverse(items.ranked(), lambda source: source.src, SHOWN_SOURCES) for items in (s.frequent, s.rare))
    return frequent, rare


def targets(chosen: Chosen, drawn: Mapping[bytes, Sequence[Hypothesis]]) -> Section:
    """(b) the paper's tables 2 and 3; ``drawn``: phrases drawn from the model for each source."""
    frequent, rare = chosen
    known = [phrase.target in source.rows.tgt for source in (*frequent, *rare) for phrase in drawn.get(source.src, ())]
    return Section({
        "frequent": [_entry(source, drawn.get(source.src, ())) for source in frequent],
        "rare": [_entry(source, drawn.get(source.src, ())) for source in rare],
        "long": statistics.LONG, "rare_count": statistics.RARE, "best": SHOWN_TARGETS, "likely": SHOWN_SAMPLES, "drawn": DRAWN,
        "n_drawn": len(known), "n_known": sum(known),
    })  # fmt: skip


def _entry(source: Source, drawn: Sequence[Hypothesis]) -> tuple[Source, Records, Records, Records]:
    """The source, its best targets by φ and by the model, and the likeliest drawn ones."""
    tgt, values = source.rows.tgt, source.rows.values
    joint = [f" ({number(n)})" if math.isfinite(n) else "" for n in values["joint"].tolist()]
    phi, log_p = np.exp(values["log_phi"]), values["log_p"]
    by_phi = [{"tgt": tgt[i], "figure": f"{phi[i]:.3g}{joint[i]}", "known": True} for i in _top(values["log_phi"])]
    by_model = [{"tgt": tgt[i], "figure": nats(float(log_p[i])), "known": True} for i in _top(log_p)]
    times = Counter(phrase.target for phrase in drawn)
    likely = sorted({phrase.target: phrase.log_p for phrase in drawn}.items(), key=lambda item: (-item[1], item[0]))
    sampled = [
        {"tgt": phrase, "figure": f"{nats(log_p)} ({times[phrase]})", "known": phrase in tgt}
        for phrase, log_p in likely[:SHOWN_SAMPLES]
    ]
    return source, by_phi, by_model, sampled


def _top(values: Floats) -> list[int]:
    """Places of the greatest values, the greatest first; of equal ones the first."""
    places: list[int] = np.argsort(-values, kind="stable")[:SHOWN_TARGETS].tolist()
    return places


def disagreements(s: TableStatistics) -> Section:
    """(d) where the two would decide differently."""
    kinds = {"model_more": s.model_more, "table_more": s.table_more}
    return Section({"enough": statistics.ENOUGH} | {name: _disagreements(items.ranked()) for name, items in kinds.items()})


def _disagreements(items: Sequence[Disagreement]) -> list[list[str]]:
    """The strongest ones, without those that say the same of nearly the same source."""
    rows = []
    for item in diverse(items, lambda item: item.row.src, SHOWN_ROWS):
        row, target, other = item.row, item.target, item.other
        joint = f"{number(row.joint)} of {number(row.src_count)}" if math.isfinite(row.joint) else "–"
        rows.append([
            readable(row.src), readable(row.tgt), joint, percent(target.phi), percent(target.p), nats(row.log_p),
            readable(other.tgt), percent(other.phi), percent(other.p),
        ])  # fmt: skip
    return rows


def maps(drawn: Sequence[Map]) -> Section:
    """(c) what the model takes to be alike."""
    return Section(drawn, {one.name: charts.words_map(one.records, by_length=one.name == "phrases") for one in drawn})


def coverage(sides: Mapping[str, SideCoverage], rows: int, trained: Sequence[float]) -> Section:
    """(e) words that the model does not know; ``trained``: their shares in training, source and target."""
    cells, unknown, fits = [], [], True
    for (name, side), of_training in zip(sides.items(), trained, strict=True):
        words, ranked = side.counts.total(), sorted(side.unknown_words().items(), key=lambda item: (-item[1], item[0]))
        seen = f"{len(side.counts) - len(ranked):,} of {len(side.vocabulary.words):,}"
        cells.append([
            name, number(words), number(side.unknown_words().total()), percent(side.unknown_share), percent(of_training),
            number(side.rows), percent(share(side.rows, rows)), seen,
        ])  # fmt: skip
        unknown.append((name, len(ranked), ranked[:_COMMONEST]))
        fits &= not words or not too_many_unknown(side.unknown_share, of_training)
    return Section({"rows": cells, "unknown": unknown, "fits": fits})


def training(run: Run | None) -> Section:
    """(e) how the model came to be."""
    if run is None:
        return Section(None)
    return Section({"best": run.best, "last": run.points[-1]}, {"losses": curves([run], width=FULL - 320, height=260)})
