"""Builds the charts of simulated jobs by policy: completion times, and GPUs in use over time."""

from collections.abc import Sequence

import numpy as np

from gpuyard.draw.palette import COLORS
from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.policies import POLICIES
from gpuyard.report.figures.frame import (
    ChartOptions,
    build_frame,
    build_log_axis,
    build_value_axis,
    build_x_axis,
)
from gpuyard.report.figures.marks import build_line
from gpuyard.units import format_seconds

_DASHES = ("solid", "dashed", "dotted")
_POINTS = 200
_HOUR = 3600.0


def build_completion_chart(outcomes: Sequence[SimulationOutcome]) -> ChartOptions:
    """Build the distribution of completion times: the share of jobs completed within a time."""
    shares = np.linspace(0, 100, _POINTS + 1)
    series, hours = [], []
    for index, outcome in zip(_number_lines(outcomes), outcomes, strict=True):
        times = np.percentile(outcome.completion_seconds, shares) / _HOUR
        hours += [float(times[0]), float(times[-1])]
        points = [
            [round(float(t), 5), round(float(s), 2)] for t, s in zip(times, shares, strict=True)
        ]
        series.append(_build_policy_line(outcome.policy, index, points))
    option = build_frame(
        "Completion times",
        "share of jobs completed within a time after submission",
        "Distribution of completion times. "
        + " ".join(
            f"{o.policy}: half of the jobs within {format_seconds(float(np.median(o.completion_seconds)))}."
            for o in outcomes
        ),
        series,
    )
    option["xAxis"] = build_x_axis("hours") | (build_log_axis(hours) if min(hours) > 0 else {})
    option["yAxis"] = build_value_axis("% of jobs", max=100)
    option["series"] = series
    return option


def build_use_chart(outcomes: Sequence[SimulationOutcome]) -> ChartOptions:
    """Build the chart of GPUs in use over time, averaged over equal periods."""
    series = []
    end = max(float(o.ended_s.max()) for o in outcomes)
    begin = min(float(o.submitted_s.min()) for o in outcomes)
    edges = np.linspace(begin, max(end, begin + 1e-6), _POINTS + 1)
    for index, outcome in zip(_number_lines(outcomes), outcomes, strict=True):
        used = compute_mean_use(outcome, edges)
        points = [
            [round((float(t) - begin) / _HOUR, 4), round(float(gpus), 2)]
            for t, gpus in zip(edges, [*used, used[-1]], strict=True)
        ]
        series.append(_build_policy_line(outcome.policy, index, points) | {"step": "end"})
    gpus = outcomes[0].pool.gpus
    option = build_frame(
        "GPUs in use",
        f"of {gpus:,}, held by jobs",
        "GPUs in use over time. "
        + " ".join(f"{o.policy}: {o.utilization:.0%} of all GPU time." for o in outcomes),
        series,
    )
    option["xAxis"] = build_x_axis("hours", min=0)
    option["yAxis"] = build_value_axis("GPUs", max=gpus)
    option["series"] = series
    return option


def compute_mean_use(
    outcome: SimulationOutcome, edges: "np.typing.NDArray[np.float64]"
) -> "np.typing.NDArray[np.float64]":
    """Compute the mean GPUs in use between consecutive edges, from the GPU-seconds used before each edge."""
    begins = np.array([interval.begin_s for interval in outcome.intervals])
    ends = np.array([interval.end_s for interval in outcome.intervals])
    gpus = np.array([interval.gpus for interval in outcome.intervals], dtype=np.float64)
    used = _sum_ramps(edges, begins, gpus) - _sum_ramps(edges, ends, gpus)
    return np.diff(used) / np.diff(edges)


def _sum_ramps(
    edges: "np.typing.NDArray[np.float64]",
    times: "np.typing.NDArray[np.float64]",
    gpus: "np.typing.NDArray[np.float64]",
) -> "np.typing.NDArray[np.float64]":
    """Return Σ gpus × max(edge − time, 0) for each edge."""
    order = np.argsort(times)
    count = np.searchsorted(times[order], edges, side="right")
    total = np.concatenate(([0.0], np.cumsum(gpus[order])))
    moment = np.concatenate(([0.0], np.cumsum(gpus[order] * times[order])))
    ramp: np.typing.NDArray[np.float64] = total[count] * edges - moment[count]
    return ramp


def _number_lines(outcomes: Sequence[SimulationOutcome]) -> list[int]:
    """Return the number of each line's style: a policy has the same one whichever others it is compared with."""
    names = [outcome.policy for outcome in outcomes]
    if len(set(names)) < len(names) or not set(names) <= POLICIES.keys():
        return list(range(len(names)))
    return [list(POLICIES).index(name) for name in names]


def _build_policy_line(name: str, index: int, points: Sequence[Sequence[float]]) -> ChartOptions:
    dash = _DASHES[index // len(COLORS) % len(_DASHES)]
    return build_line(name, COLORS[index % len(COLORS)], points, dash)
