"""The pictures of ``report`` as Vega-Lite specifications: plain objects, the same for the page and for files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phrase_rescore.report.theme import BLUE, FULL, GREEN, INK, PALE, SKY, VERMILION, Records, Spec, altair, specification

MAP_HEIGHT = 600
_WHEEL = "wheel![event.ctrlKey || event.metaKey]"  # a bare wheel scrolls the page (a pinch comes as Ctrl and wheel)
_LISTED = 20  # of what a search finds; on the map itself a label stands where it has room


def _below() -> Any:
    """A legend where it does not move what stands beside."""
    return altair().Legend(orient="bottom", labelLimit=260, columns=10)


def scatter(points: Records, medians: Records, classes: Sequence[str], longest: int, given: str, predicted: str) -> Spec:
    """Model against table, a point a row, with marginal histograms and filters.

    ``points``: given, predicted, words (of given), class (a place in ``classes``), joint, phi, p, log_phi, log_p, weight.
    """
    alt = altair()
    lengths = [
        alt.param(name=name, value=value, bind=alt.binding_range(min=1, max=longest, step=1, name=f"{given} words, {what} "))
        for name, value, what in (("words_from", 1, "from"), ("words_to", longest, "to"))
    ]
    places = list(range(len(classes)))
    counts = [
        alt.param(name=name, value=value, bind=alt.binding_select(options=places, labels=[*classes], name=what))
        for name, value, what in (("count_from", 0, "joint count, from "), ("count_to", places[-1], "joint count, to "))
    ]  # fmt: skip
    shown = "datum.words >= words_from && datum.words <= words_to && datum.class >= count_from && datum.class <= count_to"
    data = alt.NamedData("points")
    base = alt.Chart(data).transform_filter(shown)
    least_phi, least_p = (min([point[name] for point in points], default=-1.0) for name in ("log_phi", "log_p"))
    scale_x, scale_y = (alt.Scale(domain=[1.02 * least - 0.1, -0.015 * least], nice=False) for least in (least_phi, least_p))
    axis = alt.Axis(format="~f", tickCount=12)
    x = alt.X("log_phi:Q", title=f"log φ({predicted} | {given}) of the table, nats", scale=scale_x, axis=axis)
    y = alt.Y("log_p:Q", title=f"log p({predicted} | {given}) of the model, nats", scale=scale_y, axis=axis)
    colour = alt.Color(
        "seen:O", sort=list(classes), title="joint count",
        scale=alt.Scale(domain=list(classes), scheme=alt.SchemeParams("viridis", extent=[0.0, 0.92])),
        legend=alt.Legend(orient="left", offset=10, symbolOpacity=1),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("given:N", title=given), alt.Tooltip("predicted:N", title=predicted),
        alt.Tooltip("joint:Q", title="joint count", format=",.6~g"),
        alt.Tooltip("log_phi:Q", title="log φ", format=".3f"), alt.Tooltip("phi:Q", title="φ", format=".3~g"),
        alt.Tooltip("log_p:Q", title="log p", format=".3f"), alt.Tooltip("p:Q", title="p", format=".3~g"),
    ]  # fmt: skip
    dots = base.mark_circle(size=22, opacity=0.6).encode(x, y, colour, tooltip=tooltip)
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom=_WHEEL)
    line = alt.Chart(alt.NamedData("medians")).encode(x="log_phi:Q", y="log_p:Q")
    median = line.mark_line(color="#FFFFFF", strokeWidth=5) + line.mark_line(color=VERMILION, strokeWidth=2.2)
    equal = alt.Chart(alt.NamedData("equal")).mark_line(color=INK, strokeDash=[6, 4], strokeWidth=1.4).encode(x="x:Q", y="x:Q")
    width, height, side = FULL - 270, 440, 90
    main = alt.layer(dots.add_params(zoom), equal, median).properties(width=width, height=height)
    of_rows = dict(title="rows", axis=alt.Axis(format="~s", tickCount=3, grid=False))
    bars = base.mark_bar(color=SKY)
    above = bars.encode(
        alt.X("log_phi:Q", bin=alt.Bin(maxbins=45), title=None, axis=alt.Axis(labels=False, ticks=False), scale=scale_x),
        alt.Y("sum(weight):Q", **of_rows),
    ).properties(width=width, height=side)  # fmt: skip
    beside = bars.encode(
        alt.Y("log_p:Q", bin=alt.Bin(maxbins=45), title=None, axis=alt.Axis(labels=False, ticks=False), scale=scale_y),
        alt.X("sum(weight):Q", **of_rows),
    ).properties(width=side, height=height)  # fmt: skip
    told = (
        base.transform_aggregate(n="count()", rows="sum(weight)")
        .transform_calculate(text="format(datum.n, ',') + ' points'")
        .mark_text(align="left", baseline="middle", fontSize=13, color=INK, x=4, y=side / 2)
        .encode(text="text:N").properties(width=side, height=side)
    )  # fmt: skip
    chart = alt.vconcat(alt.hconcat(above, told, spacing=12), alt.hconcat(main, beside, spacing=12), spacing=12)
    chart = chart.add_params(*lengths, *counts)
    for point in points:
        point["seen"] = classes[point["class"]]
    return specification(chart, points=points, medians=medians, equal=[{"x": max(least_phi, least_p)}, {"x": 0.0}])


def frequency(records: Records, classes: Sequence[str]) -> Spec:
    """Scores by joint count. ``records``: seen, series, value, low, high (nats, log p alone); sure (a share)."""
    alt = altair()
    x = alt.X("seen:O", sort=list(classes), title="joint count of the pair", axis=alt.Axis(labelAngle=0))
    series = ["log φ, mean", "log p, mean", "log p where φ = 1, median"]
    base = alt.Chart(alt.NamedData("scores"))
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=series, range=[BLUE, VERMILION, GREEN]), legend=_below())
    number = [alt.Tooltip("seen:N", title="joint count"), alt.Tooltip("series:N", title="score"),
              alt.Tooltip("value:Q", title="nats", format=".2f"), alt.Tooltip("rows:Q", format=",")]  # fmt: skip
    band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.15, color=VERMILION).encode(
        x, alt.Y("low:Q", title="nats"), alt.Y2("high:Q")
    )  # fmt: skip
    lines = base.mark_line(point=alt.OverlayMarkDef(size=60), strokeWidth=2).encode(x, alt.Y("value:Q"), colour, tooltip=number)
    left = (band + lines).properties(width=FULL // 2 - 90, height=300, title="Scores")
    sure = alt.Chart(alt.NamedData("sure")).encode(x)
    bars = sure.mark_bar(color=BLUE).encode(
        alt.Y("sure:Q", title="share of rows", axis=alt.Axis(format="%")),
        tooltip=[alt.Tooltip("seen:N", title="joint count"), alt.Tooltip("sure:Q", title="φ = 1", format=".1%"),
                 alt.Tooltip("rows:Q", format=",")],
    )  # fmt: skip
    text = sure.mark_text(dy=-8, fontSize=12, color=INK).encode(y="sure:Q", text=alt.Text("sure:Q", format=".0%"))
    right = (bars + text).properties(width=FULL // 2 - 110, height=300, title="Rows whose φ is 1")
    of_class = [row for row in records if row["series"] == series[0]]
    return specification(
        alt.hconcat(left, right, spacing=50).resolve_scale(color="independent"),
        scores=records,
        sure=of_class,
    )


def shares(records: Records, best: Records, classes: Sequence[str]) -> Spec:
    """Among a source's targets: the table's share by the model's, and how often both like the same best.

    ``records``: seen (how often the source), model, table (mean shares), rows. ``best``: seen, who, share, sources.
    """
    alt = altair()
    colour = alt.Color(
        "seen:O", sort=list(classes), title="occurrences of the source",
        scale=alt.Scale(domain=list(classes), scheme=alt.SchemeParams("viridis", extent=[0.0, 0.85])),
        legend=_below(),
    )  # fmt: skip
    axis = {"axis": alt.Axis(format="%"), "scale": alt.Scale(domain=[0, 1])}
    lines = alt.Chart(alt.NamedData("shares")).mark_line(point=alt.OverlayMarkDef(size=45), strokeWidth=2).encode(
        alt.X("model:Q", title="share that the model gives", **axis), alt.Y("table:Q", title="mean share that φ gives", **axis),
        colour, tooltip=[alt.Tooltip("seen:N", title="occurrences"), alt.Tooltip("model:Q", format=".1%"),
                         alt.Tooltip("table:Q", format=".1%"), alt.Tooltip("rows:Q", format=",")],
    )  # fmt: skip
    equal = alt.Chart(alt.NamedData("equal")).mark_line(color=INK, strokeDash=[6, 4], strokeWidth=1.4).encode(x="x:Q", y="x:Q")
    left = (equal + lines).properties(width=FULL // 2 - 90, height=330, title="Calibration among the targets of a source")
    who = ["model", "chance"]
    bars = alt.Chart(alt.NamedData("best")).mark_bar().encode(
        alt.X("seen:O", sort=list(classes), title="occurrences of the source", axis=alt.Axis(labelAngle=0)),
        alt.Y("share:Q", title="share of sources", **axis), alt.XOffset("who:N", sort=who),
        alt.Color("who:N", sort=who, title=None, scale=alt.Scale(domain=who, range=[VERMILION, "#BBBBBB"]),
                  legend=_below()),
        tooltip=[alt.Tooltip("seen:N", title="occurrences"), alt.Tooltip("who:N", title="by"),
                 alt.Tooltip("share:Q", format=".1%"), alt.Tooltip("sources:Q", format=",")],
    )  # fmt: skip
    right = bars.properties(width=FULL // 2 - 110, height=330, title="The table's best target found")
    chart = alt.hconcat(left, right, spacing=50).resolve_scale(color="independent")
    return specification(chart, shares=records, best=best, equal=[{"x": 0.0}, {"x": 1.0}])


def lengths(records: Records, best: Records, given: str, predicted: str) -> Spec:
    """Mean scores by length. ``records``: given, predicted (words), score, value, rows; ``best``: given, whose, value."""
    alt = altair()
    base = alt.Chart(alt.NamedData("lengths")).mark_line(point=alt.OverlayMarkDef(size=40), strokeWidth=1.8)
    words = sorted({row["given"] for row in records})
    colour = alt.Color(
        "given:O", title=f"words of the {given}", legend=_below(),
        scale=alt.Scale(domain=words, scheme=alt.SchemeParams("viridis", extent=[0.0, 0.92])),
    )  # fmt: skip
    x = alt.X("predicted:Q", title=f"words of the {predicted}", axis=alt.Axis(tickMinStep=1, format="d"))
    tooltip = [alt.Tooltip("given:Q", title=f"{given} words"), alt.Tooltip("predicted:Q", title=f"{predicted} words"),
               alt.Tooltip("value:Q", title="nats", format=".2f"), alt.Tooltip("rows:Q", format=",")]  # fmt: skip
    third = FULL // 3 - 76
    panels = [
        base.transform_filter(f"datum.score == '{score}'").encode(
            x, alt.Y("value:Q", title="nats", scale=alt.Scale(zero=False, nice=False, padding=12)), colour, tooltip=tooltip
        ).properties(width=third, height=280, title=title)
        for score, title in (("phi", "The table: mean log φ"), ("p", "The model: mean log p"))
    ]  # fmt: skip
    if best:
        whose = ["table", "model"]
        last = alt.Chart(alt.NamedData("best")).mark_line(point=alt.OverlayMarkDef(size=45), strokeWidth=2).encode(
            alt.X("given:Q", title=f"words of the {given}", axis=alt.Axis(tickMinStep=1, format="d")),
            alt.Y("value:Q", title=f"mean words of the best {predicted}", scale=alt.Scale(zero=False, nice=False, padding=12)),
            alt.Color("whose:N", title="best by the", sort=whose, scale=alt.Scale(domain=whose, range=[BLUE, VERMILION]),
                      legend=_below()),
            tooltip=[alt.Tooltip("given:Q", title=f"{given} words"), alt.Tooltip("whose:N", title="best by"),
                     alt.Tooltip("value:Q", title="words", format=".2f"), alt.Tooltip("sources:Q", format=",")],
        )  # fmt: skip
        panels.append(last.properties(width=third, height=280, title=f"Words of the best {predicted}"))
    chart = alt.hconcat(*panels, spacing=36).resolve_scale(color="independent")
    return specification(chart, lengths=records, best=best)


def words_map(records: Records, height: int = MAP_HEIGHT, by_length: bool = False) -> Spec:
    """Places with labels that come as one zooms in. ``records``: x, y (pixels), label, level, count, words."""
    alt = altair()
    search = alt.param(
        name="search", value="", bind=alt.BindInput(input="search", placeholder="part of a phrase", name="search ")
    )
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom=_WHEEL)
    base = (
        alt.Chart(alt.NamedData("places"))
        .transform_calculate(found="length(search) > 0 && indexof(lower(datum.label), lower(search)) >= 0")
        .transform_joinaggregate(hits="sum(found)")
    )  # fmt: skip
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, FULL], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, height], nice=False))
    tooltip = [alt.Tooltip("label:N", title="phrase" if by_length else "word"), alt.Tooltip("count:Q", format=",")]
    scale = alt.Scale(scheme=alt.SchemeParams("viridis", extent=[0.0, 0.85]))
    colour = alt.Color("words:O", title="words", scale=scale, legend=alt.Legend(orient="top")) if by_length else None
    dots = base.mark_circle(size=20, color=BLUE).encode(
        x, y, opacity=alt.condition("length(search) > 0", alt.value(0.12), alt.value(0.45)), tooltip=tooltip,
        **({"color": colour} if colour else {}),
    )  # fmt: skip
    seen = f"{FULL} / (isArray(zoom.x) ? abs(zoom.x[1] - zoom.x[0]) : {FULL})"
    text = dict(align="left", baseline="middle", dx=5, fontSize=11)
    labels = base.transform_filter(f"datum.level <= log({seen}) / LN2 + 0.01 && !datum.found").mark_text(**text, color=INK)
    found = base.transform_filter("datum.found")
    hits = found.mark_circle(size=70, color=VERMILION, opacity=0.9).encode(x, y, tooltip=tooltip)
    near = found.transform_filter(f"datum.level <= log({seen}) / LN2 + 0.01")
    bold = dict(fontSize=12, fontWeight="bold", color=VERMILION, align="left", baseline="middle")
    named = near.mark_text(**bold, dx=6).encode(x, y, text="label:N")
    listed = (
        found.transform_window(place="row_number()", sort=[alt.SortField("count", order="descending")])
        .transform_filter(f"datum.place <= {_LISTED}")
        .transform_calculate(
            line=f"datum.place < {_LISTED} || datum.hits == {_LISTED} ? datum.label : 'and more'",
            at="15 * datum.place",
        )
        .mark_text(**bold, x=10).encode(alt.Y("at:Q", scale=None, axis=None), text="line:N")
    )  # fmt: skip
    faint = alt.condition("length(search) > 0", alt.value(0.3), alt.value(0.95))
    halo = labels.mark_text(**text, stroke="#FFFFFF", strokeWidth=3, strokeOpacity=0.85, color="#FFFFFF").encode(
        x, y, text="label:N"
    )
    written = labels.encode(x, y, text="label:N", opacity=faint)
    chart = alt.layer(dots.add_params(zoom), halo, written, hits, named, listed)
    chart = chart.properties(width=FULL, height=height, view=alt.ViewConfig(stroke=PALE)).add_params(search)
    return specification(chart, places=records)
