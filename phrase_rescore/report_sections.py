"""What the page of ``report`` says, part by part, with the figures of this table and this model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phrase_rescore import report_charts as charts
from phrase_rescore.curves import Run
from phrase_rescore.proposals import Proposal
from phrase_rescore.model_report import ModelDirectory
from phrase_rescore.projection import METHODS
from phrase_rescore.report_findings import (
    best_shares, disagreements, diverse, median_by_phi, rank_correlation, scores_by_class, share_of_least_bin, top,
)  # fmt: skip
from phrase_rescore.report_page import Section, chart, definitions, paragraph, readable, table, text, tiles
from phrase_rescore.report_rows import ScoreColumns
from phrase_rescore.report_statistics import (
    ENOUGH, JOINT_CLASSES, LONG, LONGEST, POINTS, RARE, SOURCE_CLASSES, Disagreement, Source, TableStatistics,
)  # fmt: skip
from phrase_rescore.vocabulary_fit import MOST_UNKNOWN

SHOWN_SOURCES = 8  # long frequent ones, and as many rare ones
SHOWN_ROWS = 12  # of each kind of disagreement
DRAWN, SHOWN_SAMPLES, SHOWN_TARGETS = 50, 5, 3  # of every source; the paper's tables 2 and 3
_FEWEST = 30  # rows or sources of a mean that is drawn
_COMMONEST = 12  # unknown words shown of a side


@dataclass(frozen=True)
class Map:
    """A picture of vectors: ``records`` for ``report_charts.words_map``."""

    name: str
    title: str
    said: str
    records: list[dict[str, Any]]
    method: str  # one of projection.METHODS' names


@dataclass
class Findings:
    """All that the page is made of."""

    table: str
    command: str
    columns: ScoreColumns
    statistics: TableStatistics
    model: ModelDirectory
    rows: int  # of the whole table
    sources: int
    chosen: tuple[list[Source], list[Source]]  # long ones: frequent, rare
    proposals: dict[bytes, list[Proposal]]
    maps: list[Map]
    run: Run | None
    warnings: list[str] = field(default_factory=list)

    @property
    def sampled(self) -> bool:
        """Whether the model has scored a sample for this page; otherwise the scores are the table's."""
        return self.columns.log_p is None

    @property
    def sides(self) -> tuple[str, str]:
        return self.model.checkpoint.sides


def nats(x: float, digits: int = 2) -> str:
    """With a minus sign.

    >>> nats(-0.5), nats(float("nan"))
    ('−0.50', 'none')
    """
    return f"{x:,.{digits}f}".replace("-", "−") if math.isfinite(x) else "none"


def percent(x: float) -> str:
    return f"{x:.1%}" if math.isfinite(x) else "none"


