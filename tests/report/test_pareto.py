"""The chart and page of a plan: its numbers, its words, and nothing from outside."""

import json
import math

import pytest

from gpuyard.planner import PlanResult
from gpuyard.planner.search import plan_result
from gpuyard.report.answers.plan import plan_answer
from gpuyard.report.figures.pareto import pareto_option
from gpuyard.report.html import render_page
from gpuyard.study import study_result_from_json
from tests.planner.builder import candidates, offer, plan, workload
from tests.report.builder import full_study, render_study


@pytest.fixture(scope="module")
def found() -> PlanResult:
    asked = plan(
        offer("one <GPU>", rent="$3/h"),
        offer("four", rent="$14/h", gpus=4),
        offer("a server", buy="$90,000", gpus=8, topology="nvlink-hybrid-cube-mesh"),
        time_per_run="8 h",
        budget="$90,000",
        search={"nodes": [1]},
    )
    return plan_result(candidates(asked), workload())


def test_the_option_is_plain_json_and_has_the_front(found: PlanResult) -> None:
    option = pareto_option(found)
    assert json.loads(json.dumps(option, allow_nan=False)) == option
    front = option["series"][0]["data"]
    assert [point["value"][1] for point in front] == [c.usd_per_run for c in found.front]
    assert option["series"][0]["markLine"]["data"] == [{"xAxis": 8.0}]


def test_the_choice_is_marked(found: PlanResult) -> None:
    assert found.winner is not None
    (mark,) = pareto_option(found)["series"][-1]["markPoint"]["data"]
    assert mark["coord"] == [found.winner.run_seconds / 3600, found.winner.usd_per_run]


def test_the_choice_and_the_corners_have_names(found: PlanResult) -> None:
    option = pareto_option(found)
    assert found.winner is not None
    label = option["series"][-1]["markPoint"]["label"]["formatter"]
    assert label.startswith(found.winner.machines)
    front = option["series"][0]["data"]
    for at, word in ((0, "fastest"), (-1, "cheapest")):
        if found.front[at].what != found.winner.what:
            assert front[at]["label"]["formatter"] == f"{word}: {found.front[at].machines}"
    assert not any("label" in point for point in front[1:-1])


def test_the_name_over_the_most_expensive_point_stays_under_the_name_of_the_axis() -> None:
    """The fastest of the front is often the most expensive: its label is drawn above it."""
    option = pareto_option(
        plan_result(
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
    axis, dearest = option["yAxis"], option["series"][0]["data"][0]["value"][1]
    height = math.log(axis["max"] / axis["min"])
    assert math.log(axis["max"] / dearest) / height > 0.1


def test_what_is_free_can_be_drawn() -> None:
    asked = plan(offer("free", rent="$0/h"), search={"ways": ["on-demand"]})
    option = pareto_option(plan_result(candidates(asked), workload()))
    assert option["yAxis"]["type"] == "value"


def test_the_page_says_it_in_words_and_escapes_names(found: PlanResult) -> None:
    page = render_page(plan_answer(found))
    assert "one &lt;GPU&gt;" in page
    assert "one <GPU>" not in page
    assert found.verdict.split("(")[0] in page


def test_a_plan_without_an_answer_has_a_page() -> None:
    asked = plan(offer("a", rent="$3/h"), policy={"data_stays": True})
    page = render_page(plan_answer(plan_result(candidates(asked), workload())))
    assert "ruled out" in page


def test_a_study_with_a_plan_shows_its_chart_and_keeps_it(found: PlanResult) -> None:
    from dataclasses import replace

    result = replace(full_study(), plan=found)
    page = render_study(result)
    assert 'id="chart-plan"' in page and "Why the others lost" in page
    assert 'id="chart-plan"' not in render_study(full_study())
    again = study_result_from_json(json.dumps(result.as_json()))
    assert again.plan == found
