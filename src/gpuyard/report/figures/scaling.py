"""Builds charts of throughput and scaling efficiency against the number of GPUs, measured and predicted."""

from collections.abc import Callable

from gpuyard.draw.palette import NEUTRAL
from gpuyard.predictor import Prediction
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_category_axis,
    build_frame,
    build_log_axis,
    build_value_axis,
    finite_or_none,
)
from gpuyard.report.figures.marks import (
    SeriesStyles,
    build_band,
    build_dashed_line,
    build_dots,
    build_dotted_line,
    build_whiskers,
)
from gpuyard.report.figures.points import Points, get_single_gpu_rate, select_points
from gpuyard.study.result import MeasuredPoint, WorkloadResult
from gpuyard.units import format_number

IDEAL = "ideal scaling"
# beyond this ratio of the largest to the smallest value, the axis is logarithmic
_MAX_LINEAR_RATIO = 100


def build_throughput_chart(
    workload: WorkloadResult, batch: int, styles: SeriesStyles
) -> ChartOptions:
    """Build the chart of one workload at one batch size per GPU."""
    points = select_points(workload, batch)
    description = _describe(points, lambda p: format_number(p.samples_per_second))
    series = _build_throughput_series(points, styles)
    option = build_frame(
        "Throughput",
        f"{workload.name} in {workload.precision}, batch {batch:,} per GPU",
        f"Samples per second of {workload.name} against the number of GPUs at a batch of {batch} per "
        f"GPU. {description}",
        series,
    )
    option["xAxis"] = build_category_axis(points.axis_name, map(str, points.gpus))
    option["yAxis"] = build_value_axis("samples/s")
    rates = [p.samples_per_second for p in points.measured.values()]
    rates += [p.samples_per_second for curve in points.curves for p in curve.by_gpus.values()]
    positive = [rate for rate in rates if finite_or_none(rate) is not None and rate > 0]
    if positive and max(positive) > _MAX_LINEAR_RATIO * min(positive):
        # the axis includes the ends of intervals, because a band that is cut off seems to extend to the axis
        ends = [end for p in points.measured.values() for end in (p.low, p.high)]
        ends += [end for c in points.curves for p in c.by_gpus.values() for end in (p.low, p.high)]
        values = [
            *positive,
            *(end for end in ends if finite_or_none(end) is not None and end > 0),
            *(v for line in series if line["name"] == IDEAL for v in line["data"] if v),
        ]
        option["yAxis"] |= {**build_log_axis(values), "name": "samples/s (log)"}
    option["series"] = series
    return option


def _build_throughput_series(points: Points, styles: SeriesStyles) -> list[ChartOptions]:
    axis = points.gpus
    series: list[ChartOptions] = []
    ideals: list[ChartOptions] = []
    if points.measured:
        style = styles[points.here]
        name = f"{points.here}, measured"
        at = [
            (str(gpus), finite_or_none(p.samples_per_second)) for gpus, p in points.measured.items()
        ]
        intervals = {str(gpus): (p.low, p.high) for gpus, p in points.measured.items()}
        drawn = build_dots(name, style, at, points.doubtful)
        series.append(drawn | {"markLine": build_whiskers(style, intervals)})
    for curve in points.curves:
        style = styles[curve.platform]
        name = f"{curve.label}, predicted"
        series.append(
            build_dashed_line(name, style, curve.sample(axis, lambda p: p.samples_per_second))
        )
        intervals = {str(gpus): (p.low, p.high) for gpus, p in curve.by_gpus.items()}
        series += build_band(name, style, intervals)
        rate = get_single_gpu_rate((g, p.samples_per_second) for g, p in curve.by_gpus.items())
        ideals.append(_build_ideal(rate, axis, list(curve.by_gpus), style.color))
    if points.measured and not any(curve.here for curve in points.curves):
        rate = get_single_gpu_rate((g, p.samples_per_second) for g, p in points.measured.items())
        ideals.append(_build_ideal(rate, axis, list(points.measured), styles[points.here].color))
    return series + ideals


def _build_ideal(
    rate: float | None, axis: list[int], covered: list[int], color: str
) -> ChartOptions:
    data = [
        None
        if rate is None or not min(covered) <= gpus <= max(covered)
        else finite_or_none(rate * gpus)
        for gpus in axis
    ]
    return build_dotted_line(IDEAL, data, color)


def build_efficiency_chart(
    workload: WorkloadResult, batch: int, styles: SeriesStyles
) -> ChartOptions:
    """Build the chart of one workload at one batch size per GPU."""
    points = select_points(workload, batch)
    description = _describe(points, lambda p: f"{p.scaling_efficiency:.0%}")
    series = _build_efficiency_series(points, styles)
    option = build_frame(
        "Scaling efficiency",
        f"{workload.name} in {workload.precision}, batch {batch:,} per GPU",
        f"Scaling efficiency of {workload.name} in percent of ideal against the number of GPUs, at a "
        f"batch of {batch} per GPU. {description}",
        series,
    )
    option["xAxis"] = build_category_axis(points.axis_name, map(str, points.gpus))
    option["yAxis"] = build_value_axis("% of ideal", max=_choose_top(points))
    if series:
        series[0]["markLine"] = {
            "silent": True,
            "symbol": "none",
            "label": {"show": False},
            "lineStyle": {"type": "dotted", "color": NEUTRAL, "width": 1.5},
            "data": [{"yAxis": 100}],
        }
    option["series"] = series
    return option


def _build_efficiency_series(points: Points, styles: SeriesStyles) -> list[ChartOptions]:
    series: list[ChartOptions] = []
    at = [
        (str(gpus), finite_or_none(round(p.scaling_efficiency * 100, 2)))
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    ]
    if at:
        series.append(
            build_dots(f"{points.here}, measured", styles[points.here], at, points.doubtful)
        )
    for curve in points.curves:
        data = curve.sample(points.gpus, lambda p: round(p.scaling_efficiency * 100, 2))
        series.append(build_dashed_line(f"{curve.label}, predicted", styles[curve.platform], data))
    return series


def _choose_top(points: Points) -> int:
    """Return 100%, or more if something scales better than ideal because of caches or noise."""
    measured = [p.scaling_efficiency or 0.0 for p in points.measured.values()]
    predicted = [p.scaling_efficiency for c in points.curves for p in c.by_gpus.values()]
    largest = max((e for e in measured + predicted if finite_or_none(e) is not None), default=1.0)
    return 100 if largest <= 1.005 else int(-(-largest * 100 // 20) * 20)


def _describe(points: Points, value: Callable[[MeasuredPoint | Prediction], str]) -> str:
    """Describe all measured points that have an efficiency, and each curve at its largest GPU count."""
    sentences = [
        f"{points.here} with {gpus}: {value(p)} measured."
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    ]
    for curve in points.curves:
        gpus, last = max(curve.by_gpus.items())
        sentences.append(f"{curve.label} with {gpus}: {value(last)} predicted.")
    return " ".join(sentences)
