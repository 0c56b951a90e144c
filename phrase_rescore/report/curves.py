"""Training curves: the logs of runs as a picture, of its own or on the page of ``report``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from phrase_rescore.errors import OptionError
from phrase_rescore.files.atomic import atomic_output
from phrase_rescore.models.checkpoint import CONFIG
from phrase_rescore.report.theme import CHARACTER, COLOURS, GREY, INK, Records, Spec, altair, picture, specification
from phrase_rescore.training.log import Point, Run

FORMATS = {".png": "png", ".svg": "svg"}
X_LABELS = {"steps": "step (minibatches)", "hours": "time of training (hours)", "pairs": "phrase pairs seen (millions)"}
Y_LABELS = {"loss": "negative log-likelihood (nats per pair)", "perplexity": "held-out perplexity (per word)"}

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
_MARKER_SIZE, _STAR_SIZE = 50, 150  # square pixels


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

    def curve(self, run: Run, figure: str) -> Records:
        """The points (x, y) that have the figure, a field of Point; on a logarithmic axis only those right of 0."""
        found = [(self.place(run, point), getattr(point, figure)) for point in run.points]
        return [{"x": x, "y": y} for x, y in found if y is not None and (x > 0 or not self.log_x)]


class _Trace(NamedTuple):
    """A run as it is drawn: its entry in the legend, and the records of its lines and of its markers and star."""

    name: str
    colour: str
    marker: str
    measured: bool  # it has held-out figures
    best: str  # the figure at the best step, empty if there is none to mark
    lines: Records
    symbols: Records


def picture_format(path: str) -> str:
    """Return png or svg, by the end of the name. Raises OptionError for any other."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise OptionError(f"{path}: a picture's name ends in {' or '.join(FORMATS)}; name it, say, curves.png")
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
    traces = [_trace(number, run, chart) for number, run in enumerate(runs)]
    x = _axis(alt.X, "x:Q", X_LABELS[chart.x], chart.log_x)
    y = _axis(alt.Y, "y:Q", Y_LABELS[chart.y], chart.y == "perplexity")
    # The legends lie outside of the axes, in pixels of the same picture
    pixels = {"x": alt.X("x:Q", scale=None, axis=None), "y": alt.Y("y:Q", scale=None, axis=None)}
    text = alt.Chart(alt.NamedData("texts")).mark_text(aria=False, align="left", baseline="middle", fontSize=12, color=INK)
    number = [alt.Tooltip("x:Q", title=chart.x, format=",.6~g"), alt.Tooltip("y:Q", title=chart.y, format=",.3f")]
    layers = *_marks("", x=x, y=y, tooltip=number), *_marks("legend_", **pixels), text.encode(**pixels, text="text:N")
    legend = _legend(traces, width)
    return specification(
        alt.layer(*layers).properties(width=width, height=height),
        lines=sorted((line for trace in traces for line in trace.lines), key=lambda line: not line["dashed"]),
        symbols=sorted((symbol for trace in traces for symbol in trace.symbols), key=lambda symbol: symbol["shape"] == _STAR),
        legend_lines=legend.lines, legend_symbols=legend.symbols, texts=legend.texts,
    )  # fmt: skip


def _axis(channel: Any, field: str, title: str, logarithmic: bool) -> Any:
    alt = altair()
    scale = alt.Scale(type="log" if logarithmic else "linear", nice=False, zero=False, padding=12)
    grid = alt.condition("datum.label == ''", alt.value(0.35), alt.value(1.0))
    axis = alt.Axis(format=",.10~g", tickCount=6 if logarithmic else 8, gridOpacity=grid)
    return channel(field, title=title, scale=scale, axis=axis)


def _marks(prefix: str, **encodings: Any) -> tuple[Any, Any]:
    """Layers of the data sets ``lines`` and ``symbols`` of this prefix, whose records say what they look like."""
    alt = altair()
    lines, symbols = (alt.Chart(alt.NamedData(prefix + name)) for name in ("lines", "symbols"))
    colour = alt.Color("colour:N", scale=None)
    return (
        lines.mark_line(aria=False).encode(
            **encodings, color=colour, detail=["run:N", "dashed:N"],
            strokeDash=alt.condition("datum.dashed", alt.value([5, 3]), alt.value([1, 0])),
            strokeWidth=alt.condition("datum.dashed", alt.value(1.1), alt.value(1.9)),
        ),
        symbols.mark_point(aria=False, filled=True, opacity=1, stroke="#FFFFFF", strokeWidth=0.6).encode(
            **encodings, color=colour, shape=alt.Shape("shape:N", scale=None), size=alt.Size("size:Q", scale=None),
        ),
    )  # fmt: skip


