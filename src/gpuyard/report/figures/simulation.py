"""Simulated jobs: how many have ended after how long, and how many GPUs are in use when, by policy."""

from collections.abc import Sequence

import numpy as np

from gpuyard.draw.palette import COLOURS
from gpuyard.jobs.simulate.outcome import SimulationOutcome
from gpuyard.report.figures.frame import Option, frame, log_axis, value_axis, x_axis
from gpuyard.report.figures.marks import plain_line
from gpuyard.units import format_seconds

_DASHES = ("solid", "dashed", "dotted")
_POINTS = 200
_HOUR = 3600.0


def completion_option(outcomes: Sequence[SimulationOutcome]) -> Option:
    """The distribution of completion times: the share of jobs that ended within a time."""
    shares = np.linspace(0, 100, _POINTS + 1)
    series, hours = [], []
    for at, outcome in enumerate(outcomes):
        times = np.percentile(outcome.completion_seconds, shares) / _HOUR
        hours += [float(times[0]), float(times[-1])]
        points = [
            [round(float(t), 5), round(float(s), 2)] for t, s in zip(times, shares, strict=True)
        ]
        series.append(_line(outcome.policy, at, points))
    option = frame(
        "Completion times",
        "share of jobs that ended within that time of their submission",
        "Distribution of completion times. "
        + " ".join(
            f"{o.policy}: half of the jobs within {format_seconds(float(np.median(o.completion_seconds)))}."
            for o in outcomes
        ),
        series,
    )
    option["xAxis"] = x_axis("hours") | (log_axis(hours) if min(hours) > 0 else {})
    option["yAxis"] = value_axis("% of jobs", max=100)
    option["series"] = series
    return option


def use_option(outcomes: Sequence[SimulationOutcome]) -> Option:
    """GPUs in use over time, in means of equal periods."""
    series = []
    end = max(float(o.ended_s.max()) for o in outcomes)
    begin = min(float(o.submitted_s.min()) for o in outcomes)
    edges = np.linspace(begin, max(end, begin + 1e-6), _POINTS + 1)
    for at, outcome in enumerate(outcomes):
        used = mean_use(outcome, edges)
        points = [
            [round((float(t) - begin) / _HOUR, 4), round(float(gpus), 2)]
            for t, gpus in zip(edges, [*used, used[-1]], strict=True)
        ]
        series.append(_line(outcome.policy, at, points) | {"step": "end"})
    gpus = outcomes[0].pool.gpus
    option = frame(
        "GPUs in use",
        f"of {gpus:,}, held by jobs",
        "GPUs in use over time. "
        + " ".join(f"{o.policy}: {o.utilisation:.0%} of all GPU time." for o in outcomes),
        series,
    )
    option["xAxis"] = x_axis("hours", min=0)
    option["yAxis"] = value_axis("GPUs", max=gpus)
    option["series"] = series
    return option


def mean_use(
    outcome: SimulationOutcome, edges: "np.typing.NDArray[np.float64]"
) -> "np.typing.NDArray[np.float64]":
    """GPUs held between each two edges: the difference of all GPU-seconds used before them."""
    begins = np.array([stay.begin_s for stay in outcome.stays])
    ends = np.array([stay.end_s for stay in outcome.stays])
    gpus = np.array([stay.gpus for stay in outcome.stays], dtype=np.float64)
    used = _ramp(edges, begins, gpus) - _ramp(edges, ends, gpus)
    return np.diff(used) / np.diff(edges)


def _ramp(
    edges: "np.typing.NDArray[np.float64]",
    times: "np.typing.NDArray[np.float64]",
    gpus: "np.typing.NDArray[np.float64]",
) -> "np.typing.NDArray[np.float64]":
    """Σ gpus × max(edge − time, 0) for each edge."""
    order = np.argsort(times)
    count = np.searchsorted(times[order], edges, side="right")
    total = np.concatenate(([0.0], np.cumsum(gpus[order])))
    moment = np.concatenate(([0.0], np.cumsum(gpus[order] * times[order])))
    ramp: np.typing.NDArray[np.float64] = total[count] * edges - moment[count]
    return ramp


def _line(name: str, at: int, points: Sequence[Sequence[float]]) -> Option:
    dash = _DASHES[at // len(COLOURS) % len(_DASHES)]
    return plain_line(name, COLOURS[at % len(COLOURS)], points, dash)
