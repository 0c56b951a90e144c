"""The pictures of ``report`` as Vega-Lite specifications."""

import math
from collections.abc import Sequence
from typing import Any

from phrase_rescore.errors import OptionError

Spec = dict[str, Any]
Records = list[dict[str, Any]]

# Of Okabe and Ito's colours, which colour-blind readers tell apart
BLUE, VERMILION, SKY = "#0072B2", "#D55E00", "#56B4E9"
INK, GREY, PALE = "#222222", "#6B6B6B", "#E4E4E4"
FULL = 1040  # pixels across a page
_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"  # vl-convert brings Liberation Sans along


def altair() -> Any:
    """Import the library. Raises OptionError where it, or what draws its charts, is not installed."""
    try:
        import altair
        import openTSNE  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        library = (error.name or "altair").replace("_", "-")
        raise OptionError(f"report needs {library}; run: pip install 'phrase-rescore[report]'") from None
    return altair


def schema_version() -> str:
    """Return the version of Vega-Lite that the specifications are written for, as vl-convert names it."""
    return ".".join(str(altair().SCHEMA_VERSION).lstrip("v").split(".")[:2])


def specification(chart: Any, **datasets: Records) -> Spec:
    """Give a chart its looks and its data, with None for numbers that are not finite, which JSON lacks."""
    chart = chart.configure(
        font=_FONT, background="#FFFFFF", view={"stroke": None}, padding={"left": 4, "right": 12, "top": 6, "bottom": 4},
        axis={
            "labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal", "labelColor": INK, "titleColor": INK,
            "gridColor": PALE, "domainColor": GREY, "tickColor": GREY, "titlePadding": 9,
        },
        legend={"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelColor": INK, "titleColor": INK},
        title={"fontSize": 13, "fontWeight": "bold", "anchor": "start", "color": INK, "offset": 10},
        header={"labelFontSize": 12, "titleFontSize": 12},
    )  # fmt: skip
    spec: Spec = chart.to_dict()
    spec["datasets"] = {name: [_finite(record) for record in records] for name, records in datasets.items()}
    return spec


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}


MAP_HEIGHT = 600
_WHEEL = "wheel![event.ctrlKey || event.metaKey]"  # a bare wheel scrolls the page (a pinch comes as Ctrl and wheel)


def scatter(points: Records, medians: Records, classes: Sequence[str], given: str, predicted: str) -> Spec:
    """Draw model against table, a point a row, with marginal histograms and filters.

    ``points``: given, predicted, class (a place in ``classes``), joint, phi, p, log_phi, log_p, weight.
    """
    alt = altair()
    places = list(range(len(classes)))
    filters = [
        alt.param(name=name, value=value, bind=alt.binding_select(options=places, labels=[*classes], name=what))
        for name, value, what in (("count_from", 0, "joint count, from "), ("count_to", places[-1], "joint count, to "))
    ]
    shown = "datum.class >= count_from && datum.class <= count_to"
    base = alt.Chart(alt.NamedData("points")).transform_filter(shown)
    least_phi, least_p = (min([point[name] for point in points], default=-1.0) for name in ("log_phi", "log_p"))
    scale_x, scale_y = (alt.Scale(domain=[1.02 * least - 0.1, -0.015 * least], nice=False) for least in (least_phi, least_p))
    axis = alt.Axis(format="~f", tickCount=12)
    colour = alt.Color(
        "seen:O", sort=list(classes), title="joint count",
        scale=alt.Scale(domain=list(classes), scheme=alt.SchemeParams("viridis", extent=[0.0, 0.92])),  # its end is too pale
        legend=alt.Legend(orient="left", offset=10, symbolOpacity=1),
    )  # fmt: skip
    tooltip = [
        alt.Tooltip("given:N", title=given), alt.Tooltip("predicted:N", title=predicted),
        alt.Tooltip("joint:Q", title="joint count", format=",.6~g"),
        alt.Tooltip("log_phi:Q", title="log φ", format=".3f"), alt.Tooltip("phi:Q", title="φ", format=".3~g"),
        alt.Tooltip("log_p:Q", title="log p", format=".3f"), alt.Tooltip("p:Q", title="p", format=".3~g"),
    ]  # fmt: skip
    dots = base.mark_circle(size=22, opacity=0.6).encode(
        alt.X("log_phi:Q", title=f"log φ({predicted} | {given}) of the table, nats", scale=scale_x, axis=axis),
        alt.Y("log_p:Q", title=f"log p({predicted} | {given}) of the model, nats", scale=scale_y, axis=axis),
        colour, tooltip=tooltip,
    )  # fmt: skip
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom=_WHEEL)
    line = alt.Chart(alt.NamedData("medians")).encode(x="log_phi:Q", y="log_p:Q")
    median = line.mark_line(color="#FFFFFF", strokeWidth=5) + line.mark_line(color=VERMILION, strokeWidth=2.2)
    width, height, side = FULL - 270, 440, 90
    equal = alt.Chart(alt.NamedData("equal")).encode(x="x:Q", y="x:Q").mark_line(color=INK, strokeDash=[6, 4], strokeWidth=1.4)
    main = alt.layer(dots.add_params(zoom), equal, median).properties(width=width, height=height)
    rows = dict(shorthand="sum(weight):Q", title="rows", axis=alt.Axis(format="~s", tickCount=3, grid=False))
    binned = dict(bin=alt.Bin(maxbins=45), title=None, axis=alt.Axis(labels=False, ticks=False))
    bars = base.mark_bar(color=SKY)
    above = bars.encode(alt.X("log_phi:Q", **binned, scale=scale_x), alt.Y(**rows)).properties(width=width, height=side)
    beside = bars.encode(alt.Y("log_p:Q", **binned, scale=scale_y), alt.X(**rows)).properties(width=side, height=height)
    shown = (
        base.transform_aggregate(n="count()", rows="sum(weight)")
        .transform_calculate(text="format(datum.n, ',') + ' points'")
        .mark_text(align="left", baseline="middle", fontSize=13, color=INK, x=4, y=side / 2)
        .encode(text="text:N").properties(width=side, height=side)
    )  # fmt: skip
    chart = alt.vconcat(alt.hconcat(above, shown, spacing=12), alt.hconcat(main, beside, spacing=12), spacing=12)
    points = [point | {"seen": classes[point["class"]]} for point in points]
    ends = [{"x": max(least_phi, least_p)}, {"x": 0.0}]
    return specification(chart.add_params(*filters), points=points, medians=medians, equal=ends)


