"""Time an epoch against the per-GPU batch size, as a chart (dots measured, lines fitted or predicted) and as a table."""

import math
from dataclasses import dataclass
from html import escape

from gpuyard.report.figures.frame import TEXT_SIZE, Option, finite, frame, log_axis, value_axis
from gpuyard.report.figures.marks import Look, Looks, dashed, dots, here_platform
from gpuyard.study.result import Basis, EpochTime, WorkloadResult
from gpuyard.units import format_seconds

Key = tuple[str, int, Basis]  # platform, GPUs, basis
_PLOT_HEIGHT = 195  # of the plot in a chart, in CSS pixels
_LABEL_HEIGHT = 14
_LABEL_WIDTH = 0.2  # of the plot, on a phone
_BASES: tuple[Basis, ...] = ("measured", "fitted", "predicted")


def epoch_time_option(workload: WorkloadResult, looks: Looks) -> Option:
    """The chart for one workload, all batch sizes."""
    groups = _groups(workload, looks)
    times = [epoch.seconds for group in groups.values() for epoch in group]
    batches = [float(epoch.batch_per_gpu) for group in groups.values() for epoch in group]
    factor, unit = _unit(times)
    here = here_platform(workload)
    series = [_one(key, group, looks[key[0]], factor, here) for key, group in groups.items()]
    option = frame(
        "Time per epoch",
        f"{workload.name} in {workload.precision}, {workload.samples_per_epoch:,} samples per epoch",
        f"Time for one pass over {workload.samples_per_epoch} samples of {workload.name} against the "
        f"batch size of each GPU. {_described(groups)}",
        series,
    )
    option["tooltip"] = {"trigger": "item", "confine": True}
    option["grid"] |= {"right": 84}  # for the numbers of GPUs at the ends of the lines
    option["xAxis"] = {
        "name": "samples per GPU and step (log)",
        "nameLocation": "middle",
        "nameGap": 30,
        **(log_axis(batches, tight=len(set(batches)) > 1) if batches else {"type": "value"}),
    }
    option["yAxis"] = value_axis(f"{unit} (log)") | (
        log_axis([seconds / factor for seconds in times]) if times else {}
    )
    option["series"] = series
    if times:
        _set_apart(series, option["xAxis"], option["yAxis"])
    return option


def _set_apart(series: list[Option], x_axis: Option, y_axis: Option) -> None:
    """Move labels at the ends of lines up or down until none stands on another.

    ECharts moves labels apart only where their lines end at the same x.
    """

    def share(axis: Option, value: float) -> float:
        if axis["max"] == axis["min"]:
            return 0.0
        return math.log(value / axis["min"]) / math.log(axis["max"] / axis["min"])

    ends = sorted(
        (
            -_PLOT_HEIGHT * share(y_axis, line["data"][-1]["value"][1]),
            share(x_axis, line["data"][-1]["value"][0]),
            index,
        )
        for index, line in enumerate(series)
        if "endLabel" in line
    )
    placed: list[tuple[float, float]] = []
    for y, x, index in ends:
        near = [there for there, at in placed if abs(at - x) < _LABEL_WIDTH]
        moved = max([y, *(there + _LABEL_HEIGHT for there in near)])
        placed.append((moved, x))
        series[index]["endLabel"]["offset"] = [0, round(moved - y, 1)]


def _groups(workload: WorkloadResult, looks: Looks) -> dict[Key, list[EpochTime]]:
    """By line or set of dots, in the order of the other charts' legends."""
    platforms = list(looks)
    groups: dict[Key, list[EpochTime]] = {}
    ordered = sorted(
        workload.epoch_times,
        key=lambda e: (platforms.index(e.platform), _BASES.index(e.basis), e.gpus, e.batch_per_gpu),
    )
    for epoch in ordered:
        if finite(epoch.seconds) is not None and epoch.seconds > 0:
            groups.setdefault((epoch.platform, epoch.gpus, epoch.basis), []).append(epoch)
    return groups


def _one(key: Key, group: list[EpochTime], look: Look, factor: float, here: str) -> Option:
    platform, gpus, basis = key
    noun = "worker" if platform == here else "GPU"
    count = f"{gpus:,} {noun}" if gpus == 1 else f"{gpus:,} {noun}s"
    # one legend entry for all counts of a platform: they are told apart at the end of the line
    name = f"{platform}, {basis}"
    data = [_point(epoch, f"{escape(platform)}, {count}", factor) for epoch in group]
    if basis == "measured":
        return dots(name, look, []) | {"data": data}
    line = dashed(name, look, []) | {"data": data, "symbolSize": 5}
    line["endLabel"] = {
        "show": True,
        "formatter": count,
        "fontSize": TEXT_SIZE,
        "distance": 6,
    }
    if basis == "fitted":
        line["lineStyle"] |= {"type": "solid"}
        line["symbolSize"] = 3
    return line


def _point(epoch: EpochTime, where: str, factor: float) -> Option:
    tooltip = f"{where}, {epoch.batch_per_gpu} samples per GPU and step<br>"
    tooltip += f"{format_seconds(epoch.seconds)} per epoch, {epoch.basis}"
    return {
        "value": [epoch.batch_per_gpu, epoch.seconds / factor],
        "tooltip": {"formatter": tooltip},
    }


def _unit(times: list[float]) -> tuple[float, str]:
    """The largest unit in which the shortest epoch is still about 1."""
    shortest = min(times, default=1.0)
    for factor, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if shortest >= factor:
            return factor, f"{unit} per epoch"
    return 1.0, "seconds per epoch"


def _described(groups: dict[Key, list[EpochTime]]) -> str:
    return " ".join(
        f"{platform} with {gpus}, {basis}: {format_seconds(group[0].seconds)} at a batch of "
        f"{group[0].batch_per_gpu}, {format_seconds(group[-1].seconds)} at {group[-1].batch_per_gpu}."
        for (platform, gpus, basis), group in groups.items()
    )


@dataclass(frozen=True)
class EpochColumn:
    """One configuration."""

    platform: str
    gpus: int
    basis: Basis


@dataclass(frozen=True)
class EpochTable:
    """Seconds by batch size, None where there are none."""

    columns: tuple[EpochColumn, ...]
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]


def epoch_table(workload: WorkloadResult) -> EpochTable:
    """Turn the list of epoch times on its side."""
    cells = {
        (e.batch_per_gpu, EpochColumn(e.platform, e.gpus, e.basis)): e.seconds
        for e in workload.epoch_times
    }
    columns = tuple(dict.fromkeys(column for _, column in cells))
    return EpochTable(
        columns,
        tuple(
            (batch, tuple(cells.get((batch, column)) for column in columns))
            for batch in sorted({batch for batch, _ in cells})
        ),
    )
