"""Take the README's picture of a report (needs Chromium): picture_report.py [PICTURE.png].

The report predicts two models on current GPUs. It measures nothing, so the figures don't depend on this machine.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from gpuyard.catalog.specfiles import read_study
from gpuyard.files import write_text
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.study.report import write_report
from gpuyard.study import run_study

ROOT = Path(__file__).parents[1]
STUDY = """\
name: Two models, from one workstation to a cluster
workloads: [resnet50, bert-base]
measure: null
clusters:
  - {cluster: 4xrtx-5090, gpus: [1, 2, 4]}
  - {cluster: 4x8xl40s@25G, gpus: [1, 8, 16, 32]}
  - {cluster: 4xdgx-h100, gpus: [1, 8, 16, 32]}
cost: {rent: $30/h, buy: $350000, hours_per_year: 4000, power: 10.2 kW, country: DE}
"""
PICTURE = ROOT / "docs" / "images" / "report.png"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def create_report(directory: Path) -> Path:
    """Write the report of the study's predictions and costs."""
    file = directory / "picture.study.yaml"
    write_text(file, STUDY)
    result = run_study(read_study(file), directory, ResultsStore(directory / "results.sqlite"))
    return write_report(result, directory / "study")


def main() -> None:
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": 1120})
        page.goto(create_report(Path(directory)).as_uri())
        page.wait_for_selector("[data-drawn=true]")
        page.wait_for_timeout(1500)  # the charts' opening animation
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
