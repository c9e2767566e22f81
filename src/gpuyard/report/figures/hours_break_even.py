"""How soon owning pays, against how much it is used: one line a price of renting."""

from dataclasses import replace

import numpy as np

from gpuyard.economics.amounts import HOURS_PER_YEAR, Amounts
from gpuyard.economics.rent_or_own import RentOrOwn, break_even_months
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, value_axis
from gpuyard.report.figures.looks import COLOURS, NEUTRAL

_POINTS = 60
_PRICES = (
    (0.7, "30 % cheaper", "dashed"),
    (1.0, "as stated", "solid"),
    (1.3, "30 % dearer", "dotted"),
)


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
    hours = np.linspace(HOURS_PER_YEAR / _POINTS, HOURS_PER_YEAR, _POINTS)
    series = []
    for index, (factor, words, dash) in enumerate(_PRICES):
        months = np.broadcast_to(break_even_months(_at(case, factor, hours)), hours.shape)
        series.append(
            {
                "name": f"rent {words}",
                "type": "line",
                "symbol": "none",
                "data": [
                    [round(float(h)), round(float(m), 2) if m <= 120 else None]
                    for h, m in zip(hours, months, strict=True)
                ],
                "lineStyle": {"type": dash, "width": 2.5, "color": COLOURS[index]},
                "itemStyle": {"color": COLOURS[index]},
            }
        )
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
        "How much use makes owning pay",
        "months until renting has cost as much, against hours of use a year",
        f"At {stated:,.0f} hours a year: "
        + (f"{even:.1f} months." if np.isfinite(even) else "never.")
        + " More use pays sooner.",
        series,
    )
    option["xAxis"] = {
        "type": "value",
        "name": "hours of use a year",
        "nameLocation": "middle",
        "nameGap": 30,
        "min": 0,
        "max": 8766,
        "axisLabel": {"fontSize": TEXT_SIZE, "hideOverlap": True, "showMaxLabel": False},
        "axisPointer": {"label": {"precision": 0}},
    }
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
