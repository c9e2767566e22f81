"""The series of all charts. A platform has the same color and symbol in every chart of a report.

Measured values are solid dots with whiskers; predicted values are dashed lines with a band.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.report.figures.frame import ChartOptions, finite_or_none

if TYPE_CHECKING:  # cost charts do not need a study
    from gpuyard.study.result import StudyResult, WorkloadResult

SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "roundRect", "arrow")
Interval = tuple[float, float]
Value = float | None


@dataclass(frozen=True)
class SeriesStyle:
    """The color and symbol of one platform."""

    color: str
    symbol: str


SeriesStyles = Mapping[str, SeriesStyle]


def get_local_platform(workload: "WorkloadResult") -> str:
    """Return the name of this machine in the study."""
    names = (
        *(curve.platform for curve in workload.curves if curve.here),
        *(f.platform for f in workload.verdict.findings if f.basis == "measured"),
        *(epoch.platform for epoch in workload.epoch_times if epoch.basis == "measured"),
    )
    return names[0] if names else "this machine"


def assign_styles(result: "StudyResult") -> dict[str, SeriesStyle]:
    """Assign a style to every platform, this machine first. If colors repeat, the symbols still differ."""
    platforms: dict[str, None] = {}
    for workload in result.workloads:
        if workload.measured or any(curve.here for curve in workload.curves):
            platforms.setdefault(get_local_platform(workload))
    for workload in result.workloads:
        for curve in workload.curves:
            platforms.setdefault(curve.platform)
        for epoch in workload.epoch_times:
            platforms.setdefault(epoch.platform)
    return {
        platform: SeriesStyle(COLORS[i % len(COLORS)], SYMBOLS[i % len(SYMBOLS)])
        for i, platform in enumerate(platforms)
    }


def build_dots(
    name: str,
    style: SeriesStyle,
    points: Sequence[tuple[str, Value]],
    doubtful: Collection[str] = (),
) -> ChartOptions:
    """Build measured points as separate dots; doubtful points are pale."""
    return {
        "name": name,
        "type": "scatter",
        "data": [
            {"value": [x, value], "itemStyle": {"opacity": 0.3}} if x in doubtful else [x, value]
            for x, value in points
        ],
        "symbol": style.symbol,
        "symbolSize": 10,
        "itemStyle": {"color": style.color, "opacity": 1},
        "z": 5,
    }


def build_whiskers(style: SeriesStyle, intervals: Mapping[str, Interval]) -> ChartOptions:
    """Build confidence intervals as vertical lines with caps, for the `markLine` of a series."""
    return {
        "silent": True,
        "symbol": ["rect", "rect"],
        "symbolSize": [12, 2],
        "symbolRotate": 0,
        "label": {"show": False},
        "lineStyle": {"type": "solid", "width": 2, "color": style.color},
        "data": [
            [{"coord": [x, low]}, {"coord": [x, high]}]
            for x, (low, high) in intervals.items()
            if finite_or_none(low) is not None and finite_or_none(high) is not None
        ],
    }


def build_dashed_line(name: str, style: SeriesStyle, data: Sequence[Value]) -> ChartOptions:
    """Build a predicted curve."""
    return {
        "name": name,
        "type": "line",
        "data": list(data),
        "symbol": f"empty{style.symbol[0].upper()}{style.symbol[1:]}",
        "symbolSize": 7,
        "showAllSymbol": True,
        "connectNulls": True,
        "lineStyle": {"type": "dashed", "width": 2, "color": style.color},
        "itemStyle": {"color": style.color},
        "z": 4,
    }


def build_band(
    name: str, style: SeriesStyle, intervals: Mapping[str, Interval] | Mapping[float, Interval]
) -> list[ChartOptions]:
    """Build the interval around a curve: an invisible lower line, and an area stacked on it.

    Both have the name of the curve, so that the legend toggles all three. Points without an interval are left
    out, because an area that is stacked on an empty value would start at the axis.
    """
    finite = {
        x: (low, high)
        for x, (low, high) in intervals.items()
        if finite_or_none(low) is not None and finite_or_none(high) is not None
    }
    invisible: ChartOptions = {
        "name": name,
        "type": "line",
        "stack": f"interval of {name}",
        "symbol": "none",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "itemStyle": {"color": style.color},
        "tooltip": {"show": False},
        "z": 1,
    }
    area = {"color": style.color, "opacity": 0.16}
    lower = [[x, low] for x, (low, _) in finite.items()]
    height = [[x, high - low] for x, (low, high) in finite.items()]
    return [invisible | {"data": lower}, invisible | {"data": height, "areaStyle": area}]


def build_line(
    name: str, color: str, data: Sequence[Any], dash: str = "solid", width: float = 2.5
) -> ChartOptions:
    """Build a line without points, as in the cost charts."""
    return {
        "name": name,
        "type": "line",
        "data": list(data),
        "symbol": "none",
        "lineStyle": {"type": dash, "width": width, "color": color},
        "itemStyle": {"color": color},
    }


def build_dotted_line(name: str, data: Sequence[Value], color: str = NEUTRAL) -> ChartOptions:
    """Build a thin dotted line that only guides the eye."""
    return build_line(name, color, data, "dotted", 1.5) | {
        "silent": True,
        "connectNulls": True,
        "tooltip": {"show": False},
        "z": 2,
    }
