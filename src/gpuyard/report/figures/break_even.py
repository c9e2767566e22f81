"""When renting has cost as much as owning: over the years, and against how much it is used."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.draw.palette import COLOURS, NEUTRAL
from gpuyard.economics.billing import HOURS_PER_YEAR, Amounts
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    Option,
    finite,
    frame,
    hours_axis,
    value_axis,
    x_axis,
)
from gpuyard.report.figures.marks import plain_line
from gpuyard.units import format_usd, format_years

if TYPE_CHECKING:  # against how much it is used needs no study
    from gpuyard.study.result import CostResult

_RENT, _BUY = COLOURS[1], COLOURS[0]
_POINTS = 24  # straight lines, but a tooltip needs something to stand on
_HOURS = 60
_PRICES = (
    (0.7, "30 % cheaper", "dashed"),
    (1.0, "as stated", "solid"),
    (1.3, "30 % more expensive", "dotted"),
)


def break_even_option(cost: "CostResult") -> Option:
    """The chart of one comparison."""
    horizon = _horizon(cost)
    years = [horizon * i / _POINTS for i in range(_POINTS + 1)]
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
