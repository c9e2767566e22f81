"""What has been paid by each month, one line a way of getting the work done."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, value_axis
from gpuyard.report.figures.looks import COLOURS
from gpuyard.units import format_usd

_DASHES = ("solid", "dashed", "dotted")


def cash_curve_option(cash_by_month: Mapping[str, Sequence[float]], subtitle: str) -> Option:
    """Cumulative payments; a step down at the end is the resale."""
    series = []
    for index, (name, cash) in enumerate(cash_by_month.items()):
        colour = COLOURS[index % len(COLOURS)]
        series.append(
            {
                "name": name,
                "type": "line",
                "data": [[month, round(usd, 2)] for month, usd in enumerate(accumulate(cash))],
                "symbol": "none",
                "lineStyle": {
                    "type": _DASHES[index // len(COLOURS) % len(_DASHES)],
                    "width": 2.5,
                    "color": colour,
                },
                "itemStyle": {"color": colour},
            }
        )
    months = max(len(cash) for cash in cash_by_month.values()) - 1
    option = frame(
        "What has been paid",
        subtitle,
        f"Cumulative payments over {months} months. "
        + " ".join(f"{name}: {format_usd(sum(cash))}." for name, cash in cash_by_month.items()),
        series,
    )
    option["xAxis"] = {
        "type": "value",
        "name": "months",
        "nameLocation": "middle",
        "nameGap": 30,
        "min": 0,
        "max": months,
        "axisLabel": {"fontSize": TEXT_SIZE},
        "axisPointer": {"label": {"formatter": "{value} months", "precision": 0}},
    }
    axis = value_axis("paid so far", axisLabel={"fontSize": TEXT_SIZE, "formatter": "${value}"})
    lowest = min(min(accumulate(cash)) for cash in cash_by_month.values())
    if lowest < 0:  # what sells for more than was paid
        axis.pop("min")
    option["yAxis"] = axis
    option["series"] = series
    return option
