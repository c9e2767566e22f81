"""Scaling efficiency against the number of GPUs, measured and predicted."""

from gpuyard.report.figures.frame import Option, category_axis, finite, frame, value_axis
from gpuyard.report.figures.looks import NEUTRAL, Looks
from gpuyard.report.figures.points import Points, points_at
from gpuyard.report.figures.series import Value, dashed, dots
from gpuyard.study.result import WorkloadResult


def efficiency_option(workload: WorkloadResult, batch: int, looks: Looks) -> Option:
    """The chart for one workload at one per-GPU batch size."""
    points = points_at(workload, batch)
    series = _series(points, looks)
    option = frame(
        "Scaling efficiency",
        f"{workload.name}, {batch:,} samples a GPU and step",
        f"Scaling efficiency of {workload.name} in percent of ideal against the number of GPUs, at a "
        f"batch of {batch} a GPU. {_described(points)}",
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


def _series(points: Points, looks: Looks) -> list[Option]:
    series: list[Option] = []
    known = {
        gpus: _percent(p.scaling_efficiency)
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    }
    if known:
        at = [(str(gpus), percent) for gpus, percent in known.items()]
        series.append(dots(f"{points.here}, measured", looks[points.here], at))
    for curve in points.curves:
        data = curve.along(points.gpus, lambda p: round(p.scaling_efficiency * 100, 2))
        series.append(dashed(f"{curve.label}, predicted", looks[curve.platform], data))
    return series


def _percent(efficiency: float) -> Value:
    return finite(round(efficiency * 100, 2))


def _top(points: Points) -> int:
    """100 %, or more where something scales better than ideal (caches, noise)."""
    measured = [p.scaling_efficiency or 0.0 for p in points.measured.values()]
    predicted = [p.scaling_efficiency for c in points.curves for p in c.by_gpus.values()]
    largest = max((e for e in measured + predicted if finite(e) is not None), default=1.0)
    return 100 if largest <= 1.005 else int(-(-largest * 100 // 20) * 20)


def _described(points: Points) -> str:
    sentences = [
        f"{points.here} with {gpus}: {p.scaling_efficiency:.0%} measured."
        for gpus, p in points.measured.items()
        if p.scaling_efficiency is not None
    ]
    for curve in points.curves:
        gpus, last = max(curve.by_gpus.items())
        sentences.append(f"{curve.label} with {gpus}: {last.scaling_efficiency:.0%} predicted.")
    return " ".join(sentences)
