"""Builds the charts of one job: its speed against what was expected, its loss, and the state of its GPUs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.report.figures.frame import ChartOptions, build_frame, build_value_axis, build_x_axis
from gpuyard.report.figures.marks import SeriesStyle, build_band, build_line
from gpuyard.units import format_number

if TYPE_CHECKING:
    from gpuyard.jobs.gpu_samples import GpuSample
    from gpuyard.jobs.job import ExpectedSpeed
    from gpuyard.reporting.windows import StepWindow

_MAX_POINTS = 400  # of one line


def build_job_speed_chart(
    windows: "Sequence[StepWindow]", expected: "ExpectedSpeed | None"
) -> ChartOptions:
    """Build samples per second over minutes since the first report, with the expected interval."""
    times = _minutes(windows)
    points = [[t, round(w.samples_per_second, 3)] for t, w in zip(times, windows, strict=True)]
    series = [build_line("measured", COLORS[0], _thin(points))]
    description = f"The last of {len(points)} reports: {format_number(points[-1][1])} samples/s."
    if expected is not None:
        name = "expected, with its 90% interval"
        ends = (times[0], max(times[-1], times[0] + 1))
        low, high = round(expected.low, 3), round(expected.high, 3)
        middle = [[t, round(expected.samples_per_second, 3)] for t in ends]
        series.append(build_line(name, NEUTRAL, middle, "dotted", 1.5))
        series += build_band(name, SeriesStyle(NEUTRAL, ""), dict.fromkeys(ends, (low, high)))
        description += f" Expected: {format_number(expected.samples_per_second)} samples/s."
    chart = build_frame("Speed", "samples per second, as the job reports it", description, series)
    chart["xAxis"] = build_x_axis("minutes since the first report")
    chart["yAxis"] = build_value_axis("samples/s")
    return chart | {"series": series}


def build_job_loss_chart(windows: "Sequence[StepWindow]") -> ChartOptions:
    """Build the loss over minutes since the first report."""
    pairs = zip(_minutes(windows), windows, strict=True)
    points = [[t, w.loss] for t, w in pairs if w.loss is not None]
    series = [build_line("loss", COLORS[1], _thin(points))]
    chart = build_frame(
        "Loss", "mean of each report", f"{len(points)} reports of the loss.", series
    )
    chart["xAxis"] = build_x_axis("minutes since the first report")
    chart["yAxis"] = build_value_axis("loss", scale=True)
    return chart | {"series": series}


def _minutes(windows: "Sequence[StepWindow]") -> list[float]:
    """Return the end of each window; without clock times, the sum of all windows before."""
    first = windows[0].at
    minutes, total = [], 0.0
    for window in windows:
        total += window.seconds
        since = total if first is None or window.at is None else window.at - first
        minutes.append(round(since / 60, 3))
    return minutes


def build_gpu_charts(samples: "Sequence[GpuSample]") -> dict[str, ChartOptions]:
    """Build the use, memory, and power of a job's GPUs over minutes, by the name of what was read."""
    first = samples[0].at
    minutes = [round((sample.at - first) / 60, 3) for sample in samples]
    charts = {}
    for name, title, unit, scale in (
        ("utilization", "GPU use", "%", 100.0),
        ("memory_used_bytes", "GPU memory", "GB", 1e-9),
        ("power_watts", "GPU power", "W", 1.0),
    ):
        by_gpu: dict[str, list[list[float]]] = {}
        for minute, sample in zip(minutes, samples, strict=True):
            value = getattr(sample, name)
            if value is not None:
                point = [minute, round(value * scale, 2)]
                by_gpu.setdefault(sample.gpu, []).append(point)
        if by_gpu:
            charts[name] = _build_gpu_chart(title, unit, by_gpu)
    return charts


def _build_gpu_chart(
    title: str, unit: str, by_gpu: Mapping[str, list[list[float]]]
) -> ChartOptions:
    if len(by_gpu) <= len(COLORS):
        series = [
            build_line(f"GPU {gpu}", color, _thin(points), width=1.8)
            for color, (gpu, points) in zip(COLORS, by_gpu.items(), strict=False)
        ]
    else:
        series = _build_range(by_gpu)
    values = [value for points in by_gpu.values() for _, value in points]
    mean = sum(values) / len(values)
    description = f"{title} of {len(by_gpu)} GPUs, {format_number(mean)} {unit} on average."
    subtitle = f"{unit}, {format_number(mean)} on average"
    chart = build_frame(title, subtitle, description, series)
    chart["xAxis"] = build_x_axis("minutes since the start")
    chart["yAxis"] = build_value_axis(unit, **({"max": 100} if unit == "%" else {}))
    return chart | {"series": series}


def _build_range(by_gpu: Mapping[str, list[list[float]]]) -> list[ChartOptions]:
    """Build the mean of many GPUs with the lowest and the highest one."""
    by_minute: dict[float, list[float]] = {}
    for points in by_gpu.values():
        for minute, value in points:
            by_minute.setdefault(minute, []).append(value)
    rows = sorted(by_minute.items())
    means = [[minute, round(sum(values) / len(values), 2)] for minute, values in rows]
    return [
        build_line(f"mean of {len(by_gpu)} GPUs", COLORS[0], _thin(means)),
        build_line("lowest", NEUTRAL, _thin([[m, min(v)] for m, v in rows]), "dotted", 1.5),
        build_line("highest", NEUTRAL, _thin([[m, max(v)] for m, v in rows]), "dashed", 1.5),
    ]


def _thin(points: list[list[float]]) -> list[list[float]]:
    """Return evenly chosen points, as many as a chart can show, with the last one."""
    stride = -(-len(points) // _MAX_POINTS)
    return [*points[: -1 if stride > 1 else None : stride], *(points[-1:] if stride > 1 else ())]
