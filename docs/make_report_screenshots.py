"""Writes docs/report-scores.png and docs/report-map.png: two parts of a page that ``phrase-rescore report`` wrote.

Usage: python docs/make_report_screenshots.py REPORT.html [WORD]    (WORD: what is searched for on the map of source words)

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
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1480})
        page.goto(Path(sys.argv[1]).resolve().as_uri())
        page.wait_for_function(READY, timeout=120_000)
        page.screenshot(path=HERE / "report-scores.png")
        page.locator("#source-words input").fill(sys.argv[2] if len(sys.argv) == 3 else "file")
        page.locator("#source-words").scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        page.locator("#source-words").screenshot(path=HERE / "report-map.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
