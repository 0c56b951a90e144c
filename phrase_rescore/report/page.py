"""One HTML file that needs no other: text, tables, charts and the one bundle that draws them.

The text is a Jinja template, ``page.html``, which escapes all values. Only scripts with known hashes run; nothing is loaded.
"""

import base64
import functools
import hashlib
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from phrase_rescore.messages import percent
from phrase_rescore.moses.text import readable
from phrase_rescore.report.charts import Spec, schema_version

# The one script: what vl-convert bundles, and this, which hands it the page's charts
_DRAW = """
for (const data of document.querySelectorAll('script[type="application/json"]')) {
  const actions = {export: true, source: false, compiled: false, editor: false};
  const options = {actions, ast: true, renderer: "canvas"};
  const drawn = vegaEmbed("#" + data.dataset.chart, JSON.parse(data.textContent), options);
  drawn.then(({view}) => Object.assign(document.getElementById(data.dataset.chart), {view}));
}
"""


def nats(x: float, digits: int = 2) -> str:
    """Write a number with a true minus sign.

    >>> nats(-0.5), nats(float("nan"))
    ('−0.50', 'none')
    """
    return f"{x:,.{digits}f}".replace("-", "−") if math.isfinite(x) else "none"


def number(x: float) -> str:
    """Write a count with commas.

    >>> number(3330185), number(20.0)
    ('3,330,185', '20')
    """
    return f"{x:,}" if isinstance(x, int) else f"{x:,.6g}"


def _text(name: str) -> str:
    return resources.files("phrase_rescore.report").joinpath(name).read_text("utf-8")


def environment() -> Environment:
    """Return the template's environment: all is escaped; ``tojson`` writes ASCII that cannot end a script."""
    made = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters.update(readable=readable, nats=nats, percent=percent, number=number)
    made.tests["finite"] = math.isfinite
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


@functools.cache
def _script() -> str:
    import vl_convert

    return vl_convert.javascript_bundle(_DRAW, schema_version()).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def page(title: str, charts: Mapping[str, Spec], facts: Mapping[str, Any]) -> bytes:
    """Write the whole file; ``facts`` are the values in its sections."""
    style, script = _text("page.css"), Markup(_script())
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"title": title, "charts": charts, "style": Markup(style), "script": script, "script_hash": f"sha256-{digest}"}
    return environment().get_template("page.html").render(own | dict(facts)).encode("utf-8", "backslashreplace")
