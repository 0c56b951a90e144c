"""Writes docs/report-scores.png: the top of a page that ``phrase-rescore report`` wrote.

Usage: python docs/make_report_screenshots.py REPORT.html

Needs playwright and a Chromium, named by CHROMIUM or found on the path.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
READY = "[...document.querySelectorAll('.chart')].every(chart => chart.view)"
HERE = Path(__file__).parent


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1480})
        page.goto(Path(sys.argv[1]).resolve().as_uri())
        page.wait_for_function(READY, timeout=120_000)
        page.screenshot(path=HERE / "report-scores.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
