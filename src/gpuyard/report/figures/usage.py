"""Builds the charts of use: GPU-hours by user, and the GPUs that were leased and computed over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_bar_axis,
    build_category_axis,
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


def build_use_over_time_chart(document: Mapping[str, Any]) -> ChartOptions:
    """Build stacked bars of the GPUs that computed and that were only leased, by hour, day, or week."""
    rows, gpus = document["over_time"], document["gpus"]
    begins = [datetime.fromisoformat(row["from"]).astimezone() for row in rows]
    is_hourly = len(begins) > 2 and (begins[2] - begins[1]).total_seconds() <= 3600
    labels = [f"{begin:%a %H:%M}" if is_hourly else f"{begin:%b} {begin.day}" for begin in begins]
    busy = [round(row["computing_gpus"], 2) for row in rows]
    idle = [round(row["leased_gpus"] - row["computing_gpus"], 2) for row in rows]
    series: list[ChartOptions] = [
        {"name": "computing", "type": "bar", "stack": "gpus", "barMaxWidth": 48, "color": COLORS[0], "data": busy},
        {"name": "leased, not computing", "type": "bar", "stack": "gpus", "color": NEUTRAL, "data": idle},
    ]  # fmt: skip
    mean = sum(row["leased_gpus"] for row in rows) / max(1, len(rows))
    description = f"GPUs in use over time: {mean:.1f} of {gpus} leased on average."
    chart = build_frame("Use over time", f"mean GPUs of {gpus}", description, series)
    chart["xAxis"] = build_category_axis("", labels)
    chart["yAxis"] = build_value_axis("GPUs", **({"max": gpus} if gpus else {}))
    return chart | {"series": series}