def _of(loss: Any, key: str) -> float:
    """A figure of the training summary, which nothing has checked."""
    value = loss.get(key) if isinstance(loss, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan


def head(found: Findings) -> str:
    """Title, warnings, the figures by which one decides."""
    s, (given, predicted) = found.statistics, found.sides
    everything, n = rank_correlation(s)
    frequent, n_frequent = rank_correlation(s, ENOUGH)
    several, same, chance = best_shares(s)
    training = found.model.checkpoint.training
    loss, control = (_of(training.get(name), "loss") for name in ("held_out", "held_out_other_sources"))
    known = [1 - side.unknown / side.words if side.words else math.nan for side in s.coverage]
    ranked = f"Spearman’s ρ with log φ, {n:,} rows" + (
        f"; {nats(frequent)} over the {n_frequent:,} seen {ENOUGH} times or more" if n_frequent > 1 and s.counted else ""
    )
    figures = [("Rank correlation", nats(everything), ranked)]
    if s.grouped:
        figures.append(
            ("The same best target", percent(same), f"of {several:,} sources with several; chance finds {percent(chance)}")
        )
    figures.append(("Held-out loss", f"{nats(loss)} <small>nats a pair</small>" if math.isfinite(loss) else "unknown",
                    f"when trained; {nats(control)} with sources exchanged" if math.isfinite(control) else "the model’s config does not say"))  # fmt: skip
    figures.append((f"{predicted.capitalize()} words known", percent(known[("source", "target").index(predicted)]),
                    f"of the {given} words {percent(known[('source', 'target').index(given)])}"))  # fmt: skip
    return "\n".join([
        f"<h1>p({predicted} | {given}) of the model beside φ of the table</h1>",
        paragraph(text(found.table), f"— {found.rows:,} rows of {found.sources:,} sources", kind="by"),
        f'<p class="by signature">{text(found.model.checkpoint.signature)}</p>',
        *(paragraph(text(warning), kind="warning") for warning in found.warnings),
        tiles(figures),
        paragraph(*_verdict(found, everything, loss, control, same, chance)),
        paragraph(
            "Scores are natural logarithms, in nats: one nat less is a probability smaller by the factor e = 2.72. "
            "φ is the table’s relative frequency, p the model’s probability; phrases are shown with Moses’ escapes undone.",
            kind="note",
        ),
    ])  # fmt: skip


def _verdict(found: Findings, rho: float, loss: float, control: float, same: float, chance: float) -> list[str]:
    s, said = found.statistics, list[str]()
    if math.isfinite(loss) and math.isfinite(control):
        said.append(
            f"On held-out pairs the model loses {nats(loss)} nats, and {nats(control)} when it is given other sources of the same "
            f"length: {'it does read the source' if control > loss + 1 else 'it hardly reads the source, and should not be trusted'}."
        )
    if math.isfinite(rho):
        what = (
            "is nearly what φ says already"
            if rho > 0.9
            else "goes its own way beside φ"
            if rho > 0.1
            else "has little to do with φ"
        )
        said.append(
            f"Its ranking of the rows {what} (ρ = {nats(rho)}); a feature helps where it knows something that φ does not."
        )
    sure = share_of_least_bin(s)
    low, _, high = _spread_of_sure(found)
    if sure > 0.01 and math.isfinite(low):
        said.append(
            f"To {percent(sure)} of the rows the table gives φ = 1, most often since they were seen once; among these the model tells "
            f"apart by log p from {nats(low, 1)} (the lowest tenth) to {nats(high, 1)} (the highest)."
        )
    if math.isfinite(same):
        said.append(
            f"Given a source with several targets it finds the table’s best in {percent(same)} of cases, "
            f"where chance would in {percent(chance)}."
        )
    return [
        *said,
        "Whether BLEU rises only tuning tells: <code>annotate</code>, <code>moses-ini</code>, MERT, <code>evaluate</code>.",
    ]


def _spread_of_sure(found: Findings) -> list[float]:
    from phrase_rescore.report_findings import quantiles
    from phrase_rescore.report_statistics import P_STEP

    return quantiles(found.statistics.density[:, 0].sum(axis=0, dtype="int64"), (0.1, 0.5, 0.9), P_STEP)


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
        f"The {sampled:,} points are a sample: up to {POINTS:,} rows of every class of joint counts, so that the few frequent pairs "
        "can be seen; the histograms weigh every point by the rows that it stands for."
    )
    counted = "" if s.counted else "This table has no counts: all rows are taken as seen once."
    said = (
        "On the dashed line model and table agree. Points below it: the model has to share its probability among all phrases there "
        "are, the table only among those that it has seen, so most lie below. The red line is the median of log p; "
        f"{_slope(medians)}"
    )
    how = "Hover over a point to see its pair, scroll to zoom, drag to move, double-click to return."
    return Section("scores", "Model against table", [paragraph(said), paragraph(which, counted, how, kind="note"), chart("scatter")],
                   {"scatter": spec})  # fmt: skip


