"""The report as its readers see it: opened from a file, without a network, on a desk and on a phone."""

import ctypes
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from gpuyard.planner.search import plan_result
from gpuyard.report.answer import Answer, Charts, Sentence
from gpuyard.report.answers.plan import plan_answer
from gpuyard.report.answers.study.report import write_report
from gpuyard.report.html import write_page
from tests.planner.builder import candidates, offer, plan
from tests.planner.builder import workload as known_workload
from tests.report.builder import cost, full_study, study, workload
from tests.report.test_cost_page import charts

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
EVIL = "<img src=x onerror=\"document.title='broken'\"></script>"


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(
        sys.platform == "linux" and not _has_library("libatomic.so.1"),
        reason="Playwright needs libatomic: apt-get install libatomic1",
    ),
]


class Visit:
    """One open page, and everything that went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.route("**/*", self._only_the_file)

    def _only_the_file(self, route: Route) -> None:
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def open(self, path: Path) -> None:
        self.page.goto(path.as_uri())
        self.wait_until(
            "[...document.querySelectorAll('.chart')].every((c) => c.dataset.drawn === 'true')"
        )

    def wait_until(self, condition: str) -> None:
        """Asks from outside: Playwright's own waiting is an eval in the page, which our policy forbids."""
        deadline = time.monotonic() + 30
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            self.page.wait_for_timeout(50)

    def scrolls_sideways(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(params=["light", "dark"])
def desk(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visit]:
    with browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param
    ) as context:
        yield Visit(context.new_page())


@pytest.fixture
def phone(browser: Browser) -> Iterator[Visit]:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        yield Visit(context.new_page())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(full_study(), tmp_path_factory.mktemp("study"))


def test_it_tells_the_verdicts_and_draws_every_chart(desk: Visit, report: Path) -> None:
    desk.open(report)
    verdicts = desk.page.locator("#verdicts").inner_text()
    assert "NETWORK CHOKE: don't add GPUs" in verdicts
    assert "GPU CHOKE: add GPUs" in verdicts
    charts = desk.page.locator(".chart").all()
    assert len(charts) == 11
    for chart in charts:
        assert chart.locator("svg path").count() > 5
        assert chart.get_attribute("aria-label")
    assert desk.complaints == []
    assert desk.requests == []
    assert not desk.scrolls_sideways()


def test_what_would_help_is_read_without_scrolling(desk: Visit, report: Path) -> None:
    desk.page.set_viewport_size({"width": 1200, "height": 900})
    desk.open(report)
    tables = desk.page.locator(".finding .scroll")
    assert tables.count() > 1
    assert tables.evaluate_all("(all) => all.every((one) => one.scrollWidth <= one.clientWidth)")


def test_it_fits_a_phone(phone: Visit, report: Path) -> None:
    phone.open(report)
    assert not phone.scrolls_sideways()
    phone.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert not phone.scrolls_sideways()
    for chart in phone.page.locator(".chart svg").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert phone.complaints == []


def test_charts_follow_the_width(desk: Visit, report: Path) -> None:
    desk.open(report)
    desk.page.set_viewport_size({"width": 390, "height": 844})
    desk.wait_until(
        "[...document.querySelectorAll('.chart svg')].every((s) => s.clientWidth < 390)"
    )
    assert not desk.scrolls_sideways()


def test_another_batch_size_redraws_the_charts(desk: Visit, report: Path) -> None:
    desk.open(report)
    throughput = desk.page.locator("#chart-throughput-spoken-digits-linear svg")
    assert "50 samples per GPU and step" in (throughput.text_content() or "")
    desk.page.locator("select").first.select_option("200")
    desk.wait_until(
        "document.querySelector('#chart-throughput-spoken-digits-linear svg')"
        ".textContent.includes('200 samples per GPU and step')"
    )
    other = desk.page.locator("#chart-throughput-spoken-digits-conv svg")
    assert "50 samples per GPU and step" in (other.text_content() or "")
    assert desk.complaints == []


def test_a_tooltip_has_the_numbers_of_the_curves_but_not_of_the_bands(
    desk: Visit, report: Path
) -> None:
    desk.open(report)
    chart = desk.page.locator("#chart-throughput-spoken-digits-linear")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    desk.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 150)
    tooltip = chart.locator("div", has_text="this machine, measured").last
    tooltip.wait_for()
    text = chart.inner_text()
    assert text.count("4 × HPE Apollo 6500, predicted") == 2  # the legend's and the curve's
    four = full_study().workloads[0].curves[1].predictions[2]
    assert four.gpus == 4
    assert f"{four.samples_per_second:,.0f}" in text
    assert desk.complaints == []


