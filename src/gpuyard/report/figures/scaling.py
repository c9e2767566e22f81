"""Samples a second and scaling efficiency against the number of GPUs, measured and predicted."""

from collections.abc import Callable

from gpuyard.draw.palette import NEUTRAL
from gpuyard.predict import Prediction
from gpuyard.report.figures.frame import Option, category_axis, finite, frame, log_axis, value_axis
from gpuyard.report.figures.marks import Looks, band, dashed, dots, dotted, whiskers
from gpuyard.report.figures.points import Points, one_gpu_rate, points_at
from gpuyard.study.result import MeasuredPoint, WorkloadResult
from gpuyard.units import format_number

IDEAL = "ideal scaling"
# on a linear axis, what is this much smaller than the largest lies on the ground
_LARGEST_LINEAR_RATIO = 100


def throughput_option(workload: WorkloadResult, batch: int, looks: Looks) -> Option:
    """The chart for one workload at one per-GPU batch size."""
    points = points_at(workload, batch)
    described = _described(points, lambda p: format_number(p.samples_per_second))
    series = _throughputs(points, looks)
    option = frame(
        "Throughput",
        f"{workload.name} in {workload.precision}, {batch:,} samples per GPU and step",
        f"Samples per second of {workload.name} against the number of GPUs at a batch of {batch} per "
        f"GPU. {described}",
        series,
    )
    option["xAxis"] = category_axis(points.axis_name, map(str, points.gpus))
    option["yAxis"] = value_axis("samples/s")
    rates = [p.samples_per_second for p in points.measured.values()]
    rates += [p.samples_per_second for curve in points.curves for p in curve.by_gpus.values()]
    positive = [rate for rate in rates if finite(rate) is not None and rate > 0]
    if positive and max(positive) > _LARGEST_LINEAR_RATIO * min(positive):
        # ends of intervals, too: a band that is cut off looks as if it reached the axis
        ends = [end for p in points.measured.values() for end in (p.low, p.high)]
        ends += [end for c in points.curves for p in c.by_gpus.values() for end in (p.low, p.high)]
        drawn = [
            *positive,
            *(end for end in ends if finite(end) is not None and end > 0),
            *(v for one in series if one["name"] == IDEAL for v in one["data"] if v),
        ]
        option["yAxis"] |= {**log_axis(drawn), "name": "samples/s (log)"}
    option["series"] = series
    return option


def _throughputs(points: Points, looks: Looks) -> list[Option]:
    axis = points.gpus
    series: list[Option] = []
    ideals: list[Option] = []
    if points.measured:
        look = looks[points.here]
        name = f"{points.here}, measured"
        at = [(str(gpus), finite(p.samples_per_second)) for gpus, p in points.measured.items()]
        intervals = {str(gpus): (p.low, p.high) for gpus, p in points.measured.items()}
        drawn = dots(name, look, at, points.doubtful)
        series.append(drawn | {"markLine": whiskers(look, intervals)})
    for curve in points.curves:
        look = looks[curve.platform]
        name = f"{curve.label}, predicted"
        series.append(dashed(name, look, curve.along(axis, lambda p: p.samples_per_second)))
        intervals = {str(gpus): (p.low, p.high) for gpus, p in curve.by_gpus.items()}
        series += band(name, look, intervals)
        rate = one_gpu_rate((g, p.samples_per_second) for g, p in curve.by_gpus.items())
        ideals.append(_ideal(rate, axis, list(curve.by_gpus), look.colour))
    if points.measured and not any(curve.here for curve in points.curves):
        rate = one_gpu_rate((g, p.samples_per_second) for g, p in points.measured.items())
        ideals.append(_ideal(rate, axis, list(points.measured), looks[points.here].colour))
    return series + ideals


def _ideal(rate: float | None, axis: list[int], covered: list[int], colour: str) -> Option:
    data = [
        None if rate is None or not min(covered) <= gpus <= max(covered) else finite(rate * gpus)
        for gpus in axis
    ]
    return dotted(IDEAL, data, colour)


def efficiency_option(workload: WorkloadResult, batch: int, looks: Looks) -> Option:
    """The chart for one workload at one per-GPU batch size."""
    points = points_at(workload, batch)
    described = _described(points, lambda p: f"{p.scaling_efficiency:.0%}")
    series = _efficiencies(points, looks)
    option = frame(
        "Scaling efficiency",
        f"{workload.name} in {workload.precision}, {batch:,} samples per GPU and step",
        f"Scaling efficiency of {workload.name} in percent of ideal against the number of GPUs, at a "
        f"batch of {batch} per GPU. {described}",
        series,
    )
    option["xAxis"] = category_axis(points.axis_name, map(str, points.gpus))
    option["yAxis"] = value_axis("% of ideal", max=_top(points))
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


def _efficiencies(points: Points, looks: Looks) -> list[Option]:
    series: list[Option] = []
    at = [
        (str(gpus), finite(round(p.scaling_efficiency * 100, 2)))
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    ]
    if at:
        series.append(dots(f"{points.here}, measured", looks[points.here], at, points.doubtful))
    for curve in points.curves:
        data = curve.along(points.gpus, lambda p: round(p.scaling_efficiency * 100, 2))
        series.append(dashed(f"{curve.label}, predicted", looks[curve.platform], data))
    return series


def _top(points: Points) -> int:
    """100 %, or more where something scales better than ideal (caches, noise)."""
    measured = [p.scaling_efficiency or 0.0 for p in points.measured.values()]
    predicted = [p.scaling_efficiency for c in points.curves for p in c.by_gpus.values()]
    largest = max((e for e in measured + predicted if finite(e) is not None), default=1.0)
    return 100 if largest <= 1.005 else int(-(-largest * 100 // 20) * 20)


def _described(points: Points, value: Callable[[MeasuredPoint | Prediction], str]) -> str:
    """What is measured, and the largest that is predicted; without one worker there is no efficiency."""
    sentences = [
        f"{points.here} with {gpus}: {value(p)} measured."
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    ]
    for curve in points.curves:
        gpus, last = max(curve.by_gpus.items())
        sentences.append(f"{curve.label} with {gpus}: {value(last)} predicted.")
    return " ".join(sentences)
