"""Policies between two goals: how soon jobs end on average, and how many end by their deadlines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, chart_page, element, text_width, words
from gpuyard.draw.palette import COLOURS, NEUTRAL
from gpuyard.units import format_seconds, format_share

_LEFT, _TOP, _WIDTH, _HEIGHT, _FOOT = 58, 82, 560, 300, 52
_LABEL = 16  # between two lines of labels
_TICKS_S = tuple(
    unit * step for unit, steps in
    ((1, (1, 2, 5, 10, 20, 30)), (60, (1, 2, 5, 10, 15, 30, 45)), (3600, (1, 1.5, 2, 3, 4, 6, 12)),
     (86400, (1, 2, 4, 7, 14, 30))) for step in steps
)  # fmt: skip


@dataclass(frozen=True)
class GoalPoint:
    """What came of one policy."""

    name: str
    mean_completion_s: float
    deadlines_met: float
    """Share of them."""
    strong: bool = False
    """It is what the chart is about."""


def goals_svg(points: Sequence[GoalPoint], title: str, basis: str) -> str:
    """Further left jobs end sooner, further up more of them in time; `basis` says what was simulated."""
    low = math.log(min(point.mean_completion_s for point in points) * 0.8)
    high = math.log(max(point.mean_completion_s for point in points) * 1.15)

    def x(seconds: float) -> float:
        return _LEFT + _WIDTH * (math.log(seconds) - low) / (high - low)

    def y(share: float) -> float:
        return _TOP + _HEIGHT * (1 - share)

    foot = _TOP + _HEIGHT
    parts = [
        words("text", basis, class_="soft", x=CHART_EDGE, y=43),
        words("text", "deadlines met", class_="soft", x=_LEFT, y=_TOP - 14),
        words("text", "mean completion time", class_="soft", x=_LEFT + _WIDTH / 2, y=foot + 38, text_anchor="middle"),
    ]  # fmt: skip
    for quarter in range(5):
        level = y(quarter / 4)
        parts.append(
            element("line", class_="grid", x1=_LEFT, x2=_LEFT + _WIDTH, y1=level, y2=level)
        )
        share = format_share(quarter / 4)
        parts.append(
            words("text", share, class_="soft", x=_LEFT - 8, y=level + 4, text_anchor="end")
        )
    for tick in (tick for tick in _TICKS_S if low <= math.log(tick) <= high):
        parts.append(element("line", class_="grid", x1=x(tick), x2=x(tick), y1=_TOP, y2=foot + 5))
        parts.append(
            words("text", format_seconds(tick), class_="soft", x=x(tick), y=foot + 20, text_anchor="middle")
        )  # fmt: skip
    widest = 0.0
    for point, label_y in zip(
        points, _labels([y(point.deadlines_met) for point in points]), strict=True
    ):
        right, down = x(point.mean_completion_s), y(point.deadlines_met)
        colour = COLOURS[0] if point.strong else NEUTRAL
        share = format_share(point.deadlines_met)
        said = f"{point.name}: {format_seconds(point.mean_completion_s)}, {share}"
        parts.append(element("circle", words("title", said), cx=right, cy=down, r=6, fill=colour))
        if abs(label_y - down) > 1:
            parts.append(
                element("line", class_="leader", x1=right + 6, x2=right + 12, y1=down, y2=label_y)
            )
        parts.append(
            words("text", said, class_="panel" if point.strong else "words", x=right + 14, y=label_y + 4)
        )  # fmt: skip
        widest = max(widest, right + 14 + text_width(said, 13))
    width = max(widest, _LEFT + _WIDTH, CHART_EDGE + text_width(basis, 12)) + CHART_EDGE
    return chart_page(parts, math.ceil(width), foot + _FOOT, title=title)


def _labels(wanted: Sequence[float]) -> list[float]:
    """Apart, where points are close; in the order of the points."""
    placed: dict[int, float] = {}
    last = -math.inf
    for at in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        last = placed[at] = max(wanted[at], last + _LABEL)
    return [placed[at] for at in range(len(wanted))]