def words_map(records: Records) -> Spec:
    """Draw places with labels that appear as one zooms in. ``records``: x, y (pixels), label, level, count."""
    alt = altair()
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom=_WHEEL)
    base = alt.Chart(alt.NamedData("places")).encode(
        alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, FULL], nice=False)),
        alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, MAP_HEIGHT], nice=False)),
    )
    tooltip = [alt.Tooltip("label:N"), alt.Tooltip("count:Q", format=",")]
    dots = base.mark_circle(size=20, color=BLUE, opacity=0.45).encode(tooltip=tooltip)
    near = f"datum.level <= log({FULL} / (isArray(zoom.x) ? abs(zoom.x[1] - zoom.x[0]) : {FULL})) / LN2 + 0.01"
    text = dict(align="left", baseline="middle", dx=5, fontSize=11)
    labels = base.transform_filter(near).encode(text="label:N")
    halo = labels.mark_text(**text, stroke="#FFFFFF", strokeWidth=3, strokeOpacity=0.85, color="#FFFFFF")
    written = labels.mark_text(**text, color=INK, opacity=0.95)
    chart = alt.layer(dots.add_params(zoom), halo, written)
    return specification(chart.properties(width=FULL, height=MAP_HEIGHT, view=alt.ViewConfig(stroke=PALE)), places=records)


def losses(points: Records, item: str) -> Spec:
    """Draw losses of a training against steps, and against time. ``points``: step, seconds, loss (nats an ``item``), of."""
    alt = altair()
    last = max(point["seconds"] for point in points)
    unit, size = ("hours", 3600) if last >= 7200 else ("minutes", 60) if last >= 120 else ("seconds", 1)
    points = [point | {"time": point["seconds"] / size} for point in points]
    held_out = [point for point in points if point["of"] == "held-out" and math.isfinite(point["loss"])]
    lowest = min(held_out, key=lambda point: point["loss"], default=None)
    scale = alt.Scale(domain=["training", "held-out"], range=[BLUE, VERMILION])
    y = alt.Y("loss:Q", title=f"loss, nats a {item}", scale=alt.Scale(zero=False))
    colour = alt.Color("of:N", title=None, scale=scale, legend=alt.Legend(orient="top", symbolType="stroke"))
    tooltip = [
        alt.Tooltip("of:N", title="loss of"), alt.Tooltip("loss:Q", title="nats", format=".3f"),
        alt.Tooltip("step:Q", format=","), alt.Tooltip("time:Q", title=unit, format=".1f"),
    ]  # fmt: skip
    line = alt.Chart(alt.NamedData("points")).mark_line(point={"size": 22}).encode(y=y, color=colour, tooltip=tooltip)
    axes = (alt.X(f"{name}:Q", title=title, scale=alt.Scale(zero=True)) for name, title in (("step", "steps"), ("time", unit)))
    panels = [line.encode(x=x).properties(width=(FULL - 170) // 2, height=300) for x in axes]
    title = f"Lowest held-out loss: {lowest['loss']:.2f} at step {lowest['step']:,}" if lowest else "No held-out loss"
    return specification(alt.hconcat(*panels, spacing=30, title=title), points=points)
