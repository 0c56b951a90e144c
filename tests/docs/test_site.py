"""The site: it builds without a warning, has every page, and its links to files are addresses of files that are there."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

CONFIGURATION = ROOT / "docs" / "site"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-c", CONFIGURATION, ROOT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.relative_to(ROOT).with_suffix("") for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
    built = {path.relative_to(tmp_path).with_suffix("") for path in tmp_path.rglob("*.html")}
    assert built == pages | {Path("index"), Path("search")}
    html = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.html"))
    files = set(re.findall(rf'href="{runpy.run_path(str(CONFIGURATION / "conf.py"))["FILES"]}([^"#]+)"', html))
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).exists()] == []
