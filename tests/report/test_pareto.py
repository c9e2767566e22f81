"""Tests of the chart and page of a plan."""

import json
import math

import pytest

from gpuyard.planner import PlanResult
from gpuyard.planner.recommendation import build_result
from gpuyard.report.answers.plan import plan_answer
from gpuyard.report.figures.pareto import build_pareto_chart
from gpuyard.report.html import render_page
from gpuyard.study import parse_study_result
from tests.planner.builder import candidates, offer, plan, workload
from tests.report.builder import full_study, render_study


@pytest.fixture(scope="module")
def result() -> PlanResult:
    spec = plan(
        offer("one <GPU>", rent="$3/h"),
        offer("four", rent="$14/h", gpus=4),
        offer("a server", buy="$90,000", gpus=8, topology="nvlink-hybrid-cube-mesh"),
        time_per_run="8 h",
        budget="$90,000",
        search={"nodes": [1]},
    )
    return build_result(candidates(spec), workload())


def test_the_option_is_plain_json_and_has_the_front(result: PlanResult) -> None:
    option = build_pareto_chart(result)
    assert json.loads(json.dumps(option, allow_nan=False)) == option
    front = option["series"][0]["data"]
    assert [point["value"][1] for point in front] == [c.usd_per_run for c in result.front]
    assert option["series"][0]["markLine"]["data"] == [{"xAxis": 8.0}]


def test_the_choice_is_marked(result: PlanResult) -> None:
    assert result.winner is not None
    (mark,) = build_pareto_chart(result)["series"][-1]["markPoint"]["data"]
    assert mark["coord"] == [result.winner.run_seconds / 3600, result.winner.usd_per_run]


def test_the_choice_and_the_ends_of_the_front_are_labeled(result: PlanResult) -> None:
    option = build_pareto_chart(result)
    assert result.winner is not None
    label = option["series"][-1]["markPoint"]["label"]["formatter"]
    assert label.startswith(result.winner.machines)
    front = option["series"][0]["data"]
    for index, name in ((0, "fastest"), (-1, "cheapest")):
        if result.front[index].summary != result.winner.summary:
            assert front[index]["label"]["formatter"] == f"{name}: {result.front[index].machines}"
    assert not any("label" in point for point in front[1:-1])


def test_the_label_of_the_most_expensive_point_does_not_cover_the_axis_name() -> None:
    """The fastest of the front is often the most expensive: its label is drawn above it."""
    option = build_pareto_chart(
        build_result(
            candidates(
                plan(
                    offer("slow", rent="$0.01/h"),
                    offer("fast", rent="$997/h", gpus=8, topology="nvlink-hybrid-cube-mesh"),
                    search={"nodes": [1], "ways": ["on-demand"]},
                )
            ),
            workload(),
        )
    )
    axis, most_expensive = option["yAxis"], option["series"][0]["data"][0]["value"][1]
    height = math.log(axis["max"] / axis["min"])
    assert math.log(axis["max"] / most_expensive) / height > 0.1


def test_a_free_option_can_be_drawn() -> None:
    spec = plan(offer("free", rent="$0/h"), search={"ways": ["on-demand"]})
    option = build_pareto_chart(build_result(candidates(spec), workload()))
    assert option["yAxis"]["type"] == "value"


def test_the_page_has_the_verdict_and_escapes_names(result: PlanResult) -> None:
    page = render_page(plan_answer(result))
    assert "one &lt;GPU&gt;" in page
    assert "one <GPU>" not in page
    assert result.verdict.split("(")[0] in page


def test_a_plan_without_an_answer_has_a_page() -> None:
    spec = plan(offer("a", rent="$3/h"), policy={"data_stays": True})
    page = render_page(plan_answer(build_result(candidates(spec), workload())))
    assert "ruled out" in page


def test_a_study_with_a_plan_shows_its_chart_and_keeps_it(result: PlanResult) -> None:
    from dataclasses import replace

    with_plan = replace(full_study(), plan=result)
    page = render_study(with_plan)
    assert 'id="chart-plan"' in page and "Why the others lost" in page
    assert 'id="chart-plan"' not in render_study(full_study())
    again = parse_study_result(json.dumps(with_plan.as_json()))
    assert again.plan == result
