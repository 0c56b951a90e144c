"""Training curves: the logs of runs as a picture."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from phrase_rescore.errors import OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.nn.storage import CONFIG
from phrase_rescore.report.charts import COLOURS, Records, Spec, altair, picture, specification
from phrase_rescore.training.log import Point, Run

FORMATS = {".png": "png", ".svg": "svg"}
X_LABELS = {"steps": "step (minibatches)", "hours": "time of training (hours)", "pairs": "{}s seen (millions)"}
Y_LABELS = {"loss": "negative log-likelihood (nats per {})", "perplexity": "held-out perplexity (per word)"}
KINDS = {"held-out": [1, 0], "training, mean since the last record": [5, 3]}  # of lines, and their dashes

_MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
_STAR = "M0,-1L.235,-.324L.951,-.309L.38,.124L.588,.809L0,.4L-.588,.809L-.38,.124L-.951,-.309L-.235,-.324Z"
_MARKED = 10  # of the points of a curve, or a few more: all of a long one would hide it
_LEGEND_ROWS, _LEGEND_WIDTH = 16, 280  # runs in a column of the legend; pixels of a name


@dataclass(frozen=True)
class CurveChart:
    """The axes: ``x`` is a key of X_LABELS, ``y`` of Y_LABELS."""

    x: str = "steps"
    y: str = "loss"
    log_x: bool = False

    def place(self, run: Run, point: Point) -> float:
        """Return the place of a point along the x axis. Raises OptionError if the run does not say."""
        if self.x == "hours":
            return point.seconds / 3600
        if self.x == "steps":
            return point.step
        if run.batch_size is None:
            raise OptionError(
                f"{run.name}: the batch size is unknown without a {CONFIG} beside its log; draw it with --x steps"
            )
        return point.step * run.batch_size / 1e6

    def curve(self, run: Run, figure: str, points: Sequence[Point]) -> Records:
        """The points that have the figure, a field of Point; on a logarithmic axis only those right of 0."""
        found = [{"run": run.name, "x": self.place(run, point), "y": getattr(point, figure)} for point in points]
        return [record for record in found if record["y"] is not None and (record["x"] > 0 or not self.log_x)]


def picture_format(path: str) -> str:
    """Return png or svg, by the end of the name. Raises OptionError for any other."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise OptionError(f"-o {path}: a picture's name ends in {' or '.join(FORMATS)}; name it, say, curves.png")
    return FORMATS[suffix]


def draw(runs: Sequence[Run], path: str, chart: CurveChart = CurveChart()) -> None:
    """Draw the curves of runs into a PNG or SVG file; the same runs and libraries give the same bytes.

    Raises OptionError for another kind of file, without the libraries, and as ``curves`` does.
    """
    form = picture_format(path)
    altair("curves")
    data = picture(curves(runs, chart), form)
    with atomic_output(path) as stream:
        stream.write(data)


def curves(runs: Sequence[Run], chart: CurveChart = CurveChart()) -> Spec:
    """Draw runs: held-out solid, training dashed, a star at the best step.

    Raises OptionError for a run that has nothing to draw or does not say where.
    """
    alt = altair()
    lines, marks, stars = Records(), Records(), Records()
    for run in runs:
        by_kind = dict(zip(KINDS, _figures(run, chart), strict=True))
        lines += [record | {"kind": kind} for kind, curve in by_kind.items() for record in curve]
        held_out, training = by_kind.values()
        marked = held_out or training
        marks += marked[:: max(1, len(marked) // _MARKED)] + (training if held_out and len(training) == 1 else [])
        stars += chart.curve(run, chart.y, [run.best]) if run.best else []
    names = list(dict.fromkeys(run.name for run in runs))
    best = {star["run"]: f"{star['y']:.2f}" for star in stars}
    labels = {name: f"{best[name]}  {name}" if name in best else name for name in names}
    runs_legend = alt.Legend(
        title="★ best held-out loss" if stars else None, labelLimit=_LEGEND_WIDTH, symbolSize=60, symbolStrokeWidth=0,
        columns=math.ceil(len(names) / _LEGEND_ROWS),
    )  # fmt: skip
    shown = list(labels.values())
    for record in (*lines, *marks, *stars):
        record["run"] = labels[record["run"]]
    kinds = [kind for kind in KINDS if any(line["kind"] == kind for line in lines)]
    colours, markers = (list(islice(cycle(values), len(shown))) for values in (COLOURS, _MARKERS))
    colour = alt.Color("run:N", scale=alt.Scale(domain=shown, range=colours), legend=runs_legend)
    shape = alt.Shape("run:N", scale=alt.Scale(domain=shown, range=markers), legend=runs_legend)
    dash = alt.StrokeDash(
        "kind:N", scale=alt.Scale(domain=kinds, range=[KINDS[kind] for kind in kinds]),
        legend=alt.Legend(title=None, orient="top", labelLimit=_LEGEND_WIDTH),
    )  # fmt: skip
    items = sorted({run.item for run in runs})
    x_title = X_LABELS[chart.x].format("s, ".join("phrase pair" if name == "pair" else name for name in items))
    axes = {
        "x": alt.X("x:Q", title=x_title, **_scaled(chart.log_x)),
        "y": alt.Y("y:Q", title=Y_LABELS[chart.y].format(" or ".join(items)), **_scaled(chart.y == "perplexity")),
    }  # perplexity falls by orders of magnitude

    def layer(name: str) -> Any:
        return alt.Chart(alt.NamedData(name)).encode(**axes, color=colour)

    looks = {"filled": True, "opacity": 1, "stroke": "#FFFFFF", "strokeWidth": 0.6}
    layers = (
        layer("lines").mark_line(strokeWidth=1.7).encode(strokeDash=dash, detail=["run:N", "kind:N"]),
        layer("marks").mark_point(size=50, **looks).encode(shape=shape),
        layer("stars").mark_point(size=150, shape=_STAR, **looks),
    )
    return specification(alt.layer(*layers).properties(width=480, height=310), lines=lines, marks=marks, stars=stars)


def _figures(run: Run, chart: CurveChart) -> tuple[Records, Records]:
    """The held-out curve and that of training. Raises OptionError if there is nothing to draw."""
    held_out = chart.curve(run, chart.y, run.points)
    training = chart.curve(run, "train_loss", run.points) if chart.y == "loss" else []
    if held_out or training:
        return held_out, training
    hint = "train with --eval-every small enough for a record"
    if chart.y == "perplexity" and all(point.perplexity is None for point in run.points):
        hint = "draw it with --y loss"
    elif chart.log_x:
        hint = "draw it without --log-x"
    raise OptionError(f"{run.name}: the log has no {chart.y} to draw there; {hint}")


def _scaled(logarithmic: bool) -> dict[str, Any]:
    """Return the scale and the axis of a channel; a logarithmic axis has faint lines between its numbers."""
    alt = altair()
    grid = alt.condition("datum.label == ''", alt.value(0.35), alt.value(1.0))
    return {
        "scale": alt.Scale(type="log" if logarithmic else "linear", nice=False, zero=False, padding=12),
        "axis": alt.Axis(format=",.10~g", tickCount=6 if logarithmic else 8, gridOpacity=grid),
    }
