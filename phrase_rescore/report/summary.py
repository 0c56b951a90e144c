"""What the page of ``report`` begins with: everything that it is made of, and the figures by which one decides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phrase_rescore.inference.translator import Proposal
from phrase_rescore.report.findings import best_shares, quantiles, rank_correlation
from phrase_rescore.report.page import paragraph, text, tiles
from phrase_rescore.report.rows import ScoreColumns
from phrase_rescore.report.statistics import ENOUGH, P_STEP, Source, TableStatistics
from phrase_rescore.training.log import ModelDirectory, Run


@dataclass(frozen=True)
class Map:
    """A picture of vectors: ``records`` for ``report_charts.words_map``."""

    name: str
    title: str
    said: str
    records: list[dict[str, Any]]
    method: str  # as projection.method_for names it


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


def share(part: float, whole: float) -> float:
    """nan of nothing."""
    return float(part / whole) if whole else math.nan


def head(found: Findings) -> str:
    """Title, warnings, the figures by which one decides."""
    given, predicted = found.sides
    return "\n".join(
        [
            f"<h1>p({predicted} | {given}) of the model beside φ of the table</h1>",
            paragraph(text(found.table), f"— {found.rows:,} rows of {found.sources:,} sources", kind="by"),
            f'<p class="by signature">{text(found.model.checkpoint.signature)}</p>',
            *(paragraph(text(warning), kind="warning") for warning in found.warnings),
            tiles(_figures(found)),
            paragraph(*_verdict(found)),
            paragraph(
                "Scores are natural logarithms, in nats: one nat less is a probability smaller by the factor e = 2.72.",
                "φ is the table’s relative frequency, p the model’s probability. Phrases are shown with Moses’ escapes undone.",
                kind="note",
            ),
        ]
    )


def _losses(found: Findings) -> tuple[float, float]:
    """Held-out, and with the sources exchanged."""
    training = found.model.checkpoint.training
    names = ("held_out", "held_out_other_sources")
    loss, control = (_number(training.get(name)) for name in names) if isinstance(training, dict) else (math.nan, math.nan)
    return loss, control


def _number(figures: Any) -> float:
    """The loss of some figures in the training summary, which nothing has checked."""
    value = figures.get("loss") if isinstance(figures, dict) else None
    return float(value) if isinstance(value, int | float) else math.nan


def _figures(found: Findings) -> list[tuple[str, str, str]]:
    s, (given, predicted) = found.statistics, found.sides
    rho, n = rank_correlation(s)
    frequent, n_frequent = rank_correlation(s, ENOUGH)
    ranked = f"Spearman’s ρ with log φ, {n:,} rows"
    if n_frequent > 1 and s.counted:
        ranked += f"; {nats(frequent)} over the {n_frequent:,} seen {ENOUGH} times or more"
    figures = [("Rank correlation", nats(rho), ranked)]
    if s.grouped:
        several, same, chance = best_shares(s)
        said = f"of {several:,} sources with several; chance finds {percent(chance)}"
        figures.append(("The same best target", percent(same), said))
    loss, control = _losses(found)
    known = dict(zip(("source", "target"), (1 - share(side.unknown, side.words) for side in s.coverage), strict=True))
    return [
        *figures,
        (
            "Held-out loss",
            f"{nats(loss)} <small>nats a pair</small>" if math.isfinite(loss) else "unknown",
            f"when trained; {nats(control)} with sources exchanged"
            if math.isfinite(control)
            else "its config does not say more",
        ),
        (f"{predicted.capitalize()} words known", percent(known[predicted]), f"of the {given} words {percent(known[given])}"),
    ]


def _verdict(found: Findings) -> list[str]:
    s, said = found.statistics, list[str]()
    loss, control = _losses(found)
    if math.isfinite(loss) and math.isfinite(control):
        reads = "it does read the source" if control > loss + 1 else "it hardly reads the source, and should not be trusted"
        said.append(
            f"On held-out pairs the model loses {nats(loss)} nats, and {nats(control)} when it is given other sources of the "
            f"same length: {reads}."
        )
    rho, _ = rank_correlation(s)
    if math.isfinite(rho):
        what = "is nearly that of φ" if rho > 0.9 else "follows φ in part" if rho > 0.3 else "has little to do with φ"
        said.append(f"Its ranking of the rows {what} (ρ = {nats(rho)}). A feature helps where it knows what φ does not.")
    low, _, high = quantiles(s.density[:, 0].sum(axis=0, dtype=np.int64), (0.1, 0.5, 0.9), P_STEP)
    sure = s.by_joint[:, 3]
    if sure.sum() >= 0.01 * s.rows and math.isfinite(low):
        once = (
            f", to most of them since they were seen {'once' if sure[0] > sure.sum() / 2 else 'a few times'}"
            if s.counted
            else ""
        )
        said.append(
            f"To {percent(share(sure.sum(), s.rows))} of the rows the table gives φ = 1{once}. These the model tells apart: "
            f"log p is below {nats(low, 1)} in the lowest tenth and above {nats(high, 1)} in the highest."
        )
    _, same, chance = best_shares(s)
    if math.isfinite(same):
        said.append(
            f"Of a source with several targets it likes the table’s best one most in {percent(same)} of cases; chance would in "
            f"{percent(chance)}."
        )
    return [
        *said,
        "Whether BLEU rises only tuning tells: <code>annotate</code>, <code>moses-ini</code>, MERT, <code>evaluate</code>.",
    ]
