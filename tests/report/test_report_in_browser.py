"""Tests of the report in a browser: opened from a file, without a network, on a desktop and on a phone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from gpuyard.planner.recommendation import build_result
from gpuyard.report.answer import Answer, Charts, Sentence
from gpuyard.report.answers.plan import plan_answer
from gpuyard.report.answers.study.report import write_report
from gpuyard.report.html import write_page
from tests.browser import BROWSER_MARKS, Visit, launch_chromium
from tests.planner.builder import candidates, offer, plan
from tests.planner.builder import workload as plan_workload
from tests.report.builder import cost, full_study, study, workload
from tests.report.test_cost_page import charts

EVIL = "<img src=x onerror=\"document.title='broken'\"></script>"


pytestmark = list(BROWSER_MARKS)


class ReportVisit(Visit):
    """A report that is opened from its file, and may read only files."""

    def __init__(self, page: Page) -> None:
        super().__init__(page, "file://")

    def open(self, path: Path) -> None:
        self.page.goto(path.as_uri())
        self.wait_for_charts()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as chromium:
        yield chromium


@pytest.fixture(params=["light", "dark"])
def desktop(browser: Browser, request: pytest.FixtureRequest) -> Iterator[ReportVisit]:
    with browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param
    ) as context:
        yield ReportVisit(context.new_page())


@pytest.fixture
def phone(browser: Browser) -> Iterator[ReportVisit]:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        yield ReportVisit(context.new_page())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(full_study(), tmp_path_factory.mktemp("study"))


def test_the_page_shows_the_verdicts_and_draws_every_chart(
    desktop: ReportVisit, report: Path
) -> None:
    desktop.open(report)
    verdicts = desktop.page.locator("#verdicts").inner_text()
    assert "NETWORK CHOKE: don't add GPUs" in verdicts
    assert "GPU CHOKE: add GPUs" in verdicts
    charts = desktop.page.locator(".chart").all()
    assert len(charts) == 11
    for chart in charts:
        assert chart.locator("svg path").count() > 5
        assert chart.get_attribute("aria-label")
    assert desktop.messages == []
    assert desktop.requests == []
    assert not desktop.scrolls_sideways()


def test_remedy_tables_do_not_scroll(desktop: ReportVisit, report: Path) -> None:
    desktop.page.set_viewport_size({"width": 1200, "height": 900})
    desktop.open(report)
    tables = desktop.page.locator(".finding .scroll")
    assert tables.count() > 1
    assert tables.evaluate_all(
        "(tables) => tables.every((table) => table.scrollWidth <= table.clientWidth)"
    )


def test_the_page_fits_a_phone(phone: ReportVisit, report: Path) -> None:
    phone.open(report)
    assert not phone.scrolls_sideways()
    phone.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert not phone.scrolls_sideways()
    for chart in phone.page.locator(".chart svg").all():
        box = chart.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert phone.messages == []


def test_charts_follow_the_width(desktop: ReportVisit, report: Path) -> None:
    desktop.open(report)
    desktop.page.set_viewport_size({"width": 390, "height": 844})
    desktop.wait_until(
        "[...document.querySelectorAll('.chart svg')].every((s) => s.clientWidth < 390)"
    )
    assert not desktop.scrolls_sideways()


def test_another_batch_size_redraws_the_charts(desktop: ReportVisit, report: Path) -> None:
    desktop.open(report)
    throughput = desktop.page.locator("#chart-throughput-spoken-digits-linear svg")
    assert "batch 50 per GPU" in (throughput.text_content() or "")
    desktop.page.locator("select").first.select_option("200")
    desktop.wait_until(
        "document.querySelector('#chart-throughput-spoken-digits-linear svg')"
        ".textContent.includes('batch 200 per GPU')"
    )
    other = desktop.page.locator("#chart-throughput-spoken-digits-conv svg")
    assert "batch 50 per GPU" in (other.text_content() or "")
    assert desktop.messages == []


def test_a_tooltip_has_the_numbers_of_curves_but_not_of_bands(
    desktop: ReportVisit, report: Path
) -> None:
    desktop.open(report)
    chart = desktop.page.locator("#chart-throughput-spoken-digits-linear")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    desktop.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 150)
    tooltip = chart.locator("div", has_text="this machine, measured").last
    tooltip.wait_for()
    text = chart.inner_text()
    assert text.count("4 × HPE Apollo 6500, predicted") == 2  # the legend's and the curve's
    four = full_study().workloads[0].curves[1].predictions[2]
    assert four.gpus == 4
    assert f"{four.samples_per_second:,.0f}" in text
    assert desktop.messages == []


def test_markup_in_names_is_only_text(desktop: ReportVisit, tmp_path: Path) -> None:
    tested = workload(EVIL)
    curves = tuple(replace(c, platform=f"{EVIL} {i}") for i, c in enumerate(tested.curves))
    epochs = tuple(replace(e, platform=f"{EVIL} {e.platform}") for e in tested.epoch_times)
    evil = study(replace(tested, curves=curves, epoch_times=epochs), name=EVIL, price=cost())
    desktop.open(write_report(evil, tmp_path))
    for chart in desktop.page.locator(".chart").all():
        chart.hover()
    assert desktop.page.title() == f"{EVIL} – gpuyard study"
    assert desktop.page.locator("img").count() == 0
    assert desktop.messages == []
    assert desktop.requests == []
    assert not desktop.scrolls_sideways()


def test_a_study_with_gaps_still_draws(desktop: ReportVisit, tmp_path: Path) -> None:
    tested = workload("single")
    single = replace(
        tested,
        curves=tuple(replace(c, predictions=c.predictions[:1]) for c in tested.curves),
        measured=tuple(p for p in tested.measured if p.workers == 1),
        epoch_times=tested.epoch_times[:1],
    )
    planned = replace(
        tested, name="planned", measured=(), epoch_times=(), curves=tested.curves[1:2]
    )
    nothing = replace(tested, name="nothing", measured=(), epoch_times=(), curves=())
    desktop.open(write_report(study(single, planned, nothing), tmp_path))
    assert desktop.page.locator(".chart").count() == 4 + 3
    assert desktop.messages == []


def test_ten_workloads(desktop: ReportVisit, tmp_path: Path) -> None:
    desktop.open(write_report(study(*(workload(f"model {i}") for i in range(10))), tmp_path))
    assert desktop.page.locator("article.card").count() == 10
    assert desktop.page.locator(".chart").count() == 40
    assert desktop.messages == []


def test_the_tables_work_without_javascript(browser: Browser, report: Path) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(report.as_uri())
        assert "Everything they show is in the tables below" in page.locator("#charts").inner_text()
        page.locator("#numbers summary").first.click()
        assert "m-050-2" in page.locator("#numbers details").first.inner_text()


def test_printing_opens_folded_sections(browser: Browser, report: Path) -> None:
    with browser.new_context(color_scheme="dark") as context:
        visit = ReportVisit(context.new_page())
        visit.open(report)
        visit.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert visit.page.locator("details:not([open])").count() == 0
        widths = {svg.get_attribute("width") for svg in visit.page.locator(".chart svg").all()}
        assert widths == {"660"}
        visit.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert visit.page.locator("details[open]").count() == 0
        assert visit.page.pdf().startswith(b"%PDF")
        assert visit.messages == []


def test_a_cost_page_draws_its_charts_and_fits_a_phone(
    desktop: ReportVisit, phone: ReportVisit, tmp_path: Path
) -> None:
    answer = Answer([Sentence(EVIL), Charts(charts())], title=EVIL, meta="prices of 2026-08-22")
    write_page(answer, tmp_path / "cost.html")
    for visit in (desktop, phone):
        visit.open(tmp_path / "cost.html")
        drawn = visit.page.locator(".chart").all()
        assert len(drawn) == 6
        for chart in drawn:
            assert chart.locator("svg path").count() > 3
        assert visit.messages == []
        assert visit.requests == []
        assert visit.page.title() != "broken"
        assert not visit.scrolls_sideways()


def test_a_plan_page_draws_its_chart(desktop: ReportVisit, tmp_path: Path) -> None:
    spec = plan(
        offer(EVIL, rent="$3/h"),
        offer("four", rent="$14/h", gpus=4),
        time_per_run="8 h",
        search={"ways": ["on-demand"], "nodes": [1]},
    )
    write_page(plan_answer(build_result(candidates(spec), plan_workload())), tmp_path / "plan.html")
    desktop.open(tmp_path / "plan.html")
    chart = desktop.page.locator("#chart-plan")
    assert chart.locator("svg path").count() > 5
    for point in chart.locator("svg path").all():
        point.hover(force=True, no_wait_after=True)
    assert desktop.page.title() == "small – gpuyard plan"
    assert desktop.messages == []
    assert desktop.requests == []
    assert not desktop.scrolls_sideways()
