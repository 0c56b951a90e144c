"""What all pictures share: colours, fonts, how a chart becomes a Vega-Lite specification, and that a PNG or an SVG."""

import math
from typing import Any

from phrase_rescore.errors import OptionError

Spec = dict[str, Any]
Records = list[dict[str, Any]]

# Okabe and Ito's colours, which colour-blind readers tell apart, less the yellow, too pale for a line
BLUE, VERMILION, SKY = "#0072B2", "#D55E00", "#56B4E9"
COLOURS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", SKY, "#000000")
INK, GREY, PALE = "#222222", "#6B6B6B", "#E4E4E4"
FULL = 1040  # pixels across a page
_PNG_SCALE = 2  # pixels of a PNG for one of the page
_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"  # vl-convert brings Liberation Sans along


def altair(command: str = "report") -> Any:
    """Import the library. Raises OptionError where it, or what draws its charts, is not installed."""
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError as error:
        library = (error.name or "altair").replace("_", "-")
        raise OptionError(f"{command} needs {library}; install it with: pip install 'phrase-rescore[report]'") from None
    return altair


def specification(chart: Any, **datasets: Records) -> Spec:
    """Give a chart its looks and its data, where None stands for a number that is not finite, since JSON has none."""
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


def vega_lite_version() -> str:
    """The version of the specifications, as vl-convert wants it."""
    return ".".join(str(altair().SCHEMA_VERSION).lstrip("v").split(".")[:2])


def picture(spec: Spec, form: str) -> bytes:
    """Draw a specification as ``png`` or ``svg``; the same specification and libraries give the same bytes."""
    import vl_convert

    if form == "png":
        return bytes(vl_convert.vegalite_to_png(spec, vl_version=vega_lite_version(), scale=_PNG_SCALE))
    return str(vl_convert.vegalite_to_svg(spec, vl_version=vega_lite_version())).encode()
