"""Builds the chart of GPU-hours: who used how many, and how many of them the GPUs computed."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_bar_axis,
    build_frame,
    build_value_axis,
)

_MAX_BARS = 20


def build_usage_chart(rows: Sequence[Mapping[str, Any]], kind: str) -> ChartOptions:
    """Build stacked bars by user, group, or project, the largest first."""
    shown = rows[:_MAX_BARS]
    busy = [round(row["gpu_hours"] * (row["utilization"] or 0.0), 2) for row in shown]
    idle = [round(row["gpu_hours"] - b, 2) for row, b in zip(shown, busy, strict=True)]
    series: list[ChartOptions] = [
        {"name": "computing", "type": "bar", "stack": "hours", "color": COLORS[0], "data": busy},
        {"name": "leased, not computing", "type": "bar", "stack": "hours", "color": NEUTRAL, "data": idle},
    ]  # fmt: skip
    sentences = " ".join(f"{row['name'] or 'none'}: {row['gpu_hours']:.1f}." for row in shown)
    chart = build_frame("GPU-hours", f"by {kind}", f"GPU-hours by {kind}. {sentences}", series)
    chart["yAxis"] = build_bar_axis([row["name"] or "none" for row in shown])
    labels = {"fontSize": TEXT_SIZE, "hideOverlap": True}
    chart["xAxis"] = build_value_axis("GPU-hours", splitNumber=4, axisLabel=labels)
    return chart | {"series": series}
