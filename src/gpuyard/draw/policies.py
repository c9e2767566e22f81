"""Charts that compare scheduling policies, as standalone SVGs.

One shows the share of jobs completed over time, with a line per policy. The other shows mean completion time
against deadlines met, with a dot per policy.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import (
    CHART_EDGE,
    element,
    format_points,
    render_chart,
    text_element,
    text_width,
)
from gpuyard.draw.palette import COLORS, NEUTRAL
from gpuyard.units import format_seconds, format_share

_LEFT, _WIDTH, _HEIGHT, _FOOT = 58, 560, 300, 52
_RIGHT = _LEFT + _WIDTH
_LINES_TOP, _GOALS_TOP = 78, 82
_LINE_HEIGHT = 22
_LABEL_SPACING = 16
_LINE_TICKS_S = (60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
_GOAL_TICKS_S = tuple(
    unit * step for unit, steps in
    ((1, (1, 2, 5, 10, 20, 30)), (60, (1, 2, 5, 10, 15, 30, 45)), (3600, (1, 1.5, 2, 3, 4, 6, 12)),
     (86400, (1, 2, 4, 7, 14, 30))) for step in steps
)  # fmt: skip
_DASHES = (None, "7 4", "2 3")

Scale = Callable[[float], float]


@dataclass(frozen=True)
class CompletionLine:
    """Completion times of all jobs under one policy."""

    name: str
    seconds: tuple[float, ...]

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True)
class GoalPoint:
    """Mean completion time and share of deadlines met under one policy."""

    name: str
    mean_completion_s: float
    deadlines_met: float
    """A share between 0 and 1."""
    highlighted: bool = False


def draw_completion_svg(lines: Sequence[CompletionLine], title: str, basis: str) -> str:
    """Draw the lines over logarithmic time. The legend keeps their order and shows each mean."""
    low = max(1.0, min(min(line.seconds) for line in lines))
    high = max(low * 2, *(max(line.seconds) for line in lines))

    def x(seconds: float) -> float:
        return _LEFT + _WIDTH * math.log(max(seconds, low) / low) / math.log(high / low)

    def y(share: float) -> float:
        return _LINES_TOP + _HEIGHT * (1 - share)

    foot = _LINES_TOP + _HEIGHT
    parts = [
        text_element("text", basis, class_="soft", x=CHART_EDGE, y=43),
        text_element("text", "% of jobs completed", class_="soft", x=_LEFT, y=_LINES_TOP - 10),
        text_element("text", "time from submission", class_="soft", x=_LEFT + _WIDTH / 2, y=foot + 40, text_anchor="middle"),
        *_draw_grid(x, y, (tick for tick in _LINE_TICKS_S if low <= tick <= high), lambda share: f"{100 * share:.0f}"),
    ]  # fmt: skip
    for index, line in enumerate(lines):
        color = COLORS[index % len(COLORS)]
        dash = _DASHES[index // len(COLORS) % len(_DASHES)]
        parts.append(
            element("polyline", class_="line", points=format_points(_step_points(line, x, y)), stroke=color, stroke_dasharray=dash)
        )  # fmt: skip
        top = _LINES_TOP + 8 + _LINE_HEIGHT * index
        parts.append(
            element("line", x1=_RIGHT + 18, x2=_RIGHT + 42, y1=top, y2=top, stroke=color, stroke_width=2.5, stroke_dasharray=dash)
        )  # fmt: skip
        parts.append(
            text_element("text", _format_label(line), class_="words", x=_RIGHT + 50, y=top + 4)
        )
    width = max(text_width(_format_label(line), 14) for line in lines)
    return render_chart(parts, _RIGHT + 50 + width + CHART_EDGE, foot + _FOOT, title=title)


def draw_goals_svg(points: Sequence[GoalPoint], title: str, basis: str) -> str:
    """Draw one dot per policy: left is sooner, up is more deadlines met. `basis` describes the simulation."""
    low = math.log(min(point.mean_completion_s for point in points) * 0.8)
    high = math.log(max(point.mean_completion_s for point in points) * 1.15)

    def x(seconds: float) -> float:
        return _LEFT + _WIDTH * (math.log(seconds) - low) / (high - low)

    def y(share: float) -> float:
        return _GOALS_TOP + _HEIGHT * (1 - share)

    foot = _GOALS_TOP + _HEIGHT
    parts = [
        text_element("text", basis, class_="soft", x=CHART_EDGE, y=43),
        text_element("text", "deadlines met", class_="soft", x=_LEFT, y=_GOALS_TOP - 14),
        text_element("text", "mean completion time", class_="soft", x=_LEFT + _WIDTH / 2, y=foot + 38, text_anchor="middle"),
        *_draw_grid(x, y, (tick for tick in _GOAL_TICKS_S if low <= math.log(tick) <= high), format_share),
    ]  # fmt: skip
    widest = 0.0
    for point, label_y in zip(
        points, _spread_labels([y(point.deadlines_met) for point in points]), strict=True
    ):
        right, down = x(point.mean_completion_s), y(point.deadlines_met)
        color = COLORS[0] if point.highlighted else NEUTRAL
        share = format_share(point.deadlines_met)
        label = f"{point.name}: {format_seconds(point.mean_completion_s)}, {share}"
        parts.append(
            element("circle", text_element("title", label), cx=right, cy=down, r=6, fill=color)
        )
        if abs(label_y - down) > 1:
            parts.append(
                element("line", class_="leader", x1=right + 6, x2=right + 12, y1=down, y2=label_y)
            )
        parts.append(
            text_element("text", label, class_="panel" if point.highlighted else "words", x=right + 14, y=label_y + 4)
        )  # fmt: skip
        widest = max(widest, right + 14 + text_width(label, 13))
    width = max(widest, _RIGHT, CHART_EDGE + text_width(basis, 12)) + CHART_EDGE
    return render_chart(parts, math.ceil(width), foot + _FOOT, title=title)


def _draw_grid(
    x: Scale, y: Scale, ticks: Iterable[float], format_level: Callable[[float], str]
) -> Iterable[str]:
    """Draw a horizontal line at every 25% and a vertical line at every time tick."""
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = y(share)
        yield element("line", class_="grid", x1=_LEFT, x2=_RIGHT, y1=level, y2=level)
        yield text_element(
            "text", format_level(share), class_="soft", x=_LEFT - 8, y=level + 4, text_anchor="end"
        )
    foot = y(0.0)
    for tick in ticks:
        yield element("line", class_="grid", x1=x(tick), x2=x(tick), y1=y(1.0), y2=foot + 5)
        yield text_element(
            "text", format_seconds(tick), class_="soft", x=x(tick), y=foot + 20, text_anchor="middle"
        )  # fmt: skip


def _format_label(line: CompletionLine) -> str:
    return f"{line.name}: {format_seconds(line.mean_seconds)}"


def _step_points(line: CompletionLine, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Return the corners of a staircase that rises by one job at each completion."""
    points = []
    for completed, seconds in enumerate(sorted(line.seconds)):
        points += [(x(seconds), y(completed / len(line.seconds)))]
        points += [(x(seconds), y((completed + 1) / len(line.seconds)))]
    return points


def _spread_labels(heights: Sequence[float]) -> list[float]:
    """Move labels of close points apart; the result keeps the order of the points."""
    placed: dict[int, float] = {}
    last = -math.inf
    for index in sorted(range(len(heights)), key=lambda i: heights[i]):
        last = placed[index] = max(heights[index], last + _LABEL_SPACING)
    return [placed[index] for index in range(len(heights))]
