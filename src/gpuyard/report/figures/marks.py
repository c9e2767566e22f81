"""How everything is drawn: one colour and one symbol a platform, the same in every chart of a report; measured is
a solid dot with a whisker, predicted a dashed line with a band."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.draw.palette import COLOURS, NEUTRAL
from gpuyard.report.figures.frame import Option, finite

if TYPE_CHECKING:  # charts of cost need no study
    from gpuyard.study.result import StudyResult, WorkloadResult

SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "roundRect", "arrow")
Interval = tuple[float, float]
Value = float | None


@dataclass(frozen=True)
class Look:
    """How everything of one platform is drawn."""

    colour: str
    symbol: str


Looks = Mapping[str, Look]


def here_platform(workload: "WorkloadResult") -> str:
    """What this machine is called in the study."""
    named = (
        *(curve.platform for curve in workload.curves if curve.here),
        *(f.platform for f in workload.verdict.findings if f.basis == "measured"),
        *(epoch.platform for epoch in workload.epoch_times if epoch.basis == "measured"),
    )
    return named[0] if named else "this machine"


def looks_of(result: "StudyResult") -> dict[str, Look]:
    """A look for every platform, this machine first; symbols go on changing where colours repeat."""
    platforms: dict[str, None] = {}
    for workload in result.workloads:
        if workload.measured or any(curve.here for curve in workload.curves):
            platforms.setdefault(here_platform(workload))
    for workload in result.workloads:
        for curve in workload.curves:
            platforms.setdefault(curve.platform)
        for epoch in workload.epoch_times:
            platforms.setdefault(epoch.platform)
    return {
        platform: Look(COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)])
        for i, platform in enumerate(platforms)
    }


def dots(
    name: str, look: Look, points: Sequence[tuple[str, Value]], doubtful: Collection[str] = ()
) -> Option:
    """Measured points, filled and not joined; those that are doubtful are pale."""
    return {
        "name": name,
        "type": "scatter",
        "data": [
            {"value": [at, value], "itemStyle": {"opacity": 0.3}} if at in doubtful else [at, value]
            for at, value in points
        ],
        "symbol": look.symbol,
        "symbolSize": 10,
        "itemStyle": {"color": look.colour, "opacity": 1},
        "z": 5,
    }


def whiskers(look: Look, intervals: Mapping[str, Interval]) -> Option:
    """Confidence intervals as upright lines with caps, to be hung on a series."""
    return {
        "silent": True,
        "symbol": ["rect", "rect"],
        "symbolSize": [12, 2],
        "symbolRotate": 0,
        "label": {"show": False},
        "lineStyle": {"type": "solid", "width": 2, "color": look.colour},
        "data": [
            [{"coord": [at, low]}, {"coord": [at, high]}]
            for at, (low, high) in intervals.items()
            if finite(low) is not None and finite(high) is not None
        ],
    }


def dashed(name: str, look: Look, data: Sequence[Value]) -> Option:
    """A predicted curve."""
    return {
        "name": name,
        "type": "line",
        "data": list(data),
        "symbol": f"empty{look.symbol[0].upper()}{look.symbol[1:]}",
        "symbolSize": 7,
        "showAllSymbol": True,
        "connectNulls": True,
        "lineStyle": {"type": "dashed", "width": 2, "color": look.colour},
        "itemStyle": {"color": look.colour},
        "z": 4,
    }


def band(name: str, look: Look, intervals: Mapping[str, Interval]) -> list[Option]:
    """An interval around a curve: an invisible line with the rest stacked on it.

    Both carry the name of the curve, so that the legend switches all three. They have points only where
    there is an interval: what is stacked on an empty value starts at the axis.
    """
    known = {
        at: (low, high)
        for at, (low, high) in intervals.items()
        if finite(low) is not None and finite(high) is not None
    }
    unseen: Option = {
        "name": name,
        "type": "line",
        "stack": f"interval of {name}",
        "symbol": "none",
        "silent": True,
        "lineStyle": {"opacity": 0},
        "itemStyle": {"color": look.colour},
        "tooltip": {"show": False},
        "z": 1,
    }
    area = {"color": look.colour, "opacity": 0.16}
    lower = [[at, low] for at, (low, _) in known.items()]
    height = [[at, high - low] for at, (low, high) in known.items()]
    return [unseen | {"data": lower}, unseen | {"data": height, "areaStyle": area}]


def plain_line(
    name: str, colour: str, data: Sequence[Any], dash: str = "solid", width: float = 2.5
) -> Option:
    """A line without points, as the charts of cost draw them."""
    return {
        "name": name,
        "type": "line",
        "data": list(data),
        "symbol": "none",
        "lineStyle": {"type": dash, "width": width, "color": colour},
        "itemStyle": {"color": colour},
    }


def dotted(name: str, data: Sequence[Value], colour: str = NEUTRAL) -> Option:
    """A line that only guides the eye."""
    return plain_line(name, colour, data, "dotted", 1.5) | {
        "silent": True,
        "connectNulls": True,
        "tooltip": {"show": False},
        "z": 2,
    }
