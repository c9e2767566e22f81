"""Builds the chart and the table of epoch time against the batch size per GPU.

In the chart, measured times are dots; fitted and predicted times are lines.
"""

import math
from dataclasses import dataclass
from html import escape

from gpuyard.report.figures.frame import (
    TEXT_SIZE,
    ChartOptions,
    build_frame,
    build_log_axis,
    build_value_axis,
    finite_or_none,
)
from gpuyard.report.figures.marks import (
    SeriesStyle,
    SeriesStyles,
    build_dashed_line,
    build_dots,
    get_local_platform,
)
from gpuyard.study.result import Basis, EpochTime, WorkloadResult
from gpuyard.units import format_seconds

Key = tuple[str, int, Basis]  # platform, GPUs, basis
_PLOT_HEIGHT = 195  # in CSS pixels
_LABEL_HEIGHT = 14
_LABEL_WIDTH = 0.2  # share of the plot's width, on a phone
_BASES: tuple[Basis, ...] = ("measured", "fitted", "predicted")


def build_epoch_time_chart(workload: WorkloadResult, styles: SeriesStyles) -> ChartOptions:
    """Build the chart of one workload for all batch sizes."""
    groups = _group_epoch_times(workload, styles)
    times = [epoch.seconds for group in groups.values() for epoch in group]
    batches = [float(epoch.batch_per_gpu) for group in groups.values() for epoch in group]
    factor, unit = _choose_unit(times)
    here = get_local_platform(workload)
    series = [
        _build_series(key, group, styles[key[0]], factor, here) for key, group in groups.items()
    ]
    option = build_frame(
        "Time per epoch",
        f"{workload.name} in {workload.precision}, {workload.samples_per_epoch:,} samples per epoch",
        f"Time for one pass over {workload.samples_per_epoch} samples of {workload.name} against the "
        f"batch size of each GPU. {_describe(groups)}",
        series,
    )
    option["tooltip"] = {"trigger": "item", "confine": True}
    option["grid"] |= {"right": 84}  # for the GPU counts at the ends of the lines
    option["xAxis"] = {
        "name": "batch size per GPU (log)",
        "nameLocation": "middle",
        "nameGap": 30,
        **(build_log_axis(batches, tight=len(set(batches)) > 1) if batches else {"type": "value"}),
    }
    option["yAxis"] = build_value_axis(f"{unit} (log)") | (
        build_log_axis([seconds / factor for seconds in times]) if times else {}
    )
    option["series"] = series
    if times:
        _spread_labels(series, option["xAxis"], option["yAxis"])
    return option


def _spread_labels(series: list[ChartOptions], x_axis: ChartOptions, y_axis: ChartOptions) -> None:
    """Move the labels at the ends of lines down until no two overlap.

    ECharts does this only for lines that end at the same x.
    """

    def share(axis: ChartOptions, value: float) -> float:
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
        near = [label_y for label_y, label_x in placed if abs(label_x - x) < _LABEL_WIDTH]
        new_y = max([y, *(label_y + _LABEL_HEIGHT for label_y in near)])
        placed.append((new_y, x))
        series[index]["endLabel"]["offset"] = [0, round(new_y - y, 1)]


def _group_epoch_times(
    workload: WorkloadResult, styles: SeriesStyles
) -> dict[Key, list[EpochTime]]:
    """Group the times by series, in the order of the other charts' legends."""
    platforms = list(styles)
    groups: dict[Key, list[EpochTime]] = {}
    ordered = sorted(
        workload.epoch_times,
        key=lambda e: (platforms.index(e.platform), _BASES.index(e.basis), e.gpus, e.batch_per_gpu),
    )
    for epoch in ordered:
        if finite_or_none(epoch.seconds) is not None and epoch.seconds > 0:
            groups.setdefault((epoch.platform, epoch.gpus, epoch.basis), []).append(epoch)
    return groups


def _build_series(
    key: Key, group: list[EpochTime], style: SeriesStyle, factor: float, here: str
) -> ChartOptions:
    platform, gpus, basis = key
    noun = "worker" if platform == here else "GPU"
    count = f"{gpus:,} {noun}" if gpus == 1 else f"{gpus:,} {noun}s"
    # all counts of a platform share one legend entry; the labels at the ends of the lines show the count
    name = f"{platform}, {basis}"
    data = [_build_point(epoch, f"{escape(platform)}, {count}", factor) for epoch in group]
    if basis == "measured":
        return build_dots(name, style, []) | {"data": data}
    line = build_dashed_line(name, style, []) | {"data": data, "symbolSize": 5}
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


def _build_point(epoch: EpochTime, label: str, factor: float) -> ChartOptions:
    tooltip = f"{label}, batch {epoch.batch_per_gpu} per GPU<br>"
    tooltip += f"{format_seconds(epoch.seconds)} per epoch, {epoch.basis}"
    return {
        "value": [epoch.batch_per_gpu, epoch.seconds / factor],
        "tooltip": {"formatter": tooltip},
    }


def _choose_unit(times: list[float]) -> tuple[float, str]:
    """Choose the largest unit in which the shortest epoch is at least 1."""
    shortest = min(times, default=1.0)
    for factor, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if shortest >= factor:
            return factor, f"{unit} per epoch"
    return 1.0, "seconds per epoch"


def _describe(groups: dict[Key, list[EpochTime]]) -> str:
    return " ".join(
        f"{platform} with {gpus}, {basis}: {format_seconds(group[0].seconds)} at a batch of "
        f"{group[0].batch_per_gpu}, {format_seconds(group[-1].seconds)} at {group[-1].batch_per_gpu}."
        for (platform, gpus, basis), group in groups.items()
    )


@dataclass(frozen=True)
class EpochColumn:
    """One configuration of the table."""

    platform: str
    gpus: int
    basis: Basis


@dataclass(frozen=True)
class EpochTable:
    """Seconds per epoch by batch size and configuration; None if there is no time."""

    columns: tuple[EpochColumn, ...]
    rows: tuple[tuple[int, tuple[float | None, ...]], ...]


def build_epoch_table(workload: WorkloadResult) -> EpochTable:
    """Arrange the epoch times with a row per batch size and a column per configuration."""
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