def _trace(number: int, run: Run, chart: Chart) -> _Trace:
    """Raises OptionError if there is nothing to draw."""
    held_out = chart.curve(run, chart.y)
    training = chart.curve(run, "train_loss") if chart.y == "loss" else []
    if not held_out and not training:
        hint = "train with --eval-every small enough for a record"
        if chart.y == "perplexity" and all(point.perplexity is None for point in run.points):
            hint = "draw it with --y loss"
        elif chart.log_x:
            hint = "draw it without --log-x"
        raise OptionError(f"{run.name}: the log has no {chart.y} to draw there; {hint}")
    colour, marker = COLOURS[number % len(COLOURS)], _MARKERS[number % len(_MARKERS)]
    marked = held_out or training
    marked = marked[:: max(1, len(marked) // _MARKED)] + (training if held_out and len(training) == 1 else [])
    best = chart.curve(replace(run, points=(run.best,)), chart.y) if run.best else []
    lines = [point | {"run": number, "dashed": False, "colour": colour} for point in held_out]
    lines += [point | {"run": number, "dashed": True, "colour": colour} for point in training]
    symbols = [point | {"shape": marker, "size": _MARKER_SIZE, "colour": colour} for point in marked]
    symbols += [point | {"shape": _STAR, "size": _STAR_SIZE, "colour": colour} for point in best]
    name = run.name if len(run.name) <= _NAME else f"{run.name[: _NAME - 1]}…"
    figure = f"{best[0]['y']:.2f}" if best else ""
    return _Trace(name, colour, marker, bool(held_out), figure, lines, symbols)


class _Legend:
    """The records of the legends, in pixels of the picture."""

    def __init__(self) -> None:
        self.lines, self.symbols, self.texts = Records(), Records(), Records()

    def line(self, x: float, y: float, colour: str, dashed: bool) -> None:
        ends = {"y": y, "run": len(self.lines), "colour": colour, "dashed": dashed}
        self.lines += [{"x": x} | ends, {"x": x + _SAMPLE} | ends]

    def symbol(self, x: float, y: float, colour: str, shape: str, size: float) -> None:
        self.symbols.append({"x": x, "y": y, "colour": colour, "shape": shape, "size": size})

    def text(self, x: float, y: float, text: str) -> float:
        """Returns where the text ends, more or less."""
        self.texts.append({"x": x, "y": y, "text": text})
        return x + CHARACTER * len(text)


def _legend(traces: Sequence[_Trace], width: int) -> _Legend:
    """Say above the axes what the kinds of line are, and right of them which run is which and its figure at the best step."""
    legend, x, y = _Legend(), 0.0, float(-_ROW)
    if any(trace.measured for trace in traces):
        legend.line(x, y, GREY, dashed=False)
        x = legend.text(x + _SAMPLE + _GAP, y, "held-out") + 2 * _GAP
        legend.symbol(x, y, GREY, _STAR, _STAR_SIZE)
        x = legend.text(x + 2 * _GAP, y, "best held-out loss") + 2 * _GAP
    if any(line["dashed"] for trace in traces for line in trace.lines):
        legend.line(x, y, GREY, dashed=True)
        legend.text(x + _SAMPLE + _GAP, y, "training, mean since the last record")
    figures, names = (CHARACTER * max(map(len, texts)) for texts in zip(*((t.best, t.name) for t in traces), strict=True))
    for number, trace in enumerate(traces):
        column, row = divmod(number, _LEGEND_ROWS)
        x = width + 3 * _GAP + column * (_SAMPLE + figures + names + 6 * _GAP)
        y = _ROW * (row + 0.5)
        legend.line(x, y, trace.colour, dashed=not trace.measured)
        legend.symbol(x + _SAMPLE / 2, y, trace.colour, trace.marker, _MARKER_SIZE)
        x += _SAMPLE + 2 * _GAP
        if trace.best:
            legend.symbol(x, y, trace.colour, _STAR, _STAR_SIZE)
            legend.text(x + 1.5 * _GAP, y, trace.best)
        legend.text(x + figures + 2.5 * _GAP if figures else x - _GAP, y, trace.name)
    return legend
