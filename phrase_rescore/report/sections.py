"""The charts of ``report`` and what they say, section by section, with the figures of this table and this model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from phrase_rescore import __version__
from phrase_rescore.report import charts
from phrase_rescore.report.curves import curves
from phrase_rescore.report.findings import median_by_phi, scores_by_class
from phrase_rescore.report.page import Section, chart, definitions, paragraph, readable, table, text
from phrase_rescore.report.statistics import JOINT_CLASSES, LONGEST, POINTS, SOURCE_CLASSES, TableStatistics
from phrase_rescore.report.summary import Findings, nats, percent
from phrase_rescore.report.theme import FULL, Spec

_FEWEST = 30  # rows or sources of a mean that is drawn


def scores(found: Findings) -> Section:
    """(a) every row's two scores."""
    s, (given, predicted) = found.statistics, found.sides
    records, sampled = [], 0
    for of_class, largest in zip(s.by_joint[:, 0].tolist(), s.points, strict=True):
        points = largest.ranked()
        sampled += len(points)
        for point in points:
            phrases = (point.tgt, point.src) if found.model.checkpoint.inverse else (point.src, point.tgt)
            records.append({
                "given": readable(phrases[0]), "predicted": readable(phrases[1]), "words": phrases[0].count(b" ") + 1,
                "class": point.joint_class, "joint": point.joint, "log_phi": round(point.log_phi, 4),
                "log_p": round(point.log_p, 4), "phi": float(f"{math.exp(point.log_phi):.4g}"),
                "p": float(f"{math.exp(point.log_p):.4g}"), "weight": round(of_class / len(points), 3),
            })  # fmt: skip
    medians = [{"log_phi": x, "log_p": y} for x, y in median_by_phi(s)]
    longest = max([record["words"] for record in records], default=1)
    spec = charts.scatter(records, medians, JOINT_CLASSES, longest, given, predicted)
    which = (
        f"The {sampled:,} points are a sample: up to {POINTS:,} rows of every class of joint counts, so that the few frequent "
        "pairs can be seen; the histograms weigh every point by the rows that it stands for."
    )
    counted = "" if s.counted else "This table has no counts: all rows are taken as seen once."
    said = (
        "On the dashed line model and table agree. Most points lie below it: the model shares its probability among all "
        "phrases that there are, the table among those that it has seen. The red line is the median of log p; "
        f"{_slope(medians)}"
    )
    how = "Hover over a point to see its pair; Ctrl and the wheel (or a pinch) zooms, dragging moves, a double click returns."
    parts = [paragraph(said), paragraph(which, counted, how, kind="note"), chart("scatter")]
    return Section("scores", "Model against table", parts, {"scatter": spec})


def _slope(medians: Sequence[dict[str, float]]) -> str:
    if len(medians) < 2:
        return "the steeper it rises, the more of φ the model knows."
    left, right = min(medians, key=lambda m: m["log_phi"]), max(medians, key=lambda m: m["log_phi"])
    follows = "the model follows φ" if right["log_p"] > left["log_p"] else "the model does not follow φ"
    return (
        f"it goes from {nats(left['log_p'], 1)} where log φ is {nats(left['log_phi'], 1)} to {nats(right['log_p'], 1)} where φ "
        f"is 1: {follows}."
    )


def by_frequency(found: Findings) -> Section:
    """(e) scores by how often a pair was seen, and shares among a source's targets."""
    s = found.statistics
    spreads, sure = scores_by_class(s), scores_by_class(s, sure=True)
    records, rows = [], []
    for name, (n, phi, p, ones, _), spread, of_sure in zip(JOINT_CLASSES, s.by_joint.tolist(), spreads, sure, strict=True):
        if not n:
            continue
        for series, value, low, high in (
            ("log φ, mean", phi / n, math.nan, math.nan), ("log p, mean", p / n, spread[0], spread[2]),
            ("log p where φ = 1, median", of_sure[1] if ones >= _FEWEST else math.nan, math.nan, math.nan),
        ):  # fmt: skip
            records.append(
                {"seen": name, "series": series, "value": value, "low": low, "high": high, "sure": ones / n, "rows": int(n)}
            )
        rows.append([name, f"{int(n):,}", nats(phi / n), nats(p / n), nats(spread[0], 1), nats(spread[2], 1), percent(ones / n),
                     nats(of_sure[1], 1)])  # fmt: skip
    head = ["joint count", "rows", "mean log φ", "mean log p", "lowest tenth", "highest tenth", "φ = 1", "median log p there"]
    said = (
        "A pair that was seen once, with a source seen once, has φ = 1 whatever it is. The model does not know counts: "
        "it learnt every distinct pair alike."
    )
    once, often = s.by_joint[0], s.by_joint[4:].sum(axis=0)
    if once[0] and often[0]:
        said += (
            f" Pairs seen once have a mean log φ of {nats(once[1] / once[0])} and a mean log p of {nats(once[2] / once[0])}; "
            f"those seen ten times or more {nats(often[1] / often[0])} and {nats(often[2] / often[0])}. "
            "The band has four rows of five; a tenth lie below it and a tenth above."
        )
    parts = [paragraph(said), chart("frequency"), table(head, rows, range(1, len(head)))]
    specs = {"frequency": charts.frequency(records, JOINT_CLASSES)}
    if s.grouped and s.best[:, 0].sum():
        parts += [
            paragraph(
                "Log p of a row says little by itself, since long phrases are less likely. Here both scores are made to "
                "sum to 1 over the targets that the table has for a source. A calibrated model lies on the dashed line; "
                "where it is below, it is too sure of itself. On the right, how often the target of the greatest φ has "
                "the greatest p too."
            ),
            chart("calibration"),
        ]
        specs["calibration"] = _shares(s)
    return Section("frequency-and-calibration", "By frequency", parts, specs)