def _slope(medians: Sequence[dict[str, float]]) -> str:
    if len(medians) < 2:
        return "the steeper it rises, the more of φ the model knows."
    left, right = min(medians, key=lambda m: m["log_phi"]), max(medians, key=lambda m: m["log_phi"])
    return (
        f"it goes from {nats(left['log_p'], 1)} where log φ is {nats(left['log_phi'], 1)} to {nats(right['log_p'], 1)} where φ = 1: "
        f"{'the model follows φ' if right['log_p'] > left['log_p'] else 'the model does not follow φ'}."
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
                {"count": name, "series": series, "value": value, "low": low, "high": high, "sure": ones / n, "rows": int(n)}
            )
        rows.append([name, f"{int(n):,}", nats(phi / n), nats(p / n), nats(spread[0], 1), nats(spread[2], 1), percent(ones / n),
                     nats(of_sure[1], 1)])  # fmt: skip
    head = [
        "joint count",
        "rows",
        "mean log φ",
        "mean log p",
        "its lowest tenth below",
        "its highest tenth above",
        "φ = 1",
        "median log p there",
    ]
    said = (
        "A pair that was seen once with a source seen once has φ = 1, whatever it is. The model does not know counts: it learnt "
        "every distinct pair once."
    )
    once, often = s.by_joint[0], s.by_joint[4:].sum(axis=0)
    if once[0] and often[0]:
        said += (
            f" Pairs seen once have a mean log φ of {nats(once[1] / once[0])} and a mean log p of {nats(once[2] / once[0])}; those seen "
            f"ten times or more {nats(often[1] / often[0])} and {nats(often[2] / often[0])}. The band has 80 % of the rows."
        )
    parts = [paragraph(said), chart("frequency"), table(head, rows, range(1, len(head)))]
    specs = {"frequency": charts.frequency(records, JOINT_CLASSES)}
    if s.grouped and s.best[:, 0].sum():
        parts += [
            paragraph(
                "Log p of a row says little by itself, since long phrases are less likely. Here both are made to sum to 1 over the "
                "targets that the table has for a source. A calibrated model would lie on the dashed line; below it, it is too sure "
                "of itself. On the right, how often the target of the greatest φ has the greatest p too."
            ),
            chart("calibration"),
        ]
        specs["calibration"] = _shares(s)
    return Section("frequency-and-calibration", "By frequency", parts, specs)


def _shares(s: TableStatistics) -> charts.Spec:
    records = [
        {"count": name, "model": p / n, "table": phi / n, "rows": int(n)}
        for name, bins in zip(SOURCE_CLASSES, s.shares.tolist(), strict=True)
        for n, p, phi in bins
        if n >= _FEWEST
    ]
    best = [
        {"count": name, "who": who, "share": hits / n, "sources": int(n)}
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
        f"Every further word of a {predicted} costs the model probability, while φ of a {predicted} is counted whole: log p falls "
        "with length even where log φ does not. The word penalty’s weight, which is tuned with the feature’s, makes up for the part "
        "that is the same for all."
    ]
    if n:
        less = of_model / n - of_table / n
        side = "shorter" if less < 0 else "longer"
        said.append(
            f"What counts is which target wins: over {int(n):,} sources with several, the model’s best has {of_model / n:.2f} words on "
            f"average and the table’s {of_table / n:.2f}, {abs(less):.2f} {side}."
        )
    else:
        best = []
    parts = [paragraph(*said), chart("length-bias")] if records else [paragraph(*said)]
    return Section(
        "length", "By length", parts, {"length-bias": charts.lengths(records, best, given, predicted)} if records else {}
    )


