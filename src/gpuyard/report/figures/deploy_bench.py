"""Builds charts of a deployment's throughput and scaling efficiency over its GPUs, measured and predicted."""

from collections.abc import Callable, Sequence

from gpuyard.deploy.bench.comparison import BenchComparison
from gpuyard.draw.palette import COLORS
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_category_axis,
    build_frame,
    build_value_axis,
    finite_or_none,
)
from gpuyard.report.figures.marks import SYMBOLS, SeriesStyle, build_dashed_line, build_dots
from gpuyard.units import format_bit_rate, format_number

_Value = Callable[[BenchComparison], float | None]


def format_line_name(row: BenchComparison) -> str:
    rate = row.link_bytes_per_second
    strategy = row.measurement.strategy
    name = row.series if strategy == "ddp" else f"{row.series}, {strategy}"
    return (
        name if rate is None or row.series == "one machine" else f"{name}, {format_bit_rate(rate)}"
    )


def build_performance_chart(rows: Sequence[BenchComparison], batch: int) -> ChartOptions:
    """Build the chart of samples per second at one batch size."""
    option = _build_chart(
        rows,
        batch,
        "Throughput",
        lambda row: row.measurement.samples_per_second,
        lambda row: row.predicted.samples_per_second,
    )
    option["yAxis"] = build_value_axis("samples/s")
    return option


def build_efficiency_chart(rows: Sequence[BenchComparison], batch: int) -> ChartOptions:
    """Build the chart of scaling efficiency at one batch size, in percent of ideal."""
    option = _build_chart(
        rows,
        batch,
        "Scaling efficiency",
        lambda row: None if row.efficiency is None else round(row.efficiency * 100, 2),
        lambda row: round(row.predicted.scaling_efficiency * 100, 2),
    )
    highest = max((row.efficiency or 0.0 for row in rows), default=1.0)
    option["yAxis"] = build_value_axis("% of ideal", min=0, max=100 if highest <= 1.005 else None)
    return option


def _build_chart(
    rows: Sequence[BenchComparison], batch: int, title: str, measured: _Value, predicted: _Value
) -> ChartOptions:
    selected = [row for row in rows if row.measurement.batch_per_worker == batch]
    # names of all rows, so that a line looks the same at every batch size
    names = list(dict.fromkeys(format_line_name(row) for row in rows))
    axis = sorted({row.measurement.workers for row in selected})
    series: list[ChartOptions] = []
    for index, name in enumerate(names):
        style = SeriesStyle(COLORS[index % len(COLORS)], SYMBOLS[index % len(SYMBOLS)])
        by_gpus = {
            row.measurement.workers: row for row in selected if format_line_name(row) == name
        }
        points = [
            (str(gpus), finite_or_none(measured(row))) for gpus, row in sorted(by_gpus.items())
        ]
        series.append(build_dots(f"{name}, measured", style, points))
        values = [
            finite_or_none(predicted(by_gpus[gpus])) if gpus in by_gpus else None for gpus in axis
        ]
        series.append(build_dashed_line(f"{name}, predicted", style, values))
    sentences = " ".join(
        f"{format_line_name(row)} with {row.measurement.workers} GPUs: {format_number(value)} measured."
        for row in selected
        if (value := measured(row)) is not None
    )
    subtitle = f"batch {batch:,} per GPU"
    option = build_frame(title, subtitle, f"{title} at {subtitle}. {sentences}", series)
    option["xAxis"] = build_category_axis("GPUs", map(str, axis))
    option["series"] = series
    return option
