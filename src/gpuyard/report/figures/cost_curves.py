"""Money over time: payments, demand and capacity, how long which demand lasts, and when renting has cost as much as
owning, over the years and against how much it is used."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.draw.palette import COLOURS, NEUTRAL
from gpuyard.economics.billing import HOURS_PER_YEAR, Amounts
from gpuyard.economics.demand import Demand
from gpuyard.economics.growth import GrowthPlan
from gpuyard.economics.hybrid import Hybrid
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    Option,
    finite,
    frame,
    hours_axis,
    months_axis,
    value_axis,
    x_axis,
)
from gpuyard.report.figures.marks import plain_line
from gpuyard.units import counted, format_usd, format_years

if TYPE_CHECKING:  # against how much it is used needs no study
    from gpuyard.study.result import CostResult


_DASHES = ("solid", "dashed", "dotted")
_POINTS = 300
_BREAK_EVEN_POINTS = 24  # straight lines, but a tooltip needs something to stand on


def cash_curve_option(cash_by_month: Mapping[str, Sequence[float]], subtitle: str) -> Option:
    """Cumulative payments; a step down at the end is the resale."""
    series = [
        plain_line(
            name,
            COLOURS[index % len(COLOURS)],
            [[month, round(usd, 2)] for month, usd in enumerate(accumulate(cash))],
            _DASHES[index // len(COLOURS) % len(_DASHES)],
        )
        for index, (name, cash) in enumerate(cash_by_month.items())
    ]
    months = max(len(cash) for cash in cash_by_month.values()) - 1
    option = frame(
        "What has been paid",
        subtitle,
        f"Cumulative payments over {months} months. "
        + " ".join(f"{name}: {format_usd(sum(cash))}." for name, cash in cash_by_month.items()),
        series,
    )
    option["xAxis"] = months_axis(months)
    axis = value_axis("paid so far", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"})
    lowest = min(min(accumulate(cash)) for cash in cash_by_month.values())
    if lowest < 0:  # what sells for more than was paid
        axis.pop("min")
    option["yAxis"] = axis
    option["series"] = series
    return option


def growth_option(plan: GrowthPlan) -> Option:
    """What lies between the demand and the steps below it is rented."""
    lines = [
        ("wanted", plan.demand_gpu_hours, COLOURS[1], "solid"),
        ("what owned machines can do", plan.owned_gpu_hours, COLOURS[0], "dashed"),
    ]
    series = [
        plain_line(
            name, colour, [[month, round(value, 1)] for month, value in enumerate(values)], dash
        )
        | {"step": "end"}
        for name, values, colour, dash in lines
    ]
    months = len(plan.people)
    option = frame(
        "When to buy the next machine",
        f"GPU-hours per month; {counted(len(plan.purchases), 'machine')} in {months} months",
        " ".join(f"Machine {p.number} in month {p.month}." for p in plan.purchases)
        or "No machine pays off; everything is rented.",
        series,
    )
    option["xAxis"] = months_axis(max(months - 1, 1))
    option["yAxis"] = value_axis("GPU-hours per month")
    option["series"] = series
    return option


def duration_curve_option(demand: Demand, hybrid: Hybrid) -> Option:
    """Below the line of what is owned, owned GPUs work; above it, rented ones do."""
    ordered = np.sort(demand.gpus)[::-1]
    at = np.unique(np.linspace(0, ordered.size - 1, min(_POINTS, ordered.size)).astype(int))
    hours = (at + 0.5) / ordered.size * HOURS_PER_YEAR
    gpus = ordered[at]
    own = hybrid.best.own_gpus
    # steps, because a rank is as wide as its period
    lines = [
        ("wanted", gpus, COLOURS[1], "solid", 0.25),
        (f"owned: {own:g}", np.minimum(gpus, own), COLOURS[2], "dashed", 0.45),
    ]
    series = []
    for name, values, colour, dash, opacity in lines:
        data = [
            [round(float(h), 1), round(float(g), 3)] for h, g in zip(hours, values, strict=True)
        ]
        area = {"color": colour, "opacity": opacity}
        series.append(
            plain_line(name, colour, data, dash, 2) | {"step": "middle", "areaStyle": area}
        )
    option = frame(
        "How long each level of demand lasts",
        f"{demand.source}: the hours of a year, the busiest first",
        f"The peak is {ordered[0]:g} GPUs, the mean {ordered.mean():.3g}. Owning {own:g} serves "
        f"{100 * hybrid.best.owned_share:.0f} % of all GPU-hours.",
        series,
    )
    option["xAxis"] = hours_axis("hours per year")
    option["yAxis"] = value_axis("GPUs")
    option["series"] = series
    return option


_RENT, _BUY = COLOURS[1], COLOURS[0]
_HOURS = 60
_PRICES = (
    (0.7, "30 % cheaper", "dashed"),
    (1.0, "as stated", "solid"),
    (1.3, "30 % more expensive", "dotted"),
)


def break_even_option(cost: "CostResult") -> Option:
    """The chart of one comparison."""
    horizon = _horizon(cost)
    years = [horizon * i / _BREAK_EVEN_POINTS for i in range(_BREAK_EVEN_POINTS + 1)]
    yearly_usd = cost.rent_usd_per_hour * cost.hours_per_year
    lines = [
        plain_line("renting", _RENT, [[year, yearly_usd * year] for year in years]),
        plain_line("buying", _BUY, [[year, cost.buy_usd] for year in years]),
    ]
    lines[1]["markPoint"] = _mark(
        cost.undiscounted_break_even_years,
        cost.undiscounted_break_even_hours,
        cost.buy_usd,
        _BUY,
        above=True,
    )
    ruled = ""
    if cost.speed_lead > 0:  # a point of what renting has cost: nobody pays the price less a lead
        lead = f"{100 * cost.speed_lead:.0f} %"
        lines[0]["markPoint"] = _mark(
            cost.break_even_years,
            cost.break_even_hours,
            cost.comparable_buy_usd,
            _RENT,
            above=False,
            more=f"price less {lead}",
        )
        ruled = (
            f", and the price less its {lead} speed lead after {cost.break_even_years:.2f} years"
        )
    option = frame(
        "Renting against buying",
        f"{format_usd(cost.rent_usd_per_hour)}/h or {format_usd(cost.buy_usd)} once, "
        f"{cost.hours_per_year:,.0f} hours of use per year",
        f"Cumulative cost over {format_years(horizon)}. Renting reaches the price of buying after "
        f"{cost.undiscounted_break_even_years:.2f} years{ruled}.",
        lines,
    )
    option["xAxis"] = x_axis(
        "years",
        min=0,
        max=horizon,
        axisPointer={"label": {"formatter": "{value} years", "precision": 2}},
    )
    option["yAxis"] = value_axis(
        "cumulative cost", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"}
    )
    option["series"] = lines
    return option


def _horizon(cost: "CostResult") -> float:
    """Half as long again as the later break-even, in whole years."""
    years = [
        y
        for y in (cost.break_even_years, cost.undiscounted_break_even_years)
        if finite(y) is not None
    ]
    return float(max(1, math.ceil(1.5 * max(years, default=1.0))))


def _mark(
    years: float, hours: float, usd: float, colour: str, *, above: bool, more: str = ""
) -> Option:
    if finite(years) is None:
        return {"data": []}
    return {
        "symbol": "circle",
        "symbolSize": 12,
        "itemStyle": {"color": colour},
        "label": {
            "position": "top" if above else "bottom",
            "distance": 6,
            "offset": [-44 if above else 44, 0],  # beside the renting line, not on it
            "lineHeight": 16,
            "fontSize": 13,
            "fontWeight": 600,
            "formatter": "\n".join(filter(None, (f"{years:.1f} years", f"{hours:,.0f} h", more))),
        },
        "data": [{"coord": [years, usd], "name": f"breaks even after {years:.2f} years"}],
    }


def hours_break_even_rows(case: RentOrOwn) -> list[list[str]]:
    """The same as a table: hours a year, then months at each price of renting."""
    rows = []
    for hours in (500, 1000, 2000, 3000, 4000, 6000, 8000):
        months = [
            float(break_even_months(_at(case, factor, float(hours)))) for factor, _, _ in _PRICES
        ]
        rows.append(
            [f"{hours:,}", *(f"{m:.1f} months" if np.isfinite(m) else "never" for m in months)]
        )
    return rows


def hours_break_even_option(case: RentOrOwn) -> Option:
    """Months until renting has cost as much, up to ten years; above that a line ends."""
    hours = np.linspace(HOURS_PER_YEAR / _HOURS, HOURS_PER_YEAR, _HOURS)
    series = []
    for index, (factor, words, dash) in enumerate(_PRICES):
        months = np.broadcast_to(break_even_months(_at(case, factor, hours)), hours.shape)
        data = [
            [round(float(h)), round(float(m), 2) if m <= 120 else None]
            for h, m in zip(hours, months, strict=True)
        ]
        series.append(plain_line(f"rent {words}", COLOURS[index], data, dash))
    stated = float(np.asarray(case.hours_per_year))
    even = float(break_even_months(case))
    series[1]["markLine"] = {
        "symbol": "none",
        "silent": True,
        "lineStyle": {"color": NEUTRAL, "type": "solid"},
        "label": {"formatter": "stated use", "color": NEUTRAL},
        "data": [{"xAxis": stated}],
    }
    option = frame(
        "How much use makes owning pay off",
        "months until renting costs as much, against hours of use per year",
        f"At {stated:,.0f} hours per year: "
        + (f"{even:.1f} months." if np.isfinite(even) else "never.")
        + " More use pays off sooner.",
        series,
    )
    option["xAxis"] = hours_axis("hours of use per year")
    option["yAxis"] = value_axis("months", max=120)
    option["series"] = series
    return option


def _at(case: RentOrOwn, price_factor: float, hours_per_year: Amounts) -> RentOrOwn:
    return replace(
        case,
        rent_usd_per_hour=np.asarray(case.rent_usd_per_hour) * price_factor,
        reserved_usd_per_year=np.asarray(case.reserved_usd_per_year) * price_factor,
        hours_per_year=hours_per_year,
    )
