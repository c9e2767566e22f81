"""How long which demand lasts: the hours of a year sorted by the GPUs that are wanted in them."""

import numpy as np

from gpuyard.economics.amounts import HOURS_PER_YEAR
from gpuyard.economics.demand import Demand
from gpuyard.economics.hybrid import Hybrid
from gpuyard.report.figures.frame import TEXT_SIZE, Option, frame, value_axis
from gpuyard.report.figures.looks import COLOURS

_POINTS = 300


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
    series = [
        {
            "name": name,
            "type": "line",
            "step": "middle",
            "symbol": "none",
            "data": [
                [round(float(h), 1), round(float(g), 3)] for h, g in zip(hours, values, strict=True)
            ],
            "lineStyle": {"type": dash, "width": 2, "color": colour},
            "areaStyle": {"color": colour, "opacity": opacity},
            "itemStyle": {"color": colour},
        }
        for name, values, colour, dash, opacity in lines
    ]
    option = frame(
        "How long which demand lasts",
        f"{demand.source}: the hours of a year, the busiest first",
        f"The peak is {ordered[0]:g} GPUs, the mean {ordered.mean():.3g}. Owning {own:g} serves "
        f"{100 * hybrid.best.owned_share:.0f} % of all GPU-hours.",
        series,
    )
    option["xAxis"] = {
        "type": "value",
        "name": "hours a year",
        "nameLocation": "middle",
        "nameGap": 30,
        "min": 0,
        "max": 8766,
        "axisLabel": {"fontSize": TEXT_SIZE, "hideOverlap": True, "showMaxLabel": False},
        "axisPointer": {"label": {"precision": 0}},
    }
    option["yAxis"] = value_axis("GPUs")
    option["series"] = series
    return option
