"""Training curves: the logs of runs as a picture."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phrase_rescore.errors import OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.nn.storage import CONFIG
from phrase_rescore.report.charts import COLOURS, Records, Spec, altair, picture, specification
from phrase_rescore.training.log import Point, Run

ENDINGS = (".png", ".svg")
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
            found = f"the batch size is unknown without a {CONFIG} beside its log"
            raise OptionError(f"{run.name}: {found}; draw it with --x steps")
        return point.step * run.batch_size / 1e6

    def curve(self, run: Run, figure: str, points: Sequence[Point]) -> Records:
        """The points that have the figure, a field of Point; on a logarithmic axis only those right of 0."""
        found = [{"x": self.place(run, point), "y": getattr(point, figure)} for point in points]
        return [record for record in found if record["y"] is not None and (record["x"] > 0 or not self.log_x)]


def draw(runs: Sequence[Run], path: str, chart: CurveChart = CurveChart()) -> None:
    """Draw the curves of runs into a PNG or SVG file; the same runs and libraries give the same bytes.

    Raises OptionError for another kind of file, without the libraries, and as ``curves`` does.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in ENDINGS:
        raise OptionError(f"-o {path}: a picture's name ends in {' or '.join(ENDINGS)}; name it, say, curves.png")
    altair("curves")
    data = picture(curves(runs, chart), ending[1:])
    with atomic_output(path) as stream:
        stream.write(data)


def curves(runs: Sequence[Run], chart: CurveChart = CurveChart()) -> Spec:
    """Draw runs: held-out solid, training dashed, a star at the best step.

    Raises OptionError for a run that has nothing to draw or does not say where.
    """
    alt = altair()
    lines, marks, stars = Records(), Records(), Records()
    for run in runs:
        held_out, training = _figures(run, chart)
        best = chart.curve(run, chart.y, [run.best]) if run.best else []
        label = {"run": f"{best[0]['y']:.2f}  {run.name}" if best else run.name}
        for kind, curve in zip(KINDS, (held_out, training), strict=True):
            lines += [label | record | {"kind": kind} for record in curve]
        marked = held_out or training
        marked = marked[:: max(1, len(marked) // _MARKED)] + (training if held_out and len(training) == 1 else [])
        marks += [label | record for record in marked]
        stars += [label | record for record in best]
    shown = list(dict.fromkeys(line["run"] for line in lines))
    runs_legend = alt.Legend(
        title="★ best held-out loss" if stars else None, labelLimit=_LEGEND_WIDTH, symbolSize=60, symbolStrokeWidth=0,
        columns=math.ceil(len(shown) / _LEGEND_ROWS),
    )  # fmt: skip
    kinds = [kind for kind in KINDS if any(line["kind"] == kind for line in lines)]
    colours, markers = ([values[i % len(values)] for i in range(len(shown))] for values in (COLOURS, _MARKERS))
    colour = alt.Color("run:N", scale=alt.Scale(domain=shown, range=colours), legend=runs_legend)
    shape = alt.Shape("run:N", scale=alt.Scale(domain=shown, range=markers), legend=runs_legend)
    dash = alt.StrokeDash(
        "kind:N", scale=alt.Scale(domain=kinds, range=[KINDS[kind] for kind in kinds]),
        legend=alt.Legend(title=None, orient="top", labelLimit=_LEGEND_WIDTH),
    )  # fmt: skip
    items = sorted({run.item for run in runs})
    x_title = X_LABELS[chart.x].format("s, ".join("phrase pair" if name == "pair" else name for name in items))
    x = alt.X("x:Q", title=x_title, **_scaled(alt, chart.log_x))
    falls = chart.y == "perplexity"  # by orders of magnitude
    y = alt.Y("y:Q", title=Y_LABELS[chart.y].format(" or ".join(items)), **_scaled(alt, falls))

    def layer(name: str) -> Any:
        return alt.Chart(alt.NamedData(name)).encode(x, y, colour)

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


def _scaled(alt: Any, logarithmic: bool) -> dict[str, Any]:
    """Return the scale and the axis of a channel; a logarithmic axis has faint lines between its numbers."""
    grid = alt.condition("datum.label == ''", alt.value(0.35), alt.value(1.0))
    axis = alt.Axis(format=",.10~g", tickCount=6 if logarithmic else 8, gridOpacity=grid)
    return {"scale": alt.Scale(type="log" if logarithmic else "linear", nice=False, zero=False, padding=12), "axis": axis}
