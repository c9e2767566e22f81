"""Builds the charts of goodput over the checkpoint interval and over the number of GPUs."""

from collections.abc import Sequence

from gpuyard.draw.goodput import choose_floor
from gpuyard.draw.palette import COLORS
from gpuyard.economics.goodput import Goodput
from gpuyard.planner.goodput import GoodputResult
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_category_axis,
    build_frame,
    build_value_axis,
)
from gpuyard.report.figures.marks import SeriesStyle, build_band, build_dashed_line
from gpuyard.units import format_rough_seconds


def build_interval_chart(result: GoodputResult) -> ChartOptions:
    """Build goodput over the checkpoint interval."""
    return _build_chart(
        "Goodput by checkpoint interval",
        f"{result.workload} on {result.gpus:,} GPUs",
        "time between checkpoints",
        [(format_rough_seconds(seconds), point) for seconds, point in result.by_interval],
    )


def build_gpus_chart(result: GoodputResult) -> ChartOptions:
    """Build goodput over the number of GPUs, each at its own best interval."""
    return _build_chart(
        "Goodput by number of GPUs",
        f"{result.workload}, each at its best checkpoint interval",
        "GPUs",
        [(f"{gpus:,}", point) for gpus, point in result.by_gpus],
    )


def _build_chart(
    title: str, subtitle: str, axis: str, points: Sequence[tuple[str, Goodput]]
) -> ChartOptions:
    style = SeriesStyle(COLORS[0], "circle")
    name = "goodput, 90% interval"
    shares = [round(100 * point.share, 3) for _, point in points]
    series = [
        build_dashed_line(name, style, shares),
        *build_band(name, style, {at: (100 * point.low, 100 * point.high) for at, point in points}),
    ]
    best = max(points, key=lambda pair: pair[1].share)
    chart = build_frame(
        title,
        subtitle,
        f"{title} in percent. It is highest at {best[0]}: {best[1].share:.1%}.",
        series[:1],
    )
    chart["xAxis"] = build_category_axis(axis, [at for at, _ in points])
    floor = choose_floor(point.share for _, point in points)
    chart["yAxis"] = build_value_axis("% of time", min=round(100 * floor, 1), max=100)
    return chart | {"series": series}
