"""Payments, demand and capacity over time, and how long which demand lasts."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from gpuyard.draw.palette import COLOURS
from gpuyard.economics.billing import HOURS_PER_YEAR
from gpuyard.economics.demand import Demand
from gpuyard.economics.growth import GrowthPlan
from gpuyard.economics.hybrid import Hybrid
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    Option,
    frame,
    hours_axis,
    months_axis,
    value_axis,
)
from gpuyard.report.figures.marks import plain_line
from gpuyard.units import counted, format_usd

_DASHES = ("solid", "dashed", "dotted")
_POINTS = 300


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
