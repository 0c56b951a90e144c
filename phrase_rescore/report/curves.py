"""Training curves: the logs of runs as a picture, of its own or on the page of ``report``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from phrase_rescore.errors import OptionError
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.nn.storage import CONFIG
from phrase_rescore.pages.theme import CHARACTER, COLOURS, GREY, INK, Records, Spec, altair, picture, specification
from phrase_rescore.training.log import Point, Run

Curve = list[tuple[float, float]]  # x and y of its points

FORMATS = {".png": "png", ".svg": "svg"}
X_LABELS = {"steps": "step (minibatches)", "hours": "time of training (hours)", "pairs": "{}s seen (millions)"}
Y_LABELS = {"loss": "negative log-likelihood (nats per {})", "perplexity": "held-out perplexity (per word)"}

# Shapes as Vega names them, or SVG paths. Their number has no factor in common with that of the colours.
_MARKERS = (
    "circle", "square", "triangle-up", "diamond", "triangle-down", "cross",
    "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z", "triangle-right",
)  # fmt: skip
_STAR = "M0,-1L.235,-.324L.951,-.309L.38,.124L.588,.809L0,.4L-.588,.809L-.38,.124L-.951,-.309L-.235,-.324Z"
_MARKED = 10  # of the points of a curve, or a few more: all of a long one would hide it
_NAME = 40  # characters in the legend
_LEGEND_ROWS = 16
_ROW, _SAMPLE, _GAP = 20, 28, 8  # pixels of the legend: a row's height, a piece of line, what separates two things
_FIGURE = 6  # characters of most figures in the legend


@dataclass(frozen=True)
class Chart:
    """What stands along the axes: ``x`` is a key of X_LABELS, ``y`` of Y_LABELS."""

    x: str = "steps"
    y: str = "loss"
    log_x: bool = False

    def place(self, run: Run, point: Point) -> float:
        """Where a point stands along the x axis. Raises OptionError if the run does not say."""
        if self.x == "hours":
            return point.seconds / 3600
        if self.x == "steps":
            return point.step
        if run.batch_size is None:
            raise OptionError(f"{run.name}: no {CONFIG} beside its log says the batch size; draw it with --x steps")
        return point.step * run.batch_size / 1e6

    def curve(self, run: Run, figure: str) -> Curve:
        """The points that have the figure, a field of Point; on a logarithmic axis only those right of 0."""
        found = [(self.place(run, point), getattr(point, figure)) for point in run.points]
        return [(x, y) for x, y in found if y is not None and (x > 0 or not self.log_x)]


def picture_format(path: str) -> str:
    """Return png or svg, by the end of the name. Raises OptionError for any other."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise OptionError(f"-o {path}: a picture's name ends in {' or '.join(FORMATS)}; name it, say, curves.png")
    return FORMATS[suffix]


def draw(runs: Sequence[Run], path: str, chart: Chart = Chart()) -> None:
    """Draw the curves of runs into a PNG or SVG file; the same runs and libraries give the same bytes.

    Raises OptionError for another kind of file, without the libraries, and as ``curves`` does.
    """
    form = picture_format(path)
    altair("curves")
    data = picture(curves(runs, chart), form)
    with atomic_output(path) as stream:
        stream.write(data)


