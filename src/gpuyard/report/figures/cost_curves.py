"""Builds cost charts: payments over time, demand and capacity, demand duration, and break-even times."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.economics.billing import HOURS_PER_YEAR, Amounts
from gpuyard.economics.demand import Demand
from gpuyard.economics.growth import GrowthPlan
from gpuyard.economics.hybrid import Hybrid
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_frame,
    build_hours_axis,
    build_months_axis,
    build_value_axis,
    build_x_axis,
    finite_or_none,
)
from gpuyard.report.figures.marks import build_line
from gpuyard.units import format_count, format_usd, format_years

if TYPE_CHECKING:  # the other charts do not need a study
    from gpuyard.study.result import CostResult


_DASHES = ("solid", "dashed", "dotted")
_POINTS = 300
_BREAK_EVEN_POINTS = 24  # the lines are straight, but tooltips appear only at points


def build_cash_curve_chart(
    cash_by_month: Mapping[str, Sequence[float]], subtitle: str
) -> ChartOptions:
    """Build the chart of cumulative payments; a step down at the end is the resale."""
    series = [
        build_line(
            name,
            COLORS[index % len(COLORS)],
            [[month, round(usd, 2)] for month, usd in enumerate(accumulate(cash))],
            _DASHES[index // len(COLORS) % len(_DASHES)],
        )
        for index, (name, cash) in enumerate(cash_by_month.items())
    ]
    months = max(len(cash) for cash in cash_by_month.values()) - 1
    option = build_frame(
        "Cumulative payments",
        subtitle,
        f"Cumulative payments over {months} months. "
        + " ".join(f"{name}: {format_usd(sum(cash))}." for name, cash in cash_by_month.items()),
        series,
    )
    option["xAxis"] = build_months_axis(months)
    axis = build_value_axis(
        "paid so far", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"}
    )
    lowest = min(min(accumulate(cash)) for cash in cash_by_month.values())
    if lowest < 0:  # the resale can bring in more than was paid
        axis.pop("min")
    option["yAxis"] = axis
    option["series"] = series
    return option


def build_growth_chart(plan: GrowthPlan) -> ChartOptions:
    """Build the chart of demand and owned capacity over time; the difference is rented."""
    lines = [
        ("demand", plan.demand_gpu_hours, COLORS[1], "solid"),
        ("capacity of owned machines", plan.owned_gpu_hours, COLORS[0], "dashed"),
    ]
    series = [
        build_line(
            name, color, [[month, round(value, 1)] for month, value in enumerate(values)], dash
        )
        | {"step": "end"}
        for name, values, color, dash in lines
    ]
    months = len(plan.people)
    option = build_frame(
        "When to buy the next machine",
        f"GPU-hours per month; {format_count(len(plan.purchases), 'machine')} in {months} months",
        " ".join(f"Machine {p.number} in month {p.month}." for p in plan.purchases)
        or "No machine pays off; everything is rented.",
        series,
    )
    option["xAxis"] = build_months_axis(max(months - 1, 1))
    option["yAxis"] = build_value_axis("GPU-hours per month")
    option["series"] = series
    return option


def build_duration_curve_chart(demand: Demand, hybrid: Hybrid) -> ChartOptions:
    """Build the load duration curve: owned GPUs serve the demand below their line, rented GPUs the rest."""
    ordered = np.sort(demand.gpus)[::-1]
    ranks = np.unique(np.linspace(0, ordered.size - 1, min(_POINTS, ordered.size)).astype(int))
    hours = (ranks + 0.5) / ordered.size * HOURS_PER_YEAR
    gpus = ordered[ranks]
    own = hybrid.best.own_gpus
    # drawn as steps, because a rank is as wide as its period
    lines = [
        ("demand", gpus, COLORS[1], "solid", 0.25),
        (f"owned: {own:g}", np.minimum(gpus, own), COLORS[2], "dashed", 0.45),
    ]
    series = []
    for name, values, color, dash, opacity in lines:
        data = [
            [round(float(h), 1), round(float(g), 3)] for h, g in zip(hours, values, strict=True)
        ]
        area = {"color": color, "opacity": opacity}
        series.append(
            build_line(name, color, data, dash, 2) | {"step": "middle", "areaStyle": area}
        )
    option = build_frame(
        "How long each level of demand lasts",
        f"{demand.source}: the hours of a year, the busiest first",
        f"The peak is {ordered[0]:g} GPUs, the mean {ordered.mean():.3g}. Owning {own:g} serves "
        f"{100 * hybrid.best.owned_share:.0f}% of all GPU-hours.",
        series,
    )
    option["xAxis"] = build_hours_axis("hours per year")
    option["yAxis"] = build_value_axis("GPUs")
    option["series"] = series
    return option


_RENT, _BUY = COLORS[1], COLORS[0]
_HOURS = 60
_PRICES = (
    (0.7, "30% cheaper", "dashed"),
    (1.0, "as stated", "solid"),
    (1.3, "30% more expensive", "dotted"),
)


def build_break_even_chart(cost: "CostResult") -> ChartOptions:
    """Build the chart of cumulative cost of renting and buying."""
    horizon = _choose_horizon(cost)
    years = [horizon * i / _BREAK_EVEN_POINTS for i in range(_BREAK_EVEN_POINTS + 1)]
    yearly_usd = cost.rent_usd_per_hour * cost.hours_per_year
    lines = [
        build_line("renting", _RENT, [[year, yearly_usd * year] for year in years]),
        build_line("buying", _BUY, [[year, cost.buy_usd] for year in years]),
    ]
    lines[1]["markPoint"] = _build_mark(
        cost.undiscounted_break_even_years,
        cost.undiscounted_break_even_hours,
        cost.buy_usd,
        _BUY,
        above=True,
    )
    discounted = ""
    if (
        cost.speed_lead > 0
    ):  # marked on the renting line, because the reduced price is not an actual payment
        lead = f"{100 * cost.speed_lead:.0f}%"
        lines[0]["markPoint"] = _build_mark(
            cost.break_even_years,
            cost.break_even_hours,
            cost.comparable_buy_usd,
            _RENT,
            above=False,
            more=f"price less {lead}",
        )
        discounted = (
            f", and the price less its {lead} speed lead after {cost.break_even_years:.2f} years"
        )
    option = build_frame(
        "Renting against buying",
        f"{format_usd(cost.rent_usd_per_hour)}/h or {format_usd(cost.buy_usd)} once, "
        f"{cost.hours_per_year:,.0f} hours of use per year",
        f"Cumulative cost over {format_years(horizon)}. Renting reaches the price of buying after "
        f"{cost.undiscounted_break_even_years:.2f} years{discounted}.",
        lines,
    )
    option["xAxis"] = build_x_axis(
        "years",
        min=0,
        max=horizon,
        axisPointer={"label": {"formatter": "{value} years", "precision": 2}},
    )
    option["yAxis"] = build_value_axis(
        "cumulative cost", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"}
    )
    option["series"] = lines
    return option


def _choose_horizon(cost: "CostResult") -> float:
    """Return 1.5 times the later break-even, in whole years."""
    years = [
        y
        for y in (cost.break_even_years, cost.undiscounted_break_even_years)
        if finite_or_none(y) is not None
    ]
    return float(max(1, math.ceil(1.5 * max(years, default=1.0))))


def _build_mark(
    years: float, hours: float, usd: float, color: str, *, above: bool, more: str = ""
) -> ChartOptions:
    if finite_or_none(years) is None:
        return {"data": []}
    return {
        "symbol": "circle",
        "symbolSize": 12,
        "itemStyle": {"color": color},
        "label": {
            "position": "top" if above else "bottom",
            "distance": 6,
            "offset": [-44 if above else 44, 0],  # next to the renting line, not on it
            "lineHeight": 16,
            "fontSize": 13,
            "fontWeight": 600,
            "formatter": "\n".join(filter(None, (f"{years:.1f} years", f"{hours:,.0f} h", more))),
        },
        "data": [{"coord": [years, usd], "name": f"breaks even after {years:.2f} years"}],
    }


def build_hours_break_even_rows(case: RentOrOwn) -> list[list[str]]:
    """Build table rows: hours per year, then the break-even months at each rent."""
    rows = []
    for hours in (500, 1000, 2000, 3000, 4000, 6000, 8000):
        months = [
            float(break_even_months(_vary(case, factor, float(hours)))) for factor, _, _ in _PRICES
        ]
        rows.append([f"{hours:,}", *(f"{m:,.1f}" if np.isfinite(m) else "never" for m in months)])
    return rows


def build_hours_break_even_chart(case: RentOrOwn) -> ChartOptions:
    """Build the chart of break-even months against hours of use, up to ten years."""
    hours = np.linspace(HOURS_PER_YEAR / _HOURS, HOURS_PER_YEAR, _HOURS)
    series = []
    for index, (factor, label, dash) in enumerate(_PRICES):
        months = np.broadcast_to(break_even_months(_vary(case, factor, hours)), hours.shape)
        data = [
            [round(float(h)), round(float(m), 2) if m <= 120 else None]
            for h, m in zip(hours, months, strict=True)
        ]
        series.append(build_line(f"rent {label}", COLORS[index], data, dash))
    stated = float(np.asarray(case.hours_per_year))
    months_at_stated_use = float(break_even_months(case))
    series[1]["markLine"] = {
        "symbol": "none",
        "silent": True,
        "lineStyle": {"color": NEUTRAL, "type": "solid"},
        "label": {"formatter": "stated use", "color": NEUTRAL},
        "data": [{"xAxis": stated}],
    }
    option = build_frame(
        "How much use makes owning pay off",
        "months until renting costs as much, against hours of use per year",
        f"At {stated:,.0f} hours per year: "
        + (f"{months_at_stated_use:.1f} months." if np.isfinite(months_at_stated_use) else "never.")
        + " With more use, owning pays off sooner.",
        series,
    )
    option["xAxis"] = build_hours_axis("hours of use per year")
    option["yAxis"] = build_value_axis("months", max=120)
    option["series"] = series
    return option


def _vary(case: RentOrOwn, price_factor: float, hours_per_year: Amounts) -> RentOrOwn:
    return replace(
        case,
        rent_usd_per_hour=np.asarray(case.rent_usd_per_hour) * price_factor,
        reserved_usd_per_year=np.asarray(case.reserved_usd_per_year) * price_factor,
        hours_per_year=hours_per_year,
    )