def test_markup_in_names_is_only_text(desk: Visit, tmp_path: Path) -> None:
    one = workload(EVIL)
    curves = tuple(replace(c, platform=f"{EVIL} {i}") for i, c in enumerate(one.curves))
    epochs = tuple(replace(e, platform=f"{EVIL} {e.platform}") for e in one.epoch_times)
    evil = study(replace(one, curves=curves, epoch_times=epochs), name=EVIL, price=cost())
    desk.open(write_report(evil, tmp_path))
    for chart in desk.page.locator(".chart").all():
        chart.hover()
    assert desk.page.title() == f"{EVIL} – gpuyard study"
    assert desk.page.locator("img").count() == 0
    assert desk.complaints == []
    assert desk.requests == []
    assert not desk.scrolls_sideways()


def test_a_study_with_gaps_still_draws(desk: Visit, tmp_path: Path) -> None:
    one = workload("single")
    single = replace(
        one,
        curves=tuple(replace(c, predictions=c.predictions[:1]) for c in one.curves),
        measured=tuple(p for p in one.measured if p.workers == 1),
        epoch_times=one.epoch_times[:1],
    )
    planned = replace(one, name="planned", measured=(), epoch_times=(), curves=one.curves[1:2])
    nothing = replace(one, name="nothing", measured=(), epoch_times=(), curves=())
    desk.open(write_report(study(single, planned, nothing), tmp_path))
    assert desk.page.locator(".chart").count() == 4 + 3
    assert desk.complaints == []


def test_ten_workloads(desk: Visit, tmp_path: Path) -> None:
    desk.open(write_report(study(*(workload(f"model {i}") for i in range(10))), tmp_path))
    assert desk.page.locator("article.card").count() == 10
    assert desk.page.locator(".chart").count() == 40
    assert desk.complaints == []


def test_without_javascript_the_tables_tell_it(browser: Browser, report: Path) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        assert "Everything they show is in the tables below" in page.locator("#charts").inner_text()
        page.locator("#numbers summary").first.click()
        assert "m-050-2" in page.locator("#numbers details").first.inner_text()


def test_paper_shows_what_is_folded_on_the_screen(browser: Browser, report: Path) -> None:
    with browser.new_context(color_scheme="dark") as context:
        visit = Visit(context.new_page())
        visit.open(report)
        visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert visit.page.locator("details:not([open])").count() == 0
        widths = {svg.get_attribute("width") for svg in visit.page.locator(".chart svg").all()}
        assert widths == {"660"}
        visit.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert visit.page.locator("details[open]").count() == 0
        assert visit.page.pdf().startswith(b"%PDF")
        assert visit.complaints == []


def test_a_page_of_cost_draws_its_charts_and_fits_a_phone(
    desk: Visit, phone: Visit, tmp_path: Path
) -> None:
    answer = Answer([Sentence(EVIL), Charts(charts())], title=EVIL, meta="prices of 2026-08-22")
    write_page(answer, tmp_path / "cost.html")
    for visit in (desk, phone):
        visit.open(tmp_path / "cost.html")
        drawn = visit.page.locator(".chart").all()
        assert len(drawn) == 6
        for chart in drawn:
            assert chart.locator("svg path").count() > 3
        assert visit.complaints == []
        assert visit.requests == []
        assert visit.page.title() != "broken"
        assert not visit.scrolls_sideways()


def test_the_page_of_a_plan_draws_its_chart(desk: Visit, tmp_path: Path) -> None:
    asked = plan(
        offer(EVIL, rent="$3/h"),
        offer("four", rent="$14/h", gpus=4),
        time_per_run="8 h",
        search={"ways": ["on-demand"], "nodes": [1]},
    )
    write_page(
        plan_answer(plan_result(candidates(asked), known_workload())), tmp_path / "plan.html"
    )
    desk.open(tmp_path / "plan.html")
    chart = desk.page.locator("#chart-plan")
    assert chart.locator("svg path").count() > 5
    for point in chart.locator("svg path").all():
        point.hover(force=True, no_wait_after=True)
    assert desk.page.title() == "small – gpuyard plan"
    assert desk.complaints == []
    assert desk.requests == []
    assert not desk.scrolls_sideways()
