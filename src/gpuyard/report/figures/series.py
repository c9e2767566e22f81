"""The marks: measured is a solid dot with a whisker, predicted a dashed line with a band."""

from collections.abc import Mapping, Sequence

from gpuyard.report.figures.frame import Option, finite
from gpuyard.report.figures.looks import NEUTRAL, Look

Interval = tuple[float, float]
Value = float | None


def dots(name: str, look: Look, points: Sequence[tuple[str, Value]]) -> Option:
    """Measured points, filled and not joined."""
    return {
        "name": name,
        "type": "scatter",
        "data": [list(point) for point in points],
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


def band(name: str, look: Look, low: Sequence[Value], high: Sequence[Value]) -> list[Option]:
    """An interval around a curve: an invisible line with the rest stacked on it.

    Both carry the name of the curve, so that the legend switches all three.
    """
    height = [
        None if bottom is None or top is None else top - bottom
        for bottom, top in zip(low, high, strict=True)
    ]
    unseen: Option = {
        "name": name,
        "type": "line",
        "stack": f"interval of {name}",
        "symbol": "none",
        "silent": True,
        "connectNulls": True,
        "lineStyle": {"opacity": 0},
        "itemStyle": {"color": look.colour},
        "tooltip": {"show": False},
        "z": 1,
    }
    area = {"color": look.colour, "opacity": 0.16}
    return [unseen | {"data": list(low)}, unseen | {"data": height, "areaStyle": area}]


def dotted(name: str, data: Sequence[Value], colour: str = NEUTRAL) -> Option:
    """A line that only guides the eye."""
    return {
        "name": name,
        "type": "line",
        "data": list(data),
        "symbol": "none",
        "silent": True,
        "connectNulls": True,
        "lineStyle": {"type": "dotted", "width": 1.5, "color": colour},
        "itemStyle": {"color": colour},
        "tooltip": {"show": False},
        "z": 2,
    }
