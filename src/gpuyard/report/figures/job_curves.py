"""Builds the charts of one job: its speed against what was expected, and its loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.report.figures.frame import ChartOptions, build_frame, build_value_axis, build_x_axis
from gpuyard.report.figures.marks import build_line
from gpuyard.units import format_number

if TYPE_CHECKING:
    from gpuyard.jobs.job import ExpectedSpeed
    from gpuyard.reporting.windows import StepWindow


def build_job_speed_chart(
    windows: "Sequence[StepWindow]", expected: "ExpectedSpeed | None"
) -> ChartOptions:
    """Build samples per second over minutes since the first report, with the expected interval."""
    times = _minutes(windows)
    points = [[t, round(w.samples_per_second, 3)] for t, w in zip(times, windows, strict=True)]
    series = [build_line("measured", COLORS[0], points)]
    description = f"The last of {len(points)} reports: {format_number(points[-1][1])} samples/s."
    if expected is not None:
        ends = (times[0], max(times[-1], times[0] + 1))
        for name, value in (
            ("expected", expected.samples_per_second),
            ("90% interval, low", expected.low),
            ("90% interval, high", expected.high),
        ):
            series.append(
                build_line(name, NEUTRAL, [[t, round(value, 3)] for t in ends], "dotted", 1.5)
            )
        description += f" Expected: {format_number(expected.samples_per_second)} samples/s."
    chart = build_frame("Speed", "samples per second, as the job reports it", description, series)
    chart["xAxis"] = build_x_axis("minutes since the first report")
    chart["yAxis"] = build_value_axis("samples/s")
    return chart | {"series": series}


def build_job_loss_chart(windows: "Sequence[StepWindow]") -> ChartOptions:
    """Build the loss over minutes since the first report."""
    pairs = zip(_minutes(windows), windows, strict=True)
    points = [[t, w.loss] for t, w in pairs if w.loss is not None]
    series = [build_line("loss", COLORS[1], points)]
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
