"""Training curves: the logs of runs as a picture."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phrase_rescore.errors import OptionError
from phrase_rescore.files.atomic import atomic_output
from phrase_rescore.models.checkpoint import CONFIG
from phrase_rescore.training.log import Point, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = {".png": "png", ".svg": "svg"}
X_LABELS = {"steps": "step (minibatches)", "hours": "time of training (hours)", "pairs": "phrase pairs seen (millions)"}
Y_LABELS = {"loss": "negative log-likelihood (nats per pair)", "perplexity": "held-out perplexity (per word)"}

# Okabe and Ito's colours, which colour-blind readers tell apart, less the yellow, too pale for a line. Every round of the
# colours has the markers in another order.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_MARKED = 10  # of the points of a curve, or a few more: all of a long one would hide it
_LABEL = 40  # characters in the legend
_LEGEND_ROWS = 16
_ROOM = 1000  # largest ratio of the ends of a logarithmic axis whose 1, 2, 5, 10, 20, … can all be written

_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "phrase-rescore",  # the same names inside, run after run
}


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

    def curve(self, run: Run, figure: str) -> tuple[list[float], list[float]]:
        """x and y of the points that have the figure, a field of Point; on a logarithmic axis those right of 0."""
        found = [(self.place(run, point), getattr(point, figure)) for point in run.points]
        found = [(x, y) for x, y in found if y is not None and (x > 0 or not self.log_x)]
        return [x for x, _ in found], [y for _, y in found]


def picture_format(path: str) -> str:
    """png or svg, by the end of the name. Raises OptionError for any other."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in FORMATS:
        raise OptionError(f"{path}: a picture's name ends in {' or '.join(FORMATS)}; name it, say, curves.png")
    return FORMATS[suffix]


@contextlib.contextmanager
def _matplotlib() -> Iterator[None]:
    """matplotlib with our style, whatever its user has set, and silent about letters that its font lacks."""
    try:
        import matplotlib
    except ImportError:
        raise OptionError("curves needs matplotlib; install it with: pip install 'phrase-rescore[report]'") from None
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        yield


def _draw(axes: Axes, number: int, run: Run, chart: Chart) -> Line2D:
    """Draws a run and returns a line for the legend. Raises OptionError if there is nothing to draw."""
    from matplotlib.lines import Line2D

    held_out = chart.curve(run, chart.y)
    training = chart.curve(run, "train_loss") if chart.y == "loss" else ([], [])
    if not held_out[0] and not training[0]:
        hint = "train with --eval-every small enough for a record"
        if all(getattr(point, chart.y) is None for point in run.points) and chart.y == "perplexity":
            hint = "draw it with --y loss"
        elif chart.log_x:
            hint = "draw it without --log-x"
        raise OptionError(f"{run.name}: the log has no {chart.y} to draw there; {hint}")
    colour = _COLOURS[number % len(_COLOURS)]
    marker = _MARKERS[(number + number // len(_COLOURS)) % len(_MARKERS)]
    for (x, y), style, width in ((training, "--", 1.1), (held_out, "-", 1.8)):
        marked = style == "-" or not held_out[0] or len(x) == 1
        axes.plot(
            x, y, style, color=colour, linewidth=width, marker=marker if marked else "", markersize=4.5,
            markevery=max(1, len(x) // _MARKED), zorder=3 if style == "-" else 2,
        )  # fmt: skip
    label = run.name if len(run.name) <= _LABEL else f"{run.name[: _LABEL - 1]}…"
    best = run.best
    if best and best.loss is not None:
        value = best.loss if chart.y == "loss" else best.perplexity
        place = chart.place(run, best)
        if value is not None and (place > 0 or not chart.log_x):
            axes.plot(
                [place], [value], "*", color=colour, markersize=13, markeredgecolor="white", markeredgewidth=0.8, zorder=4
            )
            label += f"  ★ {value:.2f}"
    return Line2D([], [], color=colour, marker=marker, markersize=4.5, label=label, linestyle="-" if held_out[0] else "--")


def _legends(figure: Figure, axes: Axes, runs: list[Line2D], held_out: bool, training: bool) -> None:
    """Above the axes what the kinds of line are; right of them, where they hide no curve, the runs."""
    from matplotlib.lines import Line2D

    grey = "#555555"
    kinds = []
    if held_out:
        kinds.append(Line2D([], [], color=grey, linewidth=1.8, label="held-out"))
        kinds.append(Line2D([], [], color=grey, marker="*", markersize=11, linestyle="", label="best held-out loss"))
    if training:
        kinds.append(Line2D([], [], color=grey, linewidth=1.1, linestyle="--", label="training, mean since the last record"))
    for line in runs:
        line.set_label(str(line.get_label()).replace("$", r"\$"))  # no formulas
    columns = math.ceil(len(runs) / _LEGEND_ROWS)
    common: dict[str, Any] = {"frameon": False, "borderaxespad": 0.0}
    above = {"bbox_to_anchor": (0.0, 1.02), "bbox_transform": axes.transAxes, "ncols": len(kinds)}
    figure.legend(handles=kinds, loc="lower left", **above, **common)
    axes.legend(handles=runs, loc="upper left", bbox_to_anchor=(1.02, 1.0), ncols=columns, **common)


def _scales(axes: Axes, chart: Chart) -> None:
    """Labels, and numbers as people write them. Perplexity falls by orders of magnitude: its axis is logarithmic."""
    from matplotlib.axis import Axis
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    def logarithmic(axis: Axis, limits: tuple[float, float]) -> None:
        subs = (1.0, 2.0, 5.0) if limits[1] <= _ROOM * limits[0] else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_formatter(NullFormatter())

    axes.set_xlabel(X_LABELS[chart.x])
    axes.set_ylabel(Y_LABELS[chart.y])
    if chart.log_x:
        axes.set_xscale("log")
        logarithmic(axes.xaxis, axes.get_xlim())
    if chart.y == "perplexity":
        axes.set_yscale("log")
        logarithmic(axes.yaxis, axes.get_ylim())
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def draw(runs: Sequence[Run], path: str, chart: Chart = Chart()) -> None:
    """Draws the curves of runs into a PNG or SVG file: held-out solid, training dashed, the best step a star.

    The same runs and matplotlib give the same bytes. Raises OptionError for another kind of file, without matplotlib, and
    for a run that has nothing to draw or does not say where.
    """
    form = picture_format(path)
    with _matplotlib():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.2, 4.6), dpi=150)
        axes = figure.subplots()
        lines = [_draw(axes, number, run, chart) for number, run in enumerate(runs)]
        _scales(axes, chart)
        held_out = any(point.loss is not None for run in runs for point in run.points)
        training = chart.y == "loss" and any(point.train_loss is not None for run in runs for point in run.points)
        _legends(figure, axes, lines, held_out, training)
        metadata = {"Software": None} if form == "png" else {"Date": None}
        with atomic_output(path) as stream:
            figure.savefig(stream, format=form, bbox_inches="tight", metadata=metadata)
