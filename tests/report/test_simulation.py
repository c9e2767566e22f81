"""Tests of the charts and pictures of a simulation."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from gpuyard.draw.gantt import GanttBar, GanttRow, choose_ticks, draw_gantt_svg
from gpuyard.draw.policies import CompletionLine, draw_completion_svg
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.jobs.simulate.trace import Trace, TraceJob
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.jobs.simulate.work import SteadyWork
from gpuyard.policies import Pool, get_policy
from gpuyard.policies.curve import Curve
from gpuyard.report.figures.simulation import (
    build_completion_chart,
    build_use_chart,
    compute_mean_use,
)

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def outcomes() -> list[SimulationOutcome]:
    trace = read_trace(Path(__file__).parents[2] / "examples/traces/team.csv")
    return [simulate(trace, get_policy(name), Pool.uniform(2, 4)) for name in ("fifo", "min-time")]


def test_the_completion_curve_spans_the_first_job_to_the_last(
    outcomes: list[SimulationOutcome],
) -> None:
    option = build_completion_chart(outcomes)
    assert json.loads(json.dumps(option, allow_nan=False)) == option
    for series, outcome in zip(option["series"], outcomes, strict=True):
        assert series["name"] == outcome.policy
        hours = outcome.completion_seconds / 3600
        assert series["data"][0] == [pytest.approx(hours.min(), abs=1e-4), 0]
        assert series["data"][-1] == [pytest.approx(hours.max(), abs=1e-4), 100]


def test_gpus_in_use_add_up_to_the_gpu_hours(outcomes: list[SimulationOutcome]) -> None:
    for outcome in outcomes:
        edges = np.linspace(0, outcome.ended_s.max(), 77)
        used = compute_mean_use(outcome, edges)
        assert used.max() <= 8 + 1e-6
        assert used.min() >= -1e-6
        assert (used * np.diff(edges)).sum() / 3600 == pytest.approx(outcome.gpu_hours)
    option = build_use_chart(outcomes)
    assert json.loads(json.dumps(option, allow_nan=False)) == option
    assert option["yAxis"]["max"] == 8


def _bars(svg: str) -> list[ET.Element]:
    drawn = ET.fromstring(svg)  # noqa: S314 - our own
    return [r for r in drawn.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]


def test_a_gantt_chart_has_a_bar_for_each_run_and_shows_names_literally() -> None:
    rows = [
        GanttRow("<b>", "ann", 0.0, (GanttBar(0, 50, 4), GanttBar(60, 100, 8))),
        GanttRow("c", "bob", 10.0, (GanttBar(50, 60, 8),)),
    ]
    drawn = ET.fromstring(draw_gantt_svg(rows, "Jobs"))  # noqa: S314 - our own
    bars = _bars(draw_gantt_svg(rows, "Jobs"))
    assert [bar.findtext(f"{SVG}title") for bar in bars] == [
        "<b>: 4 GPUs",
        "<b>: 8 GPUs",
        "c: 8 GPUs",
    ]
    assert float(bars[1].attrib["width"]) == pytest.approx(
        0.8 * float(bars[0].attrib["width"]), abs=0.2
    )
    assert float(bars[0].attrib["fill-opacity"]) < float(bars[1].attrib["fill-opacity"])
    assert {"ann", "bob", "<b>", "c"} <= {text.text for text in drawn.iter(f"{SVG}text")}


def test_waiting_lines_are_not_drawn_under_bars() -> None:
    bars = (GanttBar(20, 50, 4), GanttBar(60, 100, 8))
    rows = [GanttRow("a", "", 0.0, bars), GanttRow("never", "", 10.0, ())]
    drawn = ET.fromstring(draw_gantt_svg(rows, "Jobs"))  # noqa: S314 - our own
    lines = [line.attrib for line in drawn.iter(f"{SVG}line") if "class" not in line.attrib]
    ends = [(float(line["x1"]), float(line["x2"])) for line in lines]
    first, second = [float(bar.attrib["x"]) for bar in _bars(draw_gantt_svg(rows, "Jobs"))]
    assert [end for _, end in ends[:2]] == [first, second]
    assert len(ends) == 3 and ends[2][1] > second


def test_charts_can_end_at_the_same_time() -> None:
    rows = [GanttRow("a", "", 0.0, (GanttBar(0, 50, 4),))]
    (alone,) = _bars(draw_gantt_svg(rows, "Jobs"))
    (longer,) = _bars(draw_gantt_svg(rows, "Jobs", 100.0))
    assert float(longer.attrib["width"]) == pytest.approx(float(alone.attrib["width"]) / 2)


def test_a_completion_line_ends_at_100_percent_and_its_label_shows_the_mean() -> None:
    lines = [CompletionLine("ours", (60.0, 120.0)), CompletionLine("<theirs>", (600.0, 6000.0))]
    drawn = ET.fromstring(draw_completion_svg(lines, "Jobs", "two of them"))  # noqa: S314 - our own
    ours, theirs = (line.attrib["points"].split() for line in drawn.iter(f"{SVG}polyline"))
    assert len(ours) == len(theirs) == 4
    assert ours[-1].split(",")[1] == theirs[-1].split(",")[1], "both reach 100%"
    assert float(ours[-1].split(",")[0]) < float(theirs[0].split(",")[0])
    assert {"ours: 1.5 min", "<theirs>: 55 min"} <= {text.text for text in drawn.iter(f"{SVG}text")}


def test_a_gantt_chart_shows_which_deadlines_are_missed() -> None:
    bars = (GanttBar(0, 50, 1),)
    rows = [
        GanttRow(name, "", 0, bars, deadline)
        for name, deadline in (("met", 50.0), ("missed", 40.0), ("none", None))
    ]
    drawn = ET.fromstring(draw_gantt_svg(rows, "Jobs"))  # noqa: S314 - our own
    lines = [line for line in drawn.iter() if line.attrib.get("class") == "deadline"]
    assert ["missed" in "".join(line.itertext()).split(": ")[1] for line in lines] == [False, True]
    assert lines[0].attrib["stroke"] != lines[1].attrib["stroke"]
    assert float(lines[0].attrib["x1"]) > float(lines[1].attrib["x1"])


def test_a_policy_has_the_same_color_whichever_others_it_is_compared_with() -> None:
    trace = Trace("one", (TraceJob("a", 0.0, SteadyWork(10.0, Curve.rigid(1))),))

    def styles(*names: str) -> dict[str, tuple[str, str]]:
        outcomes = [simulate(trace, get_policy(name), Pool((1,))) for name in names]
        series = build_completion_chart(outcomes)["series"]
        return {
            line["name"]: (line["lineStyle"]["color"], line["lineStyle"]["type"]) for line in series
        }

    few, many = styles("min-time", "fifo"), styles("fifo", "tiresias", "max-jobs", "min-time")
    assert few == {name: many[name] for name in few}
    assert len(set(many.values())) == len(many)


def test_a_gantt_chart_of_many_jobs_leaves_out_their_names() -> None:
    rows = [GanttRow(f"job-{n}", "", n, (GanttBar(n, n + 5, 1),)) for n in range(100)]
    drawn = ET.fromstring(draw_gantt_svg(rows, "Jobs"))  # noqa: S314 - our own
    assert "job-1" not in {text.text for text in drawn.iter(f"{SVG}text")}


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (22.7, "0, 3 h, 6 h, 9 h, 12 h, 15 h, 18 h, 21 h"),
        (4.2, "0, 1 h, 2 h, 3 h, 4 h"),
        (0.5, "0, 5 min, 10 min, 15 min, 20 min, 25 min, 30 min"),
        (24 * 30, "0, 5 d, 10 d, 15 d, 20 d, 25 d, 30 d"),
        (1e-9, "0"),
        (1e15, None),
    ],
)
def test_gantt_ticks_are_round(hours: float, expected: str | None) -> None:
    ticks = choose_ticks(hours * 3600)
    assert len(ticks) <= 9
    if expected is not None:
        assert ", ".join(text for _, text in ticks) == expected


def test_a_gantt_chart_of_200_jobs_fits_a_screen() -> None:
    rows = [GanttRow(str(n), "", 0.0, (GanttBar(0.0, 1.0 + n, 1),)) for n in range(200)]
    drawn = ET.fromstring(draw_gantt_svg(rows, "Jobs"))  # noqa: S314 - our own
    assert float(drawn.attrib["height"]) < 700
