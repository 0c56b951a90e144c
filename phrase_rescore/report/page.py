"""One HTML file that needs no other: text, tables, charts and the one bundle that draws them.

Nothing of a table is taken for HTML: all text goes through ``text``, all data through ``script_json``. Scripts run by their
hashes alone (Content-Security-Policy), and the page may ask nobody for anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from phrase_rescore.data.coverage import unescape
from phrase_rescore.report.theme import Spec, vega_lite_version

# The one script: what vl-convert bundles, and this, which hands it the page's charts
_DRAW = """
for (const data of document.querySelectorAll('script[type="application/json"]')) {
  const options = {actions: false, ast: true, renderer: "canvas"};
  const drawn = vegaEmbed("#" + data.dataset.chart, JSON.parse(data.textContent), options);
  drawn.then(({view}) => Object.assign(document.getElementById(data.dataset.chart), {view}));
}
"""


@dataclass
class Section:
    """A part of the page: HTML that is safe already, and the chart that ``chart(name)`` in it shows."""

    name: str  # of its address in the page and of its picture
    title: str
    parts: list[str]
    specs: dict[str, Spec] = field(default_factory=dict)


def readable(phrase: bytes) -> str:
    """A phrase for people: Moses' escapes undone, what cannot be printed written out.

    >>> readable(b"l &apos; eau \\xff"), readable("a\\u2028b".encode())
    ("l ' eau \\\\xff", 'a\\\\u2028b')
    """
    decoded = unescape(phrase).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in decoded)


def text(value: bytes | str) -> str:
    """As HTML that shows it and does nothing else.

    >>> text(b"&lt;b&gt; &amp;amp;")
    '&lt;b&gt; &amp;amp;'
    """
    return html.escape(readable(value) if isinstance(value, bytes) else value)


def script_json(value: Any) -> str:
    """JSON that may stand within a script element: in ASCII, nothing in it ends the element or begins a comment.

    >>> script_json("</script><!-- \\u2028 &")
    '"\\\\u003c/script\\\\u003e\\\\u003c!-- \\\\u2028 \\\\u0026"'
    """
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def paragraph(*sentences: str, kind: str = "") -> str:
    """Of sentences that are HTML already."""
    return f"<p{f' class={kind!r}' if kind else ''}>{' '.join(sentence for sentence in sentences if sentence)}</p>"


def chart(name: str) -> str:
    return f'<div class="chart" id="{name}"></div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), kind: str = "figures") -> str:
    """Cells are HTML already; the columns ``numbers`` (from 0) stand on the right."""

    def row(cells: Sequence[str], tag: str) -> str:
        kinds = [' class="n"' if i in numbers else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{of}>{cell}</{tag}>" for cell, of in zip(cells, kinds, strict=True)) + "</tr>"

    body = "\n".join(row(cells, "td") for cells in rows)
    return f'<table class="{kind}"><thead>{row(head, "th")}</thead>\n<tbody>{body}</tbody></table>'


def tiles(figures: Sequence[tuple[str, str, str]]) -> str:
    """Name, figure and what there is to say of it."""
    shown = (
        f'<div class="tile"><div class="name">{name}</div><div class="figure">{figure}</div>'
        f'<div class="more">{more}</div></div>'
        for name, figure, more in figures
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def definitions(pairs: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in pairs.items())}</dl>"


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@functools.cache
def _script() -> str:
    import vl_convert

    bundle = vl_convert.javascript_bundle(_DRAW, vega_lite_version())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def page(title: str, head: str, sections: Sequence[Section]) -> bytes:
    """The whole file. ``head``: HTML above the first section."""
    script = _script()
    style = resources.files("phrase_rescore.report").joinpath("report.css").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    links = "\n".join(f'<a href="#{section.name}">{section.title}</a>' for section in sections)
    body = "\n".join(
        f'<section id="{section.name}"><h2>{section.title}</h2>\n' + "\n".join(section.parts) + "</section>"
        for section in sections
    )
    data = "\n".join(
        f'<script type="application/json" data-chart="{name}">{script_json(spec)}</script>'
        for section in sections
        for name, spec in section.specs.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{head}
<nav>{links}</nav>
{body}
{data}
<script>{script}</script>
</body>
</html>
""".encode()