def _shares(s: TableStatistics) -> Spec:
    records = [
        {"seen": name, "model": p / n, "table": phi / n, "rows": int(n)}
        for name, bins in zip(SOURCE_CLASSES, s.shares.tolist(), strict=True)
        for n, p, phi in bins
        if n >= _FEWEST
    ]
    best = [
        {"seen": name, "who": who, "share": hits / n, "sources": int(n)}
        for name, (n, same, chance) in zip(SOURCE_CLASSES, s.best.tolist(), strict=True)
        for who, hits in (("model", same), ("chance", chance))
        if n
    ]
    return charts.shares(records, best, SOURCE_CLASSES)


def by_length(found: Findings) -> Section:
    """(b) does the model favour short targets?"""
    s, (given, predicted) = found.statistics, found.sides
    sums = s.by_lengths.transpose(1, 0, 2) if found.model.checkpoint.inverse else s.by_lengths
    records = [
        {"given": a, "predicted": b, "score": score, "value": float(total / sums[a, b, 0]), "rows": int(sums[a, b, 0])}
        for a in range(1, LONGEST + 1)
        for b in range(1, LONGEST + 1)
        if sums[a, b, 0] >= _FEWEST
        for score, total in (("phi", sums[a, b, 1]), ("p", sums[a, b, 2]))
    ]
    best = [
        {"given": a, "whose": whose, "value": total / n, "sources": int(n)}
        for a, (n, of_table, of_model) in enumerate(s.best_lengths.tolist())
        for whose, total in (("table", of_table), ("model", of_model))
        if n >= _FEWEST
    ]
    n, of_table, of_model = s.best_lengths.sum(axis=0).tolist()
    said = [
        f"Every further word of a {predicted} costs the model probability, while φ counts a {predicted} as a whole: log "
        "p falls with length even where log φ does not. The word penalty, tuned together with the feature, makes up for "
        "what is the same for all."
    ]
    if n:
        less = of_model / n - of_table / n
        side = "shorter" if less < 0 else "longer"
        said.append(
            f"What counts is which target wins: over {int(n):,} sources with several, the model’s best has "
            f"{of_model / n:.2f} words on average and the table’s {of_table / n:.2f}: {abs(less):.2f} {side}."
        )
    else:
        best = []
    parts = [paragraph(*said), chart("length-bias")] if records else [paragraph(*said)]
    return Section(
        "length", "By length", parts, {"length-bias": charts.lengths(records, best, given, predicted)} if records else {}
    )


def maps(found: Findings) -> Section:
    """(c) what the model holds for alike."""
    parts = [
        paragraph(
            "Near each other stands what the model holds for alike. Ctrl and the wheel (or a pinch) zooms, and labels "
            "come as there is room for them; dragging moves. What the search finds is marked, and listed in the corner. "
            "Distances between far groups mean nothing."
        )
    ]
    specs = {}
    for one in found.maps:
        how = f"{one.method} by cosine distance" + ("; install openTSNE for a better one" if one.method == "PCA" else "")
        parts += [f"<h3>{one.title}</h3>", paragraph(one.said, f"({how}.)", kind="note"), chart(one.name)]
        specs[one.name] = charts.words_map(one.records, by_length=one.name == "phrases")
    if not found.maps:
        parts = [paragraph("There is too little to draw.", kind="note")]
    return Section("maps", "Maps of words and phrases", parts, specs)


def training(found: Findings) -> Section:
    """(e) how the model came to be."""
    if found.run is None:
        return Section("training", "Training", [paragraph("The model directory has no log of its training.", kind="note")])
    best, last = found.run.best, found.run.points[-1]
    said = f"{last.step:,} steps in {last.seconds / 3600:.2f} hours."
    if best and best.loss is not None:
        said += f" The lowest held-out loss, {nats(best.loss)} nats a pair" + (
            f" (perplexity {best.perplexity:,.2f} a word)" if best.perplexity is not None else ""
        ) + f", was that of step {best.step:,}: " + (
            "the last one measured, so that more training would probably help." if best.step == last.step else
            "later steps were no better."
        )  # fmt: skip
    return Section(
        "training",
        "Training",
        [paragraph(said), chart("losses")],
        {"losses": curves([found.run], width=FULL - 320, height=260)},
    )


def made(found: Findings) -> Section:
    """How the page came to be."""
    c = found.columns
    read = f"log φ of score column {c.phi}" + (
        "; the model’s scores were computed for this page" if found.sampled else f", the model’s score of column {c.log_p}"
    )  # fmt: skip
    s = found.statistics
    of = f"{s.rows:,} of {found.rows:,} rows (all those of {s.sources:,} of {found.sources:,} sources)"
    pairs = {
        "command": f"<code>{text(found.command)}</code>",
        "version": f"phrase-rescore {__version__}",
        "table": f"{text(found.table)}: {of if found.sampled else f'{found.rows:,} rows of {found.sources:,} sources'}",
        "columns": read,
        "model": f"{text(found.model.directory)}: <span class=signature>{text(found.model.checkpoint.signature)}</span>",
    }
    if c.signature:
        pairs["scores by"] = f"<span class=signature>{text(c.signature)}</span>"
    return Section("made", "How this page was made", [definitions(pairs)])
