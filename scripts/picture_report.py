"""Takes the README's picture of a report: picture_report.py REPORT.html PICTURE.png (needs Chromium)."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """The top of the page, and the first charts beneath it."""
    report, picture = (Path(argument).resolve() for argument in sys.argv[1:3])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": 1120})
        page.goto(report.as_uri())
        page.wait_for_selector("[data-drawn=true]")
        page.wait_for_timeout(1500)  # the charts' opening animation
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
