"""Tests of cost charts and pages."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from gpuyard.economics.demand import create_demand, demand_from_load
from gpuyard.economics.growth import Growth, NextMachine, plan_growth
from gpuyard.economics.hybrid import HybridPrices, best_hybrid
from gpuyard.economics.ownership import OwnedHardware
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months, saving_usd
from gpuyard.economics.sensitivity import monte_carlo, ranges_around, tornado
from gpuyard.report.answer import Answer, Chart, Charts, Sentence, Table
from gpuyard.report.answers.cost.growth import create_growth_chart
from gpuyard.report.answers.cost.hybrid import create_hybrid_chart
from gpuyard.report.answers.cost.rent_or_own import create_rent_or_own_charts
from gpuyard.report.figures.cost_curves import build_cash_curve_chart, build_hours_break_even_chart
from gpuyard.report.figures.sensitivity import build_tornado_chart, format_input_value
from gpuyard.report.html import write_page

CASE = RentOrOwn(
    OwnedHardware(8000, watts=1200, usd_per_kwh=0.13, value_kept_per_year=0.5),
    rent_usd_per_hour=1.5,
    hours_per_year=4000,
)


def charts() -> list[Chart]:
    ranges = ranges_around(CASE, 0.2)
    demand = demand_from_load("working-hours", 10)
    growth = Growth(3, 4, 400, months=36)
    machine = NextMachine(4, 12_000, 100, 1.0)
    return [
        *create_rent_or_own_charts(CASE, tornado(CASE, ranges), monte_carlo(CASE, ranges, 1000)),
        create_hybrid_chart(demand, best_hybrid(demand, HybridPrices(0.4, 1.0))),
        create_growth_chart(plan_growth(growth, machine)),
    ]


def test_every_option_is_plain_json_with_a_description() -> None:
    built = charts()
    assert len(built) == 6
    for chart in built:
        for option in chart.options.values():
            assert json.loads(json.dumps(option, allow_nan=False)) == option
            assert option["aria"]["label"]["description"]
            assert {entry["name"] for entry in option["legend"]["data"]} == {
                series["name"] for series in option["series"]
            }


def test_a_bar_spans_the_stated_saving_to_the_saving_at_the_end_of_the_range() -> None:
    bars = tornado(CASE, ranges_around(CASE, 0.2))
    stated = float(saving_usd(CASE))
    option = build_tornado_chart(bars, stated, 36)
    low, high = option["series"]
    assert low["data"][0]["value"] + stated == pytest.approx(bars[0].saving_at_low_usd)
    assert high["data"][0]["value"] + stated == pytest.approx(bars[0].saving_at_high_usd)
    assert option["yAxis"]["data"][0].startswith("rent per hour\n$1.20 to $1.80")


def test_the_cash_curve_adds_payments_up() -> None:
    option = build_cash_curve_chart({"own": [100, 10, -30], "rent": [0, 50, 50]}, "")
    assert option["series"][0]["data"] == [[0, 100], [1, 110], [2, 80]]
    assert option["series"][1]["data"] == [[0, 0], [1, 50], [2, 100]]
    assert option["yAxis"]["min"] == 0
    assert "min" not in build_cash_curve_chart({"own": [0, -30]}, "")["yAxis"]


def test_the_break_even_curve_contains_the_stated_use() -> None:
    line = build_hours_break_even_chart(CASE)["series"][1]["data"]
    points = [(h, m) for h, m in line if m is not None]
    months = np.interp(4000, [h for h, _ in points], [m for _, m in points])
    assert months == pytest.approx(float(break_even_months(CASE)), rel=0.02)


def test_a_million_hours_are_drawn_with_few_points() -> None:
    gpus = np.random.default_rng(1).poisson(20, 1_000_000).astype(np.float64)
    demand = create_demand(gpus, 1.0, "drawn")
    chart = create_hybrid_chart(demand, best_hybrid(demand, HybridPrices(0.3, 1.0)))
    demand_points = chart.options[chart.shown]["series"][0]["data"]
    assert len(demand_points) <= 300
    assert demand_points[0][1] == gpus.max()
    assert demand_points[-1][1] == gpus.min()


def test_a_page_loads_nothing_and_escapes_text(tmp_path: Path) -> None:
    answer = Answer(
        [
            Sentence("A & B"),
            Charts(charts()[:1]),
            Table("All", ["", "rent"], [["<b>row</b>", "$1"]]),
        ],
        title="<script>alert(1)</script>",
        verb="cost",
        meta="prices of 2026-08-22",
    )
    path = tmp_path / "cost.html"
    write_page(answer, path)
    text = path.read_text(encoding="utf-8")
    assert "<script>alert(1)" not in text
    assert "&lt;b&gt;row" in text
    assert "2026-08-22" in text
    head = text[: text.index("<script")]
    assert "default-src &#39;none&#39;" in head or "default-src 'none'" in head
    assert not re.search(r'(?:src|href)="(?!data:)', head)


@pytest.mark.parametrize(
    ("usd", "expected"), [(0.8, "$0.80"), (0.1278, "$0.128"), (1.2, "$1.20"), (6400, "$6,400")]
)
def test_prices_below_a_dollar_show_cents(usd: float, expected: str) -> None:
    assert format_input_value("rent_usd_per_hour", usd) == expected
