"""What renting has cost after so many years, against buying once."""

import math

from gpuyard.report.figures.frame import TEXT_SIZE, Option, finite, frame, value_axis
from gpuyard.report.figures.looks import COLOURS
from gpuyard.study.result import CostResult
from gpuyard.units import format_usd, format_years

_RENT, _BUY, _COMPARABLE = COLOURS[1], COLOURS[0], COLOURS[2]
_POINTS = 24  # straight lines, but a tooltip needs something to stand on


def break_even_option(cost: CostResult) -> Option:
    """The chart of one comparison."""
    horizon = _horizon(cost)
    years = [horizon * i / _POINTS for i in range(_POINTS + 1)]
    yearly_usd = cost.rent_usd_per_hour * cost.hours_per_year
    lines = [
        _line("renting", _RENT, [(year, yearly_usd * year) for year in years], "solid"),
        _line("buying", _BUY, [(year, cost.buy_usd) for year in years], "solid"),
    ]
    lines[1]["markPoint"] = _mark(
        cost.undiscounted_break_even_years,
        cost.undiscounted_break_even_hours,
        cost.buy_usd,
        _BUY,
        above=True,
    )
    if cost.speed_lead > 0:
        usd = cost.comparable_buy_usd
        name = f"buying, less {100 * cost.speed_lead:.0f} % for its speed lead"
        lines.append(_line(name, _COMPARABLE, [(year, usd) for year in years], "dashed"))
        lines[2]["markPoint"] = _mark(
            cost.break_even_years, cost.break_even_hours, usd, _COMPARABLE, above=False
        )
    option = frame(
        "Renting against buying",
        f"{format_usd(cost.rent_usd_per_hour)}/h or {format_usd(cost.buy_usd)} once, "
        f"{cost.hours_per_year:,.0f} hours of use a year",
        f"Cumulative cost over {format_years(horizon)}. Renting reaches the price of buying after "
        f"{cost.undiscounted_break_even_years:.2f} years, and the price less the speed lead after "
        f"{cost.break_even_years:.2f} years.",
        lines,
    )
    option["xAxis"] = {
        "type": "value",
        "name": "years",
        "nameLocation": "middle",
        "nameGap": 30,
        "min": 0,
        "max": horizon,
        "axisLabel": {"fontSize": TEXT_SIZE},
        "axisPointer": {"label": {"formatter": "{value} years", "precision": 2}},
    }
    option["yAxis"] = value_axis(
        "cumulative cost", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"}
    )
    option["series"] = lines
    return option


def _horizon(cost: CostResult) -> float:
    """Half as long again as the later break-even, in whole years."""
    years = [
        y
        for y in (cost.break_even_years, cost.undiscounted_break_even_years)
        if finite(y) is not None
    ]
    return float(max(1, math.ceil(1.5 * max(years, default=1.0))))


def _line(name: str, colour: str, points: list[tuple[float, float]], kind: str) -> Option:
    return {
        "name": name,
        "type": "line",
        "data": [list(point) for point in points],
        "symbol": "none",
        "lineStyle": {"type": kind, "width": 2.5, "color": colour},
        "itemStyle": {"color": colour},
    }


def _mark(years: float, hours: float, usd: float, colour: str, *, above: bool) -> Option:
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
            "formatter": f"{years:.1f} years\n{hours:,.0f} h",
        },
        "data": [{"coord": [years, usd], "name": f"breaks even after {years:.2f} years"}],
    }
