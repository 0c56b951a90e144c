"""The pictures of a comparison as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phrase_rescore.pages.theme import BLUE, FULL, GREEN, INK, ORANGE, VERMILION, Records, Spec, altair, specification

_PANEL = FULL // 3 - 82  # pixels, of three beside each other


def _systems(names: Sequence[str]) -> Any:
    """Colours of the two systems."""
    alt = altair()
    return alt.Color(
        "system:N", sort=list(names), title=None, scale=alt.Scale(domain=list(names), range=[BLUE, VERMILION]),
        legend=alt.Legend(orient="top", labelLimit=260),
    )  # fmt: skip


def segments(records: Records, names: Sequence[str]) -> Spec:
    """Draw a point for each output of another sentence BLEU. ``records``: one, other (sentence BLEU), effect, number, texts."""
    alt = altair()
    scale = alt.Scale(domain=[-2, 102], nice=False)
    dots = alt.Chart(alt.NamedData("segments")).mark_circle(size=34, opacity=0.7).encode(
        alt.X("one:Q", title=f"sentence BLEU of {names[0]}", scale=scale), alt.Y("other:Q", title=names[1], scale=scale),
        alt.Color("won:N", title=None, scale=alt.Scale(domain=["gained", "lost"], range=[GREEN, ORANGE]),
                  legend=alt.Legend(orient="top")),
        tooltip=[alt.Tooltip("number:Q", title="segment"), alt.Tooltip("source:N"), alt.Tooltip("reference:N"),
                 alt.Tooltip("text_one:N", title=names[0]), alt.Tooltip("text_other:N", title=names[1]),
                 alt.Tooltip("effect:Q", title="alone, BLEU", format="+.3f")],
    )  # fmt: skip
    line = alt.Chart(alt.NamedData("equal")).mark_line(color=INK, strokeDash=[6, 4], strokeWidth=1.2).encode(x="x:Q", y="x:Q")
    chart = (line + dots).properties(width=460, height=460)
    return specification(chart, segments=records, equal=[{"x": 0}, {"x": 100}])


def changes(records: Records, names: Sequence[str]) -> Spec:
    """Draw the right words that each kind of change wins. ``records``: change, won, regions."""
    alt = altair()
    bars = alt.Chart(alt.NamedData("changes")).mark_bar().encode(
        alt.Y("change:N", sort=None, title=None, axis=alt.Axis(labelLimit=320)),
        alt.X("won:Q", title=f"right words that {names[1]} has more than {names[0]}"),
        color=alt.condition("datum.won > 0", alt.value(GREEN), alt.value(ORANGE)),
        tooltip=[alt.Tooltip("change:N", title="regions"), alt.Tooltip("regions:Q", title="how many", format=","),
                 alt.Tooltip("won:Q", title="words won", format="+,")],
    )  # fmt: skip
    return specification(bars.properties(width=FULL - 420, height=24 * max(len(records), 1)), changes=records)


def phrases(records: Records, names: Sequence[str]) -> Spec:
    """Draw the share of right words of differing phrases, a panel for each way to sort them into bins.

    ``records``: table, bin, system, right (a share), words, phrases.
    """
    alt = altair()
    panels = []
    for title in dict.fromkeys(record["table"] for record in records):
        bars = alt.Chart(alt.NamedData("phrases")).transform_filter(alt.datum.table == title).mark_bar().encode(
            alt.X("bin:N", sort=None, title=None, axis=alt.Axis(labelAngle=-35, labelLimit=140)),
            alt.XOffset("system:N", sort=list(names)),
            alt.Y("right:Q", title="right words", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            _systems(names),
            tooltip=[alt.Tooltip("system:N"), alt.Tooltip("bin:N", title=title), alt.Tooltip("right:Q", format=".1%"),
                     alt.Tooltip("words:Q", title="target words", format=","),
                     alt.Tooltip("phrases:Q", title="differing phrases", format=",")],
        )  # fmt: skip
        panels.append(bars.properties(width=_PANEL, height=230, title=title))
    return specification(alt.hconcat(*panels, spacing=30), phrases=records)
