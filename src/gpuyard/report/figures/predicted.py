"""Builds the charts of predictions: throughput with its interval and measured points, efficiency, and the parts of a step."""

from collections.abc import Mapping, Sequence

from gpuyard.draw.palette import COLORS
from gpuyard.predictor import ClusterPrediction, Prediction
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_category_axis,
    build_frame,
    build_value_axis,
    finite_or_none,
)
from gpuyard.report.figures.marks import (
    SYMBOLS,
    SeriesStyle,
    build_band,
    build_dashed_line,
    build_dots,
)
from gpuyard.specs import KnownThroughput
from gpuyard.units import format_number

_PARTS = {
    "compute": "compute_seconds",
    "exposed communication": "exposed_communication_seconds",
    "input": "input_seconds",
    "waiting for the slowest": "straggler_seconds",
}


def build_predicted_throughput(
    results: Sequence[ClusterPrediction], measured: Sequence[KnownThroughput] = ()
) -> ChartOptions:
    """Build samples per second over GPUs, with the 90% interval and the measured points."""
    axis, lines = _list_lines(results)
    points = {point.gpus for point in measured} - set(axis)
    axis = sorted({*axis, *points})
    series: list[ChartOptions] = []
    for index, (name, rows) in enumerate(lines.items()):
        style = SeriesStyle(COLORS[index % len(COLORS)], SYMBOLS[index % len(SYMBOLS)])
        values = [finite_or_none(rows[n].samples_per_second) if n in rows else None for n in axis]
        series.append(build_dashed_line(name, style, values))
        series += build_band(name, style, {str(n): (p.low, p.high) for n, p in rows.items()})
    if measured:
        dots = [(str(point.gpus), point.samples_per_second) for point in measured]
        series.append(
            build_dots("measured", SeriesStyle(COLORS[len(results) % len(COLORS)], "diamond"), dots)
        )
    description = _describe(
        "Samples per second", results, lambda p: format_number(p.samples_per_second)
    )
    option = build_frame("Throughput", "predicted, with the 90% interval", description, series)
    option["xAxis"] = build_category_axis("GPUs", map(str, axis))
    option["yAxis"] = build_value_axis("samples/s")
    return option | {"series": series}


def build_predicted_efficiency(results: Sequence[ClusterPrediction]) -> ChartOptions:
    """Build the scaling efficiency over GPUs, in percent of ideal."""
    axis, lines = _list_lines(results)
    series = [
        build_dashed_line(
            name,
            SeriesStyle(COLORS[index % len(COLORS)], SYMBOLS[index % len(SYMBOLS)]),
            [round(100 * rows[n].scaling_efficiency, 1) if n in rows else None for n in axis],
        )
        for index, (name, rows) in enumerate(lines.items())
    ]
    description = _describe("Efficiency", results, lambda p: f"{p.scaling_efficiency:.0%}")
    option = build_frame("Scaling efficiency", "of one GPU's speed each", description, series)
    option["xAxis"] = build_category_axis("GPUs", map(str, axis))
    option["yAxis"] = build_value_axis("% of ideal", min=0)
    return option | {"series": series}


def build_step_parts(result: ClusterPrediction) -> ChartOptions:
    """Build stacked bars of the parts of a step, for the first batch of each number of GPUs."""
    rows = {p.gpus: p for p in reversed(result.predictions)}
    axis = sorted(rows)
    series: list[ChartOptions] = [
        {
            "name": name,
            "type": "bar",
            "stack": "step",
            "color": COLORS[index],
            "data": [round(1000 * getattr(rows[gpus].step, field), 3) for gpus in axis],
        }
        for index, (name, field) in enumerate(_PARTS.items())
    ]
    description = _describe("Time of a step", [result], lambda p: f"{1000 * p.step.seconds:.3g} ms")
    option = build_frame("One step", "by what the GPU waits for", description, series)
    option["xAxis"] = build_category_axis("GPUs", map(str, axis))
    option["yAxis"] = build_value_axis("ms")
    return option | {"series": series}


def _list_lines(
    results: Sequence[ClusterPrediction],
) -> tuple[list[int], Mapping[str, Mapping[int, Prediction]]]:
    """Return all numbers of GPUs, and a line for each cluster and batch."""
    lines: dict[str, dict[int, Prediction]] = {}
    for result in results:
        batches = dict.fromkeys(p.batch_per_gpu for p in result.predictions)
        for p in result.predictions:
            name = (
                f"{result.cluster}, batch {p.batch_per_gpu}" if len(batches) > 1 else result.cluster
            )
            lines.setdefault(name, {})[p.gpus] = p
    return sorted({gpus for rows in lines.values() for gpus in rows}), lines


def _describe(title: str, results: Sequence[ClusterPrediction], format_value: object) -> str:
    sentences = [
        f"{result.cluster} with {p.gpus} GPUs: {format_value(p)}."  # type: ignore[operator]
        for result in results
        for p in result.predictions
    ]
    return f"{title}. {' '.join(sentences[:20])}"