def proposals(found: Findings) -> Section:
    """(b) the paper's tables 2 and 3."""
    parts = [
        paragraph(
            f"Sources of {LONG} words and more that have three targets or more: the {SHOWN_TARGETS} best of their rows by φ and by the "
            f"model, and the {SHOWN_SAMPLES} most likely of {DRAWN} phrases drawn from the model, which knows nothing of the rows. "
            "Drawn phrases that the table does not have are <span style='color:var(--red)'>red</span>."
        )
    ]
    for title, sources in zip(
        ("Frequent ones", f"Rare ones, seen {RARE} times at most"), found.chosen, strict=True
    ):  # fmt: skip
        parts.append(f"<h3>{title}</h3>")
        if not sources:
            parts.append(paragraph("There are none in this table.", kind="note"))
            continue
        head = ["source", "table: φ (joint count)", "model, of the same rows: log p", f"model, {DRAWN} drawn: log p (times)"]
        parts.append(table(head, [_of_source(source, found.proposals.get(source.src, [])) for source in sources], kind="pairs"))
    in_table, drawn = _drawn_in_table(found)
    if drawn:
        parts.append(paragraph(
            f"Of the {drawn:,} phrases drawn for these sources {percent(in_table / drawn)} are among the rows of their source.", kind="note",
        ))  # fmt: skip
    return Section("targets", "What each likes best", parts)


def _drawn_in_table(found: Findings) -> tuple[int, int]:
    rows = {source.src: set(source.tgt) for source in (*found.chosen[0], *found.chosen[1])}
    drawn = [(src, proposal) for src, listed in found.proposals.items() for proposal in listed]
    return sum(proposal.target in rows[src] for src, proposal in drawn), len(drawn)


def _of_source(source: Source, drawn: Sequence[Proposal]) -> list[str]:
    def items(listed: Sequence[tuple[bytes, str, bool]]) -> str:
        lines = (f"<li{'' if known else ' class=new'}>{text(tgt)}<span>{figure}</span></li>" for tgt, figure, known in listed)
        return f'<ol class="targets">{"".join(lines)}</ol>'

    by_phi = [
        (source.tgt[i], f"{math.exp(source.log_phi[i]):.3g}" + (f" ({source.joint[i]:g})" if math.isfinite(source.joint[i]) else ""), True)
        for i in top(source.log_phi, SHOWN_TARGETS)
    ]  # fmt: skip
    by_model = [(source.tgt[i], nats(float(source.log_p[i])), True) for i in top(source.log_p, SHOWN_TARGETS)]
    times: dict[bytes, int] = {}
    for proposal in drawn:
        times[proposal.target] = times.get(proposal.target, 0) + 1
    best = sorted({proposal.target: proposal.log_p for proposal in drawn}.items(), key=lambda item: -item[1])[:SHOWN_SAMPLES]
    sampled = [(tgt, f"{nats(log_p)} ({times[tgt]})", tgt in source.tgt) for tgt, log_p in best]
    name = f"{text(source.src)}<br><span class=count>seen {source.count:,.6g} times, {len(source.tgt):,} targets</span>"
    return [name, items(by_phi), items(by_model), items(sampled)]


def differences(found: Findings) -> Section:
    """(d) where the two would decide otherwise."""
    s = found.statistics
    parts = [
        paragraph(
            "A plain difference of the two logarithms would list long phrases and nothing else. So both scores are made to sum to 1 over "
            f"the targets of a source, of sources seen {ENOUGH} times or more, and rows are ranked by what they add to the divergence of "
            "the two: the share that one gives, times the log of the quotient of both. These are the decisions that the feature would "
            "change. Read them: are the model’s choices better translations, or worse ones?"
        )
    ]
    for title, items, other in (
        ("The model gives more", s.model_more, "the table’s best"), ("The table gives more", s.table_more, "the model’s best"),
    ):  # fmt: skip
        shown = disagreements(items.ranked(), SHOWN_ROWS)
        parts.append(f"<h3>{title}</h3>")
        if not shown:
            parts.append(paragraph("No source has been seen often enough to tell.", kind="note"))
            continue
        columns = [
            "source",
            "target",
            "joint count",
            "share by φ",
            "by the model",
            "log p",
            f"{other}",
            "share by φ",
            "by the model",
        ]
        parts.append(table(columns, [_difference(item) for item in shown], (2, 3, 4, 5, 7, 8), kind="rows"))
    return Section("disagreements", "Where they disagree most", parts)