def curves(runs: Sequence[Run], chart: Chart = Chart(), width: int = 480, height: int = 310) -> Spec:
    """Draw runs: held-out solid, training dashed, the best step a star, legends where they hide no curve.

    Raises OptionError for a run that has nothing to draw or does not say where.
    """
    alt = altair()
    plot, legend = _Marks(), _Marks()
    names = [run.name if len(run.name) <= _NAME else f"{run.name[: _NAME - 1]}…" for run in runs]
    column_width = _SAMPLE + CHARACTER * (_FIGURE + max(map(len, names))) + 6 * _GAP
    for number, run in enumerate(runs):
        colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
        held_out, training = _figures(run, chart)
        plot.line(training, colour, dashed=True)
        plot.line(held_out, colour)
        marked = held_out or training
        for point in marked[:: max(1, len(marked) // _MARKED)] + (training if held_out and len(training) == 1 else []):
            plot.symbol(*point, colour, marker)
        # Right of the axes which run is which, with the figure at the best step
        column, row = divmod(number, _LEGEND_ROWS)
        x, y = width + 3 * _GAP + column * column_width, _ROW * (row + 0.5)
        legend.line([(x, y), (x + _SAMPLE, y)], colour, dashed=not held_out)
        legend.symbol(x + _SAMPLE / 2, y, colour, marker)
        x += _SAMPLE + 2 * _GAP
        for point in chart.curve(replace(run, points=(run.best,)), chart.y) if run.best else []:
            plot.symbol(*point, colour, _STAR)
            legend.symbol(x, y, colour, _STAR)
            legend.text(x + 1.5 * _GAP, y, f"{point[1]:.2f}")
        legend.text(x + CHARACTER * _FIGURE + 2 * _GAP, y, names[number])
    _add_kinds(legend, {line["dashed"] for line in plot.lines})
    plot.lines.sort(key=lambda line: not line["dashed"])
    plot.symbols.sort(key=lambda symbol: symbol["shape"] == _STAR)
    learnt = sorted({run.learnt for run in runs})
    x_title = X_LABELS[chart.x].format("s, ".join("phrase pair" if name == "pair" else name for name in learnt))
    x_axis = alt.X("x:Q", title=x_title, **_scaled(chart.log_x))
    y_title = Y_LABELS[chart.y].format(" or ".join(learnt))
    y_axis = alt.Y("y:Q", title=y_title, **_scaled(chart.y == "perplexity"))  # which falls by orders of magnitude
    tooltip = [alt.Tooltip("x:Q", title=chart.x, format=",.6~g"), alt.Tooltip("y:Q", title=chart.y, format=",.3f")]
    pixels = {"x": alt.X("x:Q", scale=None, axis=None), "y": alt.Y("y:Q", scale=None, axis=None)}
    layers = *plot.layers("", x=x_axis, y=y_axis, tooltip=tooltip), *legend.layers("legend_", **pixels)
    data = plot.datasets("") | legend.datasets("legend_")
    return specification(alt.layer(*layers).properties(width=width, height=height), **data)


def _figures(run: Run, chart: Chart) -> tuple[Curve, Curve]:
    """The held-out curve and that of training. Raises OptionError if there is nothing to draw."""
    held_out = chart.curve(run, chart.y)
    training = chart.curve(run, "train_loss") if chart.y == "loss" else []
    if held_out or training:
        return held_out, training
    hint = "train with --eval-every small enough for a record"
    if chart.y == "perplexity" and all(point.perplexity is None for point in run.points):
        hint = "draw it with --y loss"
    elif chart.log_x:
        hint = "draw it without --log-x"
    raise OptionError(f"{run.name}: the log has no {chart.y} to draw there; {hint}")


def _scaled(logarithmic: bool) -> dict[str, Any]:
    """The scale and the axis of a channel; what is between the numbers of a logarithmic axis has faint lines."""
    alt = altair()
    grid = alt.condition("datum.label == ''", alt.value(0.35), alt.value(1.0))
    return {
        "scale": alt.Scale(type="log" if logarithmic else "linear", nice=False, zero=False, padding=12),
        "axis": alt.Axis(format=",.10~g", tickCount=6 if logarithmic else 8, gridOpacity=grid),
    }


def _add_kinds(legend: _Marks, dashed: set[bool]) -> None:
    """Say above the axes what the kinds of line are."""
    x, y = 0.0, -_ROW
    if False in dashed:
        legend.line([(x, y), (x + _SAMPLE, y)], GREY)
        legend.text(x + _SAMPLE + _GAP, y, "held-out")
        x += _SAMPLE + 4 * _GAP + CHARACTER * len("held-out")
        legend.symbol(x, y, GREY, _STAR)
        legend.text(x + 2 * _GAP, y, "best held-out loss")
        x += 4 * _GAP + CHARACTER * len("best held-out loss")
    if True in dashed:
        legend.line([(x, y), (x + _SAMPLE, y)], GREY, dashed=True)
        legend.text(x + _SAMPLE + _GAP, y, "training, mean since the last record")


class _Marks:
    """Lines, symbols and texts, as records that say what they look like."""

    def __init__(self) -> None:
        self.lines, self.symbols, self.texts = Records(), Records(), Records()

    def line(self, points: Curve, colour: str, dashed: bool = False) -> None:
        look = {"line": len(self.lines), "colour": colour, "dashed": dashed}
        self.lines += [{"x": x, "y": y} | look for x, y in points]

    def symbol(self, x: float, y: float, colour: str, shape: str) -> None:
        self.symbols.append({"x": x, "y": y, "colour": colour, "shape": shape, "size": 150 if shape == _STAR else 50})

    def text(self, x: float, y: float, text: str) -> None:
        self.texts.append({"x": x, "y": y, "text": text})

    def datasets(self, prefix: str) -> dict[str, Records]:
        return {f"{prefix}lines": self.lines, f"{prefix}symbols": self.symbols, f"{prefix}texts": self.texts}

    def layers(self, prefix: str, **encodings: Any) -> list[Any]:
        """Draw the data sets of this prefix."""
        alt = altair()
        lines, symbols, texts = (alt.Chart(alt.NamedData(name)).encode(**encodings) for name in self.datasets(prefix))
        colour = alt.Color("colour:N", scale=None)
        return [
            lines.mark_line(aria=False).encode(
                color=colour, detail="line:N",
                strokeDash=alt.condition("datum.dashed", alt.value([5, 3]), alt.value([1, 0])),
                strokeWidth=alt.condition("datum.dashed", alt.value(1.1), alt.value(1.9)),
            ),
            symbols.mark_point(aria=False, filled=True, opacity=1, stroke="#FFFFFF", strokeWidth=0.6).encode(
                color=colour, shape=alt.Shape("shape:N", scale=None), size=alt.Size("size:Q", scale=None)
            ),
            texts.mark_text(aria=False, align="left", baseline="middle", fontSize=12, color=INK).encode(text="text:N"),
        ]  # fmt: skip
