"""The page in a real browser: every view on seeded data, without a network, on a desktop and on a phone."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from gpuyard.files import results_file
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.study.report import study_answer
from gpuyard.report.kept import keep_report, list_reports
from tests.browser import BROWSER_MARKS, Visit, launch_chromium
from tests.conftest import ROOT, Cli, MakeMeasurement
from tests.report.builder import full_study
from tests.web.conftest import Serve, Site
from tests.web.seed import EVIL, LONG, seed_share
from tests.web.test_jobs import TRAINING

pytestmark = list(BROWSER_MARKS)
AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
SCREENSHOTS = Path(os.environ.get("GPUYARD_SCREENSHOTS", ROOT / "build" / "screenshots"))
VIEWS = {
    "now": "/",
    "jobs": "/jobs",
    "history": "/history",
    "scale": "/scale",
    "buy": "/buy?budget=20000&researchers=2",
    "cost": "/buy/cost",
    "hybrid": "/buy/hybrid",
    "room": "/room?nodes=2",
    "machine": "/machine?preset=dual-root",
    "results": "/results",
    "confirm": "/act/lease?count=2&time=1h",
}
SCREENS = {"light-1440": ("light", 1440), "dark-1440": ("dark", 1440), "light-390": ("light", 390), "dark-390": ("dark", 390)}  # fmt: skip


class WebVisit(Visit):
    """A page of the server, which may ask only this server."""

    def __init__(self, page: Page, site: Site) -> None:
        super().__init__(page, site.address, "data:", "blob:")
        self.site = site

    def open(self, path: str) -> None:
        self.page.goto(self.site.address.rstrip("/") + path, wait_until="domcontentloaded")
        self.wait_until("document.readyState === 'complete'")
        self.wait_for_charts()

    def move(self, slider: str, steps: int) -> None:
        """Move a slider with the keyboard."""
        handle = self.page.locator(f"#in-{slider}")
        handle.focus()
        for _ in range(abs(steps)):
            handle.press("ArrowRight" if steps > 0 else "ArrowLeft")

    def find_barriers(self) -> list[str]:
        """Return the violations of WCAG 2.1 AA that axe-core finds."""
        self.page.evaluate(AXE)
        result = self.page.evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
        )
        return [
            f"{violation['id']}: {node['html'][:120]} {node.get('failureSummary', '')[:160]}"
            for violation in result["violations"]
            for node in violation["nodes"][:3]
        ]

    def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as chromium:
        yield chromium


@pytest.fixture
def visit(browser: Browser, serve: Serve, share: Path) -> Iterator[WebVisit]:
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        yield WebVisit(context.new_page(), serve())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "screen",
    [
        "light-1440",
        "dark-390",
        # colors and widths do not affect each other
        pytest.param("dark-1440", marks=pytest.mark.soak),
        pytest.param("light-390", marks=pytest.mark.soak),
    ],
)
def test_every_view_is_readable_by_everyone(
    browser: Browser, serve: Serve, share: Path, screen: str
) -> None:
    scheme, width = SCREENS[screen]
    site = serve()
    with browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,  # type: ignore[arg-type]
    ) as context:
        problems: dict[str, list[str]] = {}
        for name, path in VIEWS.items():
            visit = WebVisit(context.new_page(), site)
            visit.open(path)
            visit.screenshot(f"{name}-{screen}")
            wide = visit.scrolls_sideways()
            problems[name] = [
                *visit.messages,
                *visit.requests,
                *(["it scrolls sideways"] if wide else []),
                *visit.find_barriers(),
            ]
            visit.page.close()
    assert problems == {name: [] for name in VIEWS}


@pytest.mark.parametrize("gpus", [0, 8, 512])
def test_any_number_of_gpus_and_long_names_fit(
    browser: Browser, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    if gpus:
        seed_share(tmp_path / "share", gpus, names=(LONG, EVIL, "carol"))
    site = serve()
    for width in (1440, 390):
        with browser.new_context(viewport={"width": width, "height": 900}) as context:
            visit = WebVisit(context.new_page(), site)
            visit.open("/")
            visit.screenshot(f"now-{gpus}-gpus-{width}")
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
            assert visit.page.locator("img").count() == 0
            assert "broken" not in visit.page.title()
            assert visit.find_barriers() == []
            assert visit.messages == []


def test_the_page_is_live(visit: WebVisit, share: Path) -> None:
    from tests.web.seed import write_readings

    visit.open("/")
    assert visit.page.locator(".gpus tr.idle").count() == 2
    visit.page.locator("#how summary").click()
    write_readings(share, 8, busy=8, idle=0)
    visit.wait_until("document.querySelectorAll('.gpus tr.idle').length === 0")
    assert visit.page.locator("#how").get_attribute("open") is not None, "it stays open"
    assert visit.messages == []


@pytest.mark.parametrize("path", ["/", "/scale"])
def test_a_lost_connection_is_announced(visit: WebVisit, path: str) -> None:
    visit.open(path)
    lost = visit.page.locator("#connection")
    assert not lost.is_visible()
    if path == "/":
        assert visit.page.locator(".age").first.inner_text() == "live"
    visit.site.stop()
    if path == "/scale":
        visit.move("machines", 1)
    lost.wait_for()
    assert "Connection lost since" in lost.inner_text()
    if path == "/":
        visit.wait_until("document.querySelector('.age').textContent.includes('old')")
    visit.screenshot(f"lost-{path.strip('/') or 'now'}")


def test_ending_a_lease_proposes_to_go_back(visit: WebVisit) -> None:
    visit.open("/")
    visit.page.locator("tr", has_text="jupyter lab").get_by_role("link").click()
    visit.page.wait_for_url("**/act/release?*")
    facts = visit.page.locator("dl.facts").inner_text()
    for fact in ("bob", "4–5", "jupyter lab"):
        assert fact in facts
    assert visit.page.evaluate("document.activeElement.textContent") == "No, go back"
    visit.screenshot("confirm-release")
    assert [*visit.messages, *visit.find_barriers()] == []


def test_a_jobs_page_follows_it_to_its_end(
    browser: Browser, serve: Serve, empty_share: Path, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    script = f"{shlex.quote(sys.executable)} {tmp_path}/train.py; until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    options = ("--workload", "resnet50", "--gpus", "1")
    handle = cli("submit", *options, "--", "sh", "-c", script).stdout.strip()
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        visit = WebVisit(context.new_page(), serve())
        visit.open(f"/job?handle={handle}")
        visit.wait_until("document.getElementById('log').textContent.includes('step 59')")
        outlook = visit.page.request.get(f"{visit.site.address}job.json?handle={handle}").json()
        assert outlook["outlook"]["end"]["low"] is None, "its length is assumed"
        assert "gpuyard queue explain" in (
            visit.page.locator("#how code").first.text_content() or ""
        )
        visit.wait_until("document.getElementById('job').innerText.includes('Cancel job')")
        (tmp_path / "end").touch()
        visit.wait_until("document.getElementById('job').innerText.includes('Retry')")
        visit.wait_until("document.querySelector('.verdict').innerText.includes('succeeded')")
        visit.wait_until("document.querySelector('#chart-speed').dataset.drawn === 'true'")
        visit.screenshot("job-ended")
        assert visit.messages == []


def test_a_phone_shows_the_answer_first(browser: Browser, serve: Serve, share: Path) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        visit = WebVisit(context.new_page(), serve())
        for path in ("/scale", VIEWS["buy"], "/buy/cost", "/buy/hybrid"):
            visit.open(path)
            headline = visit.page.locator("#result > .sentence").first
            box = headline.bounding_box()
            assert box is not None and box["y"] + box["height"] < 500, path
        visit.open("/scale")
        visit.page.locator("#in-accumulate").scroll_into_view_if_needed()
        box = visit.page.locator("#result > .sentence").first.bounding_box()
        assert box is not None and box["y"] >= 0, "it stays in sight while sliders move"
        visit.screenshot("scale-phone")
        visit.open("/machine?machine=dgx-a100")
        width = visit.page.locator(".drawing svg").first.bounding_box()
        assert width is not None and width["width"] > 600, "a drawing scrolls at a readable size"
        visit.open("/")
        for wanted in (".gpus td.name", ".gpus .state.idle", "[id^=release-]"):
            box = visit.page.locator(wanted).first.bounding_box()
            assert box is not None and box["x"] + box["width"] <= 390, wanted
        visit.screenshot("now-phone")
        assert [*visit.messages, *visit.find_barriers()] == []


def test_a_rack_of_the_drawing_opens_its_cords(visit: WebVisit) -> None:
    visit.open(VIEWS["room"])
    visit.page.locator("[data-rack='1'] text").first.click()
    visit.wait_until("document.getElementById('rack-1').open")
    assert visit.page.locator("#rack-1 table").last.is_visible()
    assert visit.messages == []


def test_a_command_line_can_be_copied(browser: Browser, serve: Serve, share: Path) -> None:
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        visit = WebVisit(context.new_page(), serve())
        visit.open("/buy/cost")
        visit.move("rent", 1)
        visit.wait_until("document.querySelector('#how code').textContent.includes('$20.5/h')")
        visit.page.locator("#how summary").click()
        visit.page.locator("#how .copy").click()
        visit.page.get_by_text("Copied").wait_for()
        copied = visit.page.evaluate("navigator.clipboard.readText()")
        assert copied == visit.page.locator("#how code").first.text_content()
        visit.screenshot("copied")
        assert [*visit.messages, *visit.find_barriers()] == []


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", text)]


def test_moved_sliders_show_the_numbers_of_the_command_line(visit: WebVisit, cli: Cli) -> None:
    visit.open("/scale")
    visit.move("machines", 1)
    visit.move("network", -2)
    visit.wait_until(
        "location.search.includes('machines=4') && location.search.includes('network=25')"
    )
    visit.wait_until("document.querySelector('#result').innerText.includes('32 GPUs')")
    told = json.loads(
        cli("predict", "resnet50", "--on", "4x8xa100-sxm4-80gb@1x25G", "--json").stdout
    )
    for row, expected in zip(
        visit.page.locator("#result table").first.locator("tbody tr").all(),
        told["predictions"],
        strict=True,
    ):
        cells = row.locator("th, td").all_inner_texts()
        assert int(cells[0]) == expected["gpus"]
        assert _numbers(cells[3])[0] == pytest.approx(expected["samples_per_second"], rel=1e-3)
        assert cells[-1] == expected["choke"]
    visit.page.reload()
    visit.wait_until("document.querySelector('#result').innerText.includes('32 GPUs')")
    assert visit.page.locator("output[for=in-machines]").inner_text() == "4", "the address keeps it"
    assert visit.messages == []


def test_back_shows_whole_pages_and_sliders_add_no_entries(visit: WebVisit) -> None:
    visit.open("/")
    visit.open(VIEWS["room"])
    entries = visit.page.evaluate("history.length")
    visit.move("nodes", 1)
    visit.wait_until("location.search.includes('nodes=3')")
    assert visit.page.evaluate("history.length") == entries
    visit.page.locator(".racks [data-opens]").first.click()
    visit.wait_until("location.hash === '#rack-1'")
    visit.page.go_back()
    visit.wait_until("location.hash === ''")
    visit.wait_until("document.querySelector('nav.views') !== null")
    assert visit.page.locator("output[for=in-nodes]").inner_text() == "3"
    visit.page.go_back()
    visit.wait_until("location.pathname === '/'")
    assert visit.messages == []


def test_fields_that_another_field_replaces_are_off(visit: WebVisit) -> None:
    def count_enabled(*names: str) -> int:
        enabled = "document.querySelectorAll('#controls [name=%s]:enabled').length"
        return sum(visit.page.evaluate(enabled % name) for name in names)

    network, cluster = ("network", "ports", "protocol"), ("gpu", "machines", "per_machine")
    visit.open("/scale?machines=1")
    assert (count_enabled(*network), count_enabled(*cluster)) == (0, 3)
    visit.move("machines", 1)
    visit.wait_until("location.search.includes('machines=2')")
    assert count_enabled(*network) == 3
    visit.page.locator("[name=cluster]").fill("4xdgx-h100")
    visit.wait_until("document.querySelector('#how code').textContent.includes('4xdgx-h100')")
    assert count_enabled(*network, *cluster) == 0
    assert visit.page.get_by_text("short form below replaces these").is_visible()
    visit.screenshot("scale-replaced")
    visit.open("/machine")
    assert count_enabled("gpu", "gpus") == 0
    visit.page.locator("[name=preset]").select_option("dual-root")
    visit.wait_until("location.search.includes('preset=dual-root')")
    assert (count_enabled("gpu", "gpus"), count_enabled("machine")) == (2, 0)
    visit.screenshot("machine-replaced")
    assert visit.messages == []


def test_a_large_model_has_its_own_batches(visit: WebVisit) -> None:
    enabled = "[...document.querySelectorAll('#controls [name=%s]')].every((field) => !field.matches(':disabled'))"
    visit.open("/scale?batch=64&compress=fp16")
    assert visit.page.evaluate(enabled % "batch")
    assert not visit.page.evaluate(enabled % "micro_batch")
    visit.page.locator("[name=workload]").select_option("llama-3-8b")
    visit.wait_until("document.querySelector('#how code')?.textContent.includes('llama-3-8b')")
    assert not visit.page.evaluate(enabled % "batch"), "predict refuses it for a large model"
    assert not visit.page.evaluate(enabled % "compress")
    visit.page.locator("#large summary").click()
    visit.page.locator("[name=micro_batch]").fill("2")
    visit.wait_until("document.querySelector('#how code')?.textContent.includes('--micro-batch 2')")
    assert visit.page.get_by_text("Memory of the fullest").is_visible()
    visit.screenshot("scale-large")
    assert [*visit.messages, *visit.find_barriers()] == []


def test_the_price_slider_moves_the_break_even(visit: WebVisit, cli: Cli) -> None:
    visit.open("/buy/cost")
    visit.move("rent", 10)
    visit.wait_until("location.search.includes('rent=25')")
    line = visit.page.locator("#how code").first
    visit.wait_until("document.querySelector('#how code').textContent.includes('$25/h')")
    words = shlex.split(line.text_content() or "")[1:]
    told = " ".join(cli(*words).stdout.split())
    verdict = re.search(r"(?:Owning|Renting) saves [^;]*", told)
    assert verdict is not None, told
    visit.wait_until(
        f"document.querySelector('#result').innerText.includes({json.dumps(verdict[0])})"
    )


@pytest.mark.parametrize(
    ("path", "slider", "changed"),
    [
        (VIEWS["buy"], "budget", "budget=40000"),
        ("/buy/hybrid", "gpus", "gpus=32"),
        (VIEWS["room"], "nodes", "nodes=3"),
    ],
)
def test_a_moved_slider_answers_as_the_command_it_shows(
    visit: WebVisit, cli: Cli, path: str, slider: str, changed: str
) -> None:
    visit.open(path)
    before = visit.page.locator("#how code").first.text_content()
    visit.move(slider, 1)
    visit.wait_until(f"location.search.includes({changed!r})")
    visit.wait_until(f"document.querySelector('#how code').textContent !== {json.dumps(before)}")
    words = shlex.split(visit.page.locator("#how code").first.text_content() or "")[1:]
    answer = " ".join(cli(*words).stdout.split())
    sentences = visit.page.locator("#result > p, #result > ul > li").all_inner_texts()
    assert sentences[0] in answer
    assert visit.messages == []


def test_a_point_of_the_front_opens_its_reasons(visit: WebVisit) -> None:
    visit.open(VIEWS["buy"])
    chart = "echarts.getInstanceByDom(document.getElementById('chart-plan'))"
    x, y = visit.page.evaluate(
        f"{chart}.convertToPixel({{seriesIndex: 0}}, {chart}.getOption().series[0].data[1].value)"
    )
    visit.page.locator("#chart-plan").scroll_into_view_if_needed()
    box = visit.page.locator("#chart-plan").bounding_box()
    assert box is not None
    opened, deadline = "document.getElementById('choice-1').open", time.monotonic() + 60
    while not visit.page.evaluate(
        opened
    ):  # a point cannot be hit while it still moves to its place
        assert time.monotonic() < deadline
        visit.page.mouse.click(box["x"] + x, box["y"] + y)
        visit.page.wait_for_timeout(200)
    assert "samples/s" in visit.page.locator("#choice-1").inner_text()


def test_leasing_from_the_page_by_keyboard(
    browser: Browser, serve: Serve, empty_share: Path, cli: Cli
) -> None:
    with browser.new_context(viewport={"width": 390, "height": 844}) as context:
        visit = WebVisit(context.new_page(), serve())
        visit.open("/")
        visit.page.locator("#form-lease summary").press("Enter")
        visit.page.locator("#form-lease input[name=count]").fill("2")
        visit.page.locator("#form-lease button").press("Enter")
        visit.page.wait_for_url("**/act/lease?*")
        assert "gpuyard lease 2 --for 2h -- sleep infinity" in visit.page.inner_text("main")
        visit.page.locator("button.main").press("Enter")
        visit.page.get_by_text("Lease: done").wait_for()
        visit.page.get_by_text("Continue").press("Enter")
        visit.wait_until("document.querySelectorAll('.gpus tr.leased').length === 2")
        held = json.loads(cli("who", "--json").stdout)["gpus"]
        leases = {lease["id"] for gpu in held for lease in gpu["leases"]}
        for lease in leases:
            cli("release", lease)
        assert visit.messages == []


@pytest.mark.timeout(600)
def test_a_job_and_reports_are_readable_by_everyone(
    browser: Browser, serve: Serve, empty_share: Path, cli: Cli, tmp_path: Path,
    make_measurement: MakeMeasurement,
) -> None:  # fmt: skip
    (tmp_path / "train.py").write_text(TRAINING)
    command = (sys.executable, str(tmp_path / "train.py"))
    handle = cli("submit", "--name", LONG, "--", *command).stdout.strip()
    ResultsStore(results_file()).add(make_measurement(workload=LONG))
    keep_report(study_answer(full_study()))
    (report,) = list_reports()
    cli("wait", handle)
    site = serve()
    pages = {
        "job": f"/job?handle={handle}",
        "results-filled": "/results",
        "result": f"/result?id={make_measurement().id}",
        "report": f"/report?id={report.id}",
    }
    for screen in ("light-1440", "dark-390"):
        scheme, width = SCREENS[screen]
        with browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
        ) as context:
            for name, path in pages.items():
                visit = WebVisit(context.new_page(), site)
                visit.open(path)
                if name == "job":
                    visit.wait_until(
                        "document.getElementById('log').textContent.includes('step 59')"
                    )
                    visit.page.locator("#log-search").fill("STEP 7")
                    assert visit.page.locator("#log").inner_text().strip() == "step 7 red"
                visit.screenshot(f"{name}-{screen}")
                assert visit.page.evaluate("document.documentElement.scrollWidth") <= width, name
                assert [*visit.messages, *visit.requests, *visit.find_barriers()] == [], name