def _difference(item: Disagreement) -> list[str]:
    row, (other, phi, p) = item.row, item.others
    of = f"{row.joint:,.6g} of {row.src_count:,.6g}" if math.isfinite(row.joint) else "–"
    return [text(row.src), text(row.tgt), of, percent(item.share_phi), percent(item.share_p), nats(row.log_p), text(other), percent(phi),
            percent(p)]  # fmt: skip


def maps(found: Findings) -> Section:
    """(c) what the model holds for alike."""
    parts = [
        paragraph(
            "Near each other stands what the model holds for alike. Scroll to zoom: labels come as there is room for them. What the "
            "search finds is named and marked. Distances between far groups, and the axes, mean nothing."
        )
    ]
    specs = {}
    for one in found.maps:
        how = f"{one.method} by cosine distance" + ("; install openTSNE for a better one" if one.method == METHODS[""] else "")
        parts += [f"<h3>{one.title}</h3>", paragraph(one.said, f"({how}.)", kind="note"), chart(one.name)]
        specs[one.name] = charts.words_map(one.records, by_length=one.name == "phrases")
    if not found.maps:
        parts = [paragraph("There is too little to draw.", kind="note")]
    return Section("maps", "Maps of words and phrases", parts, specs)


def coverage(found: Findings) -> Section:
    """(e) words that the model does not know."""
    s, rows, unknown = found.statistics, [], []
    for name, side, trained in zip(("source", "target"), s.coverage, found.model.checkpoint.unk_shares, strict=True):
        share = side.unknown / side.words if side.words else math.nan
        rows.append([name, f"{side.words:,}", f"{side.unknown:,}", percent(share), percent(trained), f"{side.rows:,}",
                     percent(side.rows / s.rows) if s.rows else "none",
                     f"{int(side.seen[2:].sum()):,} of {len(side.vocabulary.words):,}"])  # fmt: skip
        commonest = sorted(side.unknown_words.items(), key=lambda item: (-item[1], item[0]))[:_COMMONEST]
        unknown.append(f"{len(side.unknown_words):,} distinct unknown {name} words; the commonest: "
                       + ", ".join(f"{text(word)} ({n:,})" for word, n in commonest) + "." if commonest else
                       f"No {name} word is unknown.")  # fmt: skip
    head = ["side", "words", "unknown", "share", "in training", "rows with one", "share of rows", "of its shortlist seen here"]
    said = "Every unknown word is the same to the model, and its probability that of all of them together: such a row’s score is too high. "
    shares = [side.unknown / side.words if side.words else 0.0 for side in s.coverage]
    fits = all(
        a <= max(MOST_UNKNOWN, 2 * b) for a, b in zip(shares, found.model.checkpoint.unk_shares, strict=True)
    )  # fmt: skip
    said += "The shares are much like those of training: model and table go together." if fits else (
        "<b>There are many more than in training: was the table tokenized, escaped or lower-cased otherwise?</b>"
    )  # fmt: skip
    return Section("coverage", "Unknown words", [paragraph(said), table(head, rows, range(1, 8)), *map(paragraph, unknown)])


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
    return Section("training", "Training", [paragraph(said), chart("losses")], {"losses": charts.training(found.run)})


def made(found: Findings) -> Section:
    """How the page came to be."""
    from phrase_rescore import __version__

    c = found.columns
    read = f"log φ of score column {c.phi}" + (
        "; the model’s scores were computed for this page" if found.sampled else f", the model’s score of column {c.log_p}"
    )  # fmt: skip
    of = f"{found.statistics.rows:,} of {found.rows:,} rows (all those of {found.statistics.sources:,} of {found.sources:,} sources)"
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


def choose(found: TableStatistics) -> tuple[list[Source], list[Source]]:
    """Long frequent and long rare sources to show."""
    frequent, rare = (
        diverse(items.ranked(), lambda source: source.src, SHOWN_SOURCES) for items in (found.frequent, found.rare)
    )
    return frequent, rare


def all_sections(found: Findings) -> list[Section]:
    """In the order of the page."""
    makers = (scores, by_frequency, by_length, proposals, differences, maps, coverage, training, made)
    return [make(found) for make in makers]
