"""The pages as a site: ``make site`` writes build/site. The checkout is the source, so links between files need no change."""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

from phrase_rescore import __version__

ROOT = Path(__file__).resolve().parents[2]
FILES = "https://github.com/phrase-rescore/phrase-rescore/blob/main/"

project = "phrase-rescore"
version = release = __version__
copyright = "the phrase-rescore maintainers"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md"]
root_doc = "README"
myst_heading_anchors = 4  # as on GitHub
html_theme = "furo"
html_title = f"phrase-rescore {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = html_use_index = html_show_copyright = html_show_sphinx = False


def navigation() -> str:
    """Return the pages that docs/index.md lists, by its sections."""
    entries = "\n```{toctree}\n:hidden:\n\ndocs/index\n```\n"
    for section in (ROOT / "docs/index.md").read_text("utf-8").split("\n## ")[1:]:
        caption, _, text = section.partition("\n")
        pages = "".join(f"docs/{page}\n" for page in re.findall(r"\]\((?!\.\./README)([^)#:]+)\.md", text))
        pages = pages.replace("docs/../", "")
        entries += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}```\n"
    return entries


def prepare(app: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the navigation, and links to files that are no pages the address of the file."""

    def address(link: re.Match[str]) -> str:
        path = (ROOT / page).parent.joinpath(link[1]).resolve()
        in_site = path.suffix == ".png" or str(path.relative_to(ROOT).with_suffix("")) in app.env.found_docs
        return link[0] if in_site else f"]({FILES}{path.relative_to(ROOT)}"

    source[0] = re.sub(r"\]\((?!https?:|#)([^)#]+)", address, source[0])
    if page == root_doc:
        source[0] += navigation()


def finish(app: Sphinx, error: Exception | None) -> None:
    """The first page is index.html too, which servers look for."""
    if not error:
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare)
    app.connect("build-finished", finish)
