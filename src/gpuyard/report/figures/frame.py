"""The parts that all charts share: title, description for screen readers, tooltip, toolbox, grid, and axes.

The page's light and dark themes set the neutral colors of text, axes, and background.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

ChartOptions = dict[str, Any]
"""The options of an ECharts chart, axis, or series, as plain JSON."""
TEXT_SIZE = 12
_LINE_ICONS = {
    "solid": "path://M0,4h26v2h-26z",
    "dashed": "path://M0,4h7v2h-7z M10,4h7v2h-7z M20,4h6v2h-6z",
    "dotted": "path://M0,4h2v2h-2z M6,4h2v2h-2z M12,4h2v2h-2z M18,4h2v2h-2z M24,4h2v2h-2z",
}
# paths keep their shape, but ECharts stretches its built-in symbols to the width of a line
_POINT_ICONS = {
    "triangle": "path://M0,10L5,0L10,10z",
    "diamond": "path://M5,0L10,5L5,10L0,5z",
    "rect": "path://M0,0h10v10h-10z",
}


def build_frame(
    title: str, subtitle: str, description: str, legend: Sequence[ChartOptions]
) -> ChartOptions:
    """Build a chart without axes and series."""
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
        "animation": False,  # the page may be printed immediately
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
            "data": _build_legend(legend),
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


def _build_legend(series: Sequence[ChartOptions]) -> list[ChartOptions]:
    """List each name once. The icon of a line without points is a line; the icon of a scatter is its shape."""
    entries: dict[str, ChartOptions] = {}
    for item in series:
        if item["name"] in entries:
            continue
        entry: ChartOptions = {"name": item["name"]}
        if item.get("symbol") == "none":
            entry["icon"] = _LINE_ICONS[item["lineStyle"]["type"]]
        elif item.get("type") == "scatter" and item.get("symbol") in _POINT_ICONS:
            entry["icon"] = _POINT_ICONS[item["symbol"]]
        entries[item["name"]] = entry
    return list(entries.values())


def build_category_axis(name: str, categories: Iterable[str]) -> ChartOptions:
    """Build an x axis of categories at equal distances."""
    return build_x_axis(
        name,
        type="category",
        data=list(categories),
        axisTick={"alignWithLabel": True},
        axisPointer={"label": {"formatter": f"{{value}} {name}"}},
    )


def build_x_axis(name: str, **more: Any) -> ChartOptions:
    """Build an x axis with its name centered below it."""
    return {
        "type": "value",
        "name": name,
        "nameLocation": "middle",
        "nameGap": 30,
        "axisLabel": {"fontSize": TEXT_SIZE},
        **more,
    }


def build_months_axis(months: int) -> ChartOptions:
    return build_x_axis(
        "months",
        min=0,
        max=months,
        axisPointer={"label": {"formatter": "{value} months", "precision": 0}},
    )


def build_hours_axis(name: str) -> ChartOptions:
    """Build an x axis over all hours of a year."""
    return build_x_axis(
        name,
        min=0,
        max=8766,
        axisLabel={"fontSize": TEXT_SIZE, "hideOverlap": True, "showMaxLabel": False},
        axisPointer={"label": {"precision": 0}},
    )


def build_bar_axis(labels: Iterable[str]) -> ChartOptions:
    """Build a y axis with a bar for each label, the first on top."""
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


def build_value_axis(name: str, **more: Any) -> ChartOptions:
    """Build a y axis with its name above it, so that the name takes no width from the chart."""
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


def choose_log_ticks(values: Iterable[float]) -> list[float]:
    """Return round numbers (1, 2, 5, 10, 20, …) from below the smallest to above the largest value."""
    positive = [v for v in values if math.isfinite(v) and v > 0]
    if not positive:
        return []
    lowest, highest = min(positive), max(positive)
    decades = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    first = max((i for i, tick in enumerate(ticks) if tick <= lowest), default=0)
    last = min((i for i, tick in enumerate(ticks) if tick >= highest), default=len(ticks) - 1)
    return ticks[first : max(last, first + 1) + 1]


def build_log_axis(values: Sequence[float], *, tight: bool = False) -> ChartOptions:
    """Build the options that make an axis logarithmic with legible ticks; `tight` ends the axis at the values."""
    ticks = choose_log_ticks(values)
    labeled = [tick for tick in ticks if f"{tick:e}"[0] == "1"] if len(ticks) > 8 else ticks
    return {
        "type": "log",
        "min": min(values) if tight else ticks[0],
        "max": max(values) if tight else ticks[-1],
        "axisLabel": {"fontSize": TEXT_SIZE, "customValues": labeled},
        "axisTick": {"customValues": ticks},
    }


def finite_or_none(value: float | None) -> float | None:
    """Return the number, or None if it cannot be drawn."""
    return value if value is not None and math.isfinite(value) else None
