"""What all charts have in common: title, description for screen readers, tooltip, toolbox, grid.

Neutral colours (text, axes, background) are left to the page's light and dark themes.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

Option = dict[str, Any]  # what ECharts calls an option: plain JSON
TEXT_SIZE = 12
_LINE_SIGNS = {
    "solid": "path://M0,4h26v2h-26z",
    "dashed": "path://M0,4h7v2h-7z M10,4h7v2h-7z M20,4h6v2h-6z",
    "dotted": "path://M0,4h2v2h-2z M6,4h2v2h-2z M12,4h2v2h-2z M18,4h2v2h-2z M24,4h2v2h-2z",
}
# as paths they keep their shape; ECharts stretches its own to the width of a line
_POINT_SIGNS = {
    "triangle": "path://M0,10L5,0L10,10z",
    "diamond": "path://M5,0L10,5L5,10L0,5z",
    "rect": "path://M0,0h10v10h-10z",
}


def frame(title: str, subtitle: str, description: str, legend: Sequence[Option]) -> Option:
    """A chart without axes and series."""
    return {
        "title": {
            "text": title,
            "subtext": subtitle,
            "left": 0,
            "top": 0,
            "padding": 0,
            "itemGap": 6,
            "textStyle": {"fontSize": 16, "fontWeight": 600, "lineHeight": 22},
            "subtextStyle": {"fontSize": TEXT_SIZE, "lineHeight": 16},
        },
        "aria": {"enabled": True, "label": {"enabled": True, "description": description}},
        "animation": False,  # a page that is printed at once must be drawn at once
        "textStyle": {"fontSize": TEXT_SIZE},
        "tooltip": {"trigger": "axis", "confine": True},
        "toolbox": {
            "right": 4,
            "top": 2,
            "padding": 0,
            "itemSize": 14,
            "feature": {"saveAsImage": {"title": "Save as image", "name": title}},
        },
        "legend": {
            "data": _legend(legend),
            "left": 0,
            "bottom": 4,
            "padding": 0,
            "itemWidth": 26,
            "itemHeight": 10,
            "textStyle": {"fontSize": TEXT_SIZE},
        },
        "grid": {
            "left": 4,
            "right": 14,
            "top": 70,
            "bottom": 62,
            "outerBoundsMode": "same",
            "outerBoundsContain": "all",
        },
    }


def _legend(series: Sequence[Option]) -> list[Option]:
    """Each name once; lines without points get a plain line as their sign, points without a line their shape."""
    entries: dict[str, Option] = {}
    for one in series:
        if one["name"] in entries:
            continue
        entry: Option = {"name": one["name"]}
        if one.get("symbol") == "none":
            entry["icon"] = _LINE_SIGNS[one["lineStyle"]["type"]]
        elif one.get("type") == "scatter" and one.get("symbol") in _POINT_SIGNS:
            entry["icon"] = _POINT_SIGNS[one["symbol"]]
        entries[one["name"]] = entry
    return list(entries.values())


def category_axis(name: str, categories: Iterable[str]) -> Option:
    """An x axis of equal steps."""
    return x_axis(
        name,
        type="category",
        data=list(categories),
        axisTick={"alignWithLabel": True},
        axisPointer={"label": {"formatter": f"{{value}} {name}"}},
    )


def x_axis(name: str, **more: Any) -> Option:
    """An x axis with its name in the middle below it."""
    return {
        "type": "value",
        "name": name,
        "nameLocation": "middle",
        "nameGap": 30,
        "axisLabel": {"fontSize": TEXT_SIZE},
        **more,
    }


def months_axis(months: int) -> Option:
    return x_axis(
        "months",
        min=0,
        max=months,
        axisPointer={"label": {"formatter": "{value} months", "precision": 0}},
    )


def hours_axis(name: str) -> Option:
    """All hours of a year."""
    return x_axis(
        name,
        min=0,
        max=8766,
        axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True, "showMaxLabel": False},
        axisPointer={"label": {"precision": 0}},
    )


def bar_axis(labels: Iterable[str]) -> Option:
    """A y axis with a bar for each label, the first on top."""
    return {
        "type": "category",
        "inverse": True,
        "data": list(labels),
        "axisTick": {"show": False},
        "axisLabel": {
            "fontSize": TEXT_SIZE,
            "interval": 0,
            "width": 150,
            "overflow": "truncate",
            "lineHeight": 15,
        },
    }


def value_axis(name: str, **more: Any) -> Option:
    """A y axis with its name above it, where it takes no width."""
    return {
        "type": "value",
        "name": name,
        "nameLocation": "end",
        "nameGap": 12,
        "nameTextStyle": {"align": "left", "fontSize": TEXT_SIZE},
        "axisLabel": {"fontSize": TEXT_SIZE},
        "min": 0,
        **more,
    }


def log_ticks(values: Iterable[float]) -> list[float]:
    """Round numbers (1, 2, 5, 10, 20, …) from below the smallest to above the largest value."""
    positive = [v for v in values if math.isfinite(v) and v > 0]
    if not positive:
        return []
    lowest, highest = min(positive), max(positive)
    decades = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    first = max((i for i, tick in enumerate(ticks) if tick <= lowest), default=0)
    last = min((i for i, tick in enumerate(ticks) if tick >= highest), default=len(ticks) - 1)
    return ticks[first : max(last, first + 1) + 1]


def log_axis(values: Sequence[float], *, tight: bool = False) -> Option:
    """The part of an axis that makes it logarithmic with legible ticks; tight ends at the values."""
    ticks = log_ticks(values)
    wide = [tick for tick in ticks if f"{tick:e}"[0] == "1"] if len(ticks) > 8 else ticks
    return {
        "type": "log",
        "min": min(values) if tight else ticks[0],
        "max": max(values) if tight else ticks[-1],
        "axisLabel": {"fontSize": TEXT_SIZE, "customValues": wide},
        "axisTick": {"customValues": ticks},
    }


def finite(value: float | None) -> float | None:
    """The number, or None where there is none to draw."""
    return value if value is not None and math.isfinite(value) else None
