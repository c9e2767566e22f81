"""What a growing team wants, and what its machines can do, month by month."""

from gpuyard.economics.growth import GrowthPlan
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, value_axis
from gpuyard.report.figures.looks import COLOURS


def growth_option(plan: GrowthPlan) -> Option:
    """What lies between the demand and the steps below it is rented."""
    lines = [
        ("wanted", plan.demand_gpu_hours, COLOURS[1], "solid"),
        ("what owned machines can do", plan.owned_gpu_hours, COLOURS[0], "dashed"),
    ]
    series = [
        {
            "name": name,
            "type": "line",
            "step": "end",
            "symbol": "none",
            "data": [[month, round(value, 1)] for month, value in enumerate(values)],
            "lineStyle": {"type": dash, "width": 2.5, "color": colour},
            "itemStyle": {"color": colour},
        }
        for name, values, colour, dash in lines
    ]
    months = len(plan.people)
    option = frame(
        "When to buy the next machine",
        f"GPU-hours a month; {len(plan.purchases)} machine(s) in {months} months",
        " ".join(f"Machine {p.number} in month {p.month}." for p in plan.purchases)
        or "No machine pays; all is rented.",
        series,
    )
    option["xAxis"] = {
        "type": "value",
        "name": "months",
        "nameLocation": "middle",
        "nameGap": 30,
        "min": 0,
        "max": max(months - 1, 1),
        "axisLabel": {"fontSize": TEXT_SIZE},
        "axisPointer": {"label": {"precision": 0}},
    }
    option["yAxis"] = value_axis("GPU-hours a month")
    option["series"] = series
    return option
