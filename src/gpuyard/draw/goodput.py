"""Draws goodput over the checkpoint interval and over the number of GPUs as a standalone SVG."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, element, format_points, render_chart, text_element
from gpuyard.draw.palette import COLORS

_LEFT, _TOP, _GAP, _FOOT = 58.0, 92.0, 74.0, 56.0
_WIDTH, _HEIGHT = 330.0, 210.0
_MAX_TICKS = 6
_FLOORS = (0.0, 0.4, 0.8, 0.9, 0.96, 0.98, 0.99, 0.996, 0.998, 0.999)  # quarters above are round


@dataclass(frozen=True)
class GoodputCurve:
    """Goodput and its interval over positive numbers; `best` is marked."""

    title: str
    x_label: str
    points: tuple[tuple[float, float, float, float], ...]  # x, goodput, low, high
    ticks: tuple[tuple[float, str], ...]
    best: float


def draw_goodput_svg(curves: Sequence[GoodputCurve], title: str, subtitle: str) -> str:
    """Draw the curves side by side; the band is the 90% interval."""
    parts = [text_element("text", subtitle, class_="soft", x=CHART_EDGE, y=43)]
    for index, curve in enumerate(curves):
        parts += _draw_curve(curve, _LEFT + index * (_WIDTH + _GAP))
    width = _LEFT + len(curves) * (_WIDTH + _GAP) - _GAP + 30
    return render_chart(parts, width, _TOP + _HEIGHT + _FOOT, title=title)


def choose_floor(shares: Iterable[float]) -> float:
    """Return where the axis of goodput starts: from 0, the optimum could not be seen."""
    lowest = min(shares)
    return max(floor for floor in _FLOORS if floor <= lowest)


def _draw_curve(curve: GoodputCurve, left: float) -> list[str]:
    floor = choose_floor(share for _, share, *_ in curve.points)
    first, last = (math.log(curve.points[index][0]) for index in (0, -1))

    def x(value: float) -> float:
        return left + _WIDTH * (math.log(value) - first) / (last - first)

    def y(share: float) -> float:
        return _TOP + _HEIGHT * (1 - max(share, floor)) / (1 - floor)

    parts = [text_element("text", curve.title, class_="panel", x=left, y=_TOP - 16)]
    for quarter in range(5):
        at_line = floor + (1 - floor) * quarter / 4
        level = y(at_line)
        parts.append(element("line", class_="grid", x1=left, x2=left + _WIDTH, y1=level, y2=level))
        parts.append(
            text_element("text", f"{100 * at_line:.5g}%", class_="soft", x=left - 8, y=level + 4,
                         text_anchor="end")
        )  # fmt: skip
    step = math.ceil(len(curve.ticks) / _MAX_TICKS)
    for value, label in curve.ticks[::step]:
        parts.append(
            text_element("text", label, class_="soft", x=x(value), y=_TOP + _HEIGHT + 18,
                         text_anchor="middle")
        )  # fmt: skip
    parts.append(
        text_element("text", curve.x_label, class_="soft", x=left + _WIDTH / 2,
                     y=_TOP + _HEIGHT + 38, text_anchor="middle")
    )  # fmt: skip
    upper = [(x(at), y(high)) for at, _, _, high in curve.points]
    lower = [(x(at), y(low)) for at, _, low, _ in curve.points]
    color = COLORS[0]
    parts.append(
        element("polygon", points=format_points([*upper, *reversed(lower)]), fill=color,
                fill_opacity="0.16")
    )  # fmt: skip
    line = format_points((x(at), y(share)) for at, share, _, _ in curve.points)
    parts.append(element("polyline", class_="line", stroke=color, points=line))
    share = next(share for at, share, _, _ in curve.points if at == curve.best)
    parts.append(element("circle", cx=x(curve.best), cy=y(share), r=5, fill=COLORS[1]))
    parts.append(
        text_element("text", f"{share:.1%}", x=x(curve.best), y=y(share) + 22,
                     text_anchor="middle")
    )  # fmt: skip
    return parts
