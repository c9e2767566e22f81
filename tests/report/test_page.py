"""Tests of the study page: one file that loads nothing, escapes all names, and handles missing data."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpuyard.report.answers.study.report import create_slugs, write_report
from gpuyard.study.result import StudyResult, parse_study_result
from tests.report.builder import APOLLO, BATCH, cost, full_study, render_study, study, workload

EVIL = "</script><img src=x onerror=alert(1)> & \"quotes\" 'too' {{ 7 * 7 }} <!-- 網路 é"


class Elements(HTMLParser):
    """Collects all elements with their attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] not in ("script", "style"):
            self.text += data

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.elements if "id" in attributes]


def charts_json(page: str) -> list[dict[str, Any]]:
    match = re.search(
        r'<script type="application/json" id="charts-json">(.*?)</script>', page, re.DOTALL
    )
    assert match is not None
    assert "<" not in match[1]
    charts: list[dict[str, Any]] = json.loads(match[1])
    return charts


@pytest.fixture(scope="module")
def page(result: StudyResult) -> str:
    return render_study(result)


def test_the_verdicts_come_first(page: str) -> None:
    text = Elements(page.partition("</nav>")[2]).text
    order = (
        "NETWORK CHOKE: don't add GPUs",
        "GPU CHOKE: add GPUs",
        "Measured on this machine in fp32: 9 runs",
        "How each number was obtained",
    )
    assert sorted(order, key=text.index) == list(order)
    assert "Of a step of 92 ms, 60 ms is waiting for 46 MB of gradients." in text
    assert "per-GPU batch of 200 instead of 50" in text
    assert "+140%" in text


def test_every_measured_and_predicted_number_is_in_a_table(page: str, result: StudyResult) -> None:
    text = Elements(page).text
    for tested in result.workloads:
        for point in tested.measured:
            assert point.measurement_id in text
        for curve in tested.curves:
            for prediction in curve.predictions:
                if prediction.samples_per_second >= 100:
                    assert f"{prediction.samples_per_second:,.0f}" in text


def test_the_page_names_the_sources_of_constants(page: str) -> None:
    text = Elements(page).text
    for text_part in (
        "overlap",
        "elsewhere",
        "two cores",
        "published",
        "torch DDP: bucket_cap_mb=25",
    ):
        assert text_part in text


def test_the_page_loads_nothing(page: str) -> None:
    for tag, attributes in Elements(page).elements:
        assert "src" not in attributes, tag
        assert tag not in ("iframe", "object", "embed", "base"), tag
        if tag == "link":
            assert attributes["href"] == "data:,"
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_every_chart_has_a_container(page: str) -> None:
    charts = charts_json(page)
    assert [chart["id"] for chart in charts] == [
        "chart-throughput-spoken-digits-linear",
        "chart-efficiency-spoken-digits-linear",
        "chart-step-split-spoken-digits-linear",
        "chart-epoch-time-spoken-digits-linear",
        "chart-throughput-spoken-digits-conv",
        "chart-efficiency-spoken-digits-conv",
        "chart-step-split-spoken-digits-conv",
        "chart-epoch-time-spoken-digits-conv",
        "chart-break-even",
        "chart-cash",
        "chart-tornado",
    ]
    ids = Elements(page).ids()
    assert len(ids) == len(set(ids))
    for chart in charts:
        assert chart["id"] in ids
        assert chart["shown"] in chart["options"]
        assert chart["options"].keys() == chart["heights"].keys()
    assert charts[0]["shown"] == str(BATCH)


def test_names_with_markup_stay_text() -> None:
    tested = workload(EVIL)
    verdict = replace(tested.verdict, headline=EVIL, sentence=EVIL)
    curves = tuple(replace(curve, platform=f"{EVIL} {i}") for i, curve in enumerate(tested.curves))
    evil = study(replace(tested, verdict=verdict, curves=curves), name=EVIL, price=cost())
    page = render_study(replace(evil, host=EVIL, notes=(EVIL,)))
    elements = Elements(page)
    assert not [tag for tag, _ in elements.elements if tag == "img"]
    assert page.count("</script>") == 3
    assert EVIL in elements.text
    assert EVIL in charts_json(page)[0]["options"][str(BATCH)]["title"]["subtext"]


def test_ids_are_unique_whatever_the_names() -> None:
    names = ["ResNet-50", "resnet 50", "網路", "網", "x" * 200, "x" * 201, "a b", "a-b", "a-b-8"]
    slugs = create_slugs(names)
    assert len(slugs) == len(set(slugs)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", slug) for slug in slugs)
    page = render_study(study(*(workload(name) for name in names)))
    ids = Elements(page).ids()
    assert len(ids) == len(set(ids))


def test_a_study_with_predictions_only() -> None:
    tested = workload("planned")
    here, *elsewhere = tested.curves
    assert here.here
    epochs = tuple(e for e in tested.epoch_times if e.platform != here.platform)
    planned = replace(tested, measured=(), curves=tuple(elsewhere), epoch_times=epochs)
    page = render_study(study(planned))
    text = Elements(page).text
    assert "Measured on" not in text
    assert "Rent or buy" not in text
    assert APOLLO in text
    assert len(charts_json(page)) == 4


def test_a_study_of_this_machine_only() -> None:
    tested = workload("here")
    page = render_study(study(replace(tested, curves=tested.curves[:1])))
    assert charts_json(page)[0]["options"]["50"]["xAxis"]["name"] == "workers"


def test_a_study_without_any_points() -> None:
    tested = workload("nothing")
    empty = replace(tested, measured=(), curves=(), epoch_times=())
    for result in (study(empty), study()):
        page = render_study(result)
        assert "charts-json" not in page
        assert "How each number was obtained" in page


def test_a_study_of_single_gpus_only() -> None:
    tested = workload("single")
    curves = tuple(replace(c, predictions=c.predictions[:1]) for c in tested.curves)
    measured = tuple(p for p in tested.measured if p.workers == 1)
    epochs = tuple(e for e in tested.epoch_times if e.batch_per_gpu == BATCH)
    page = render_study(
        study(
            replace(tested, curves=curves, measured=measured, epoch_times=epochs), price=cost(0.0)
        )
    )
    options = charts_json(page)[0]["options"]["50"]
    assert options["xAxis"]["data"] == ["1"]


def test_no_chart_or_table_contains_nan() -> None:
    tested = workload("odd")
    nan = float("nan")
    points = tuple(replace(p, samples_per_second=nan, low=nan, high=nan) for p in tested.measured)
    epochs = tuple(replace(e, seconds=float("inf")) for e in tested.epoch_times)
    page = render_study(study(replace(tested, measured=points, epoch_times=epochs)))
    assert "NaN" not in json.dumps(charts_json(page))
    assert not re.search(r"\b(nan|inf)\b", Elements(page).text)


def test_writing_gives_the_page_and_the_document(tmp_path: Path) -> None:
    result = full_study()
    path = write_report(result, tmp_path / "study")
    assert path == tmp_path / "study" / "report.html"
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "study.json"]
    assert path.read_text(encoding="utf-8") == render_study(result)
    text = (tmp_path / "study" / "study.json").read_text(encoding="utf-8")
    assert parse_study_result(text) == result
