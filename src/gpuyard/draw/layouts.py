"""Draws the layouts of a large model that no other beats in both speed and memory as a standalone SVG."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, element, format_points, render_chart, text_element
from gpuyard.draw.palette import COLORS

_LEFT, _TOP, _RIGHT, _FOOT = 76.0, 92.0, 345.0, 58.0
_WIDTH, _HEIGHT = 470.0, 300.0
_STEPS = 4
_MIN_LABEL_GAP = 17.0


@dataclass(frozen=True)
class LayoutPoint:
    """One layout: its memory and speed per GPU, and a label."""

    memory_bytes: float
    tokens_per_second: float
    label: str
    fits: bool


def draw_layouts_svg(
    points: Sequence[LayoutPoint], limit_bytes: float, title: str, subtitle: str
) -> str:
    """Draw speed over memory; layouts right of the dashed line don't fit."""
    most = 1.08 * max(limit_bytes, *(point.memory_bytes for point in points))
    speeds = [point.tokens_per_second for point in points]
    slowest, fastest = 0.9 * min(speeds), 1.02 * max(speeds)

    def x(memory: float) -> float:
        return _LEFT + _WIDTH * memory / most

    def y(speed: float) -> float:
        return _TOP + _HEIGHT * (fastest - speed) / (fastest - slowest)

    bottom = _TOP + _HEIGHT
    parts = [text_element("text", subtitle, class_="soft", x=CHART_EDGE, y=43)]
    for step in range(_STEPS + 1):
        speed = slowest + (fastest - slowest) * step / _STEPS
        memory = most * step / _STEPS
        level, at = y(speed), x(memory)
        parts.append(
            element("line", class_="grid", x1=_LEFT, x2=_LEFT + _WIDTH, y1=level, y2=level)
        )
        parts.append(_label(f"{speed:,.0f}", _LEFT - 8, level + 4, "end"))
        parts.append(_label(f"{memory / 1e9:,.0f}", at, bottom + 18, "middle"))
    parts.append(_label("GB per GPU", _LEFT + _WIDTH / 2, bottom + 40, "middle"))
    parts.append(_label("tokens/s per GPU", CHART_EDGE, _TOP - 22, "start"))
    edge = x(limit_bytes)
    parts.append(
        element("line", x1=edge, x2=edge, y1=_TOP, y2=bottom, stroke=COLORS[1], stroke_width=1.5,
                stroke_dasharray="5 4")
    )  # fmt: skip
    parts.append(_label("memory of the GPU", edge, _TOP - 8, "middle"))
    ordered = sorted(points, key=lambda point: point.memory_bytes)
    line = format_points((x(p.memory_bytes), y(p.tokens_per_second)) for p in ordered)
    parts.append(element("polyline", class_="line", stroke=COLORS[0], points=line))
    labeled: list[float] = []
    for point in sorted(points, key=lambda point: -point.tokens_per_second):
        at, level = x(point.memory_bytes), y(point.tokens_per_second)
        fill = COLORS[0] if point.fits else "none"
        parts.append(element("circle", cx=at, cy=level, r=4.5, fill=fill, stroke=COLORS[0]))
        if all(abs(level - other) >= _MIN_LABEL_GAP for other in labeled):
            labeled.append(level)
            parts.append(_label(point.label, _LEFT + _WIDTH + 12, level + 4, "start"))
    return render_chart(parts, _LEFT + _WIDTH + _RIGHT, bottom + _FOOT, title=title)


def _label(content: str, x: float, y: float, anchor: str) -> str:
    return text_element("text", content, class_="soft", x=x, y=y, text_anchor=anchor)
