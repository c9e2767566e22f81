"""Policies beside each other, as SVGs that stand alone: how many jobs have ended after how long, a line a policy; and two
goals, how soon jobs end on average and how many end by their deadlines, a dot a policy."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, chart_page, corners, element, text_width, words
from gpuyard.draw.palette import COLOURS, NEUTRAL
from gpuyard.units import format_seconds, format_share

_LEFT, _WIDTH, _HEIGHT, _FOOT = 58, 560, 300, 52
_RIGHT = _LEFT + _WIDTH
_LINES_TOP, _GOALS_TOP = 78, 82
_LINE_HEIGHT = 22
_LABEL = 16  # between two lines of labels
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
    """One policy: its jobs' completion times."""

    name: str
    seconds: tuple[float, ...]

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True)
class GoalPoint:
    """What came of one policy."""

    name: str
    mean_completion_s: float
    deadlines_met: float
    """Share of them."""
    strong: bool = False
    """It is what the chart is about."""


def completion_svg(lines: Sequence[CompletionLine], title: str, basis: str) -> str:
    """The lines in the order given, each named with its mean; time is logarithmic."""
    low = max(1.0, min(min(line.seconds) for line in lines))
    high = max(low * 2, *(max(line.seconds) for line in lines))

    def x(seconds: float) -> float:
        return _LEFT + _WIDTH * math.log(max(seconds, low) / low) / math.log(high / low)

    def y(share: float) -> float:
        return _LINES_TOP + _HEIGHT * (1 - share)

    foot = _LINES_TOP + _HEIGHT
    parts = [
        words("text", basis, class_="soft", x=CHART_EDGE, y=43),
        words("text", "% of jobs that have ended", class_="soft", x=_LEFT, y=_LINES_TOP - 10),
        words("text", "time from submission", class_="soft", x=_LEFT + _WIDTH / 2, y=foot + 40, text_anchor="middle"),
        *_grid(x, y, (tick for tick in _LINE_TICKS_S if low <= tick <= high), lambda share: f"{100 * share:.0f}"),
    ]  # fmt: skip
    for at, line in enumerate(lines):
        colour = COLOURS[at % len(COLOURS)]
        dash = _DASHES[at // len(COLOURS) % len(_DASHES)]
        parts.append(
            element("polyline", class_="line", points=corners(_steps(line, x, y)), stroke=colour, stroke_dasharray=dash)
        )  # fmt: skip
        top = _LINES_TOP + 8 + _LINE_HEIGHT * at
        parts.append(
            element("line", x1=_RIGHT + 18, x2=_RIGHT + 42, y1=top, y2=top, stroke=colour, stroke_width=2.5, stroke_dasharray=dash)
        )  # fmt: skip
        parts.append(words("text", _label(line), class_="words", x=_RIGHT + 50, y=top + 4))
    width = max(text_width(_label(line), 14) for line in lines)
    return chart_page(parts, _RIGHT + 50 + width + CHART_EDGE, foot + _FOOT, title=title)


def goals_svg(points: Sequence[GoalPoint], title: str, basis: str) -> str:
    """Further left jobs end sooner, further up more of them in time; `basis` says what was simulated."""
    low = math.log(min(point.mean_completion_s for point in points) * 0.8)
    high = math.log(max(point.mean_completion_s for point in points) * 1.15)

    def x(seconds: float) -> float:
        return _LEFT + _WIDTH * (math.log(seconds) - low) / (high - low)

    def y(share: float) -> float:
        return _GOALS_TOP + _HEIGHT * (1 - share)

    foot = _GOALS_TOP + _HEIGHT
    parts = [
        words("text", basis, class_="soft", x=CHART_EDGE, y=43),
        words("text", "deadlines met", class_="soft", x=_LEFT, y=_GOALS_TOP - 14),
        words("text", "mean completion time", class_="soft", x=_LEFT + _WIDTH / 2, y=foot + 38, text_anchor="middle"),
        *_grid(x, y, (tick for tick in _GOAL_TICKS_S if low <= math.log(tick) <= high), format_share),
    ]  # fmt: skip
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
    width = max(widest, _RIGHT, CHART_EDGE + text_width(basis, 12)) + CHART_EDGE
    return chart_page(parts, math.ceil(width), foot + _FOOT, title=title)


def _grid(
    x: Scale, y: Scale, ticks: Iterable[float], said: Callable[[float], str]
) -> Iterable[str]:
    """Every quarter of a share from left to right, and ticks of time from top to bottom."""
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = y(share)
        yield element("line", class_="grid", x1=_LEFT, x2=_RIGHT, y1=level, y2=level)
        yield words("text", said(share), class_="soft", x=_LEFT - 8, y=level + 4, text_anchor="end")
    foot = y(0.0)
    for tick in ticks:
        yield element("line", class_="grid", x1=x(tick), x2=x(tick), y1=y(1.0), y2=foot + 5)
        yield words(
            "text", format_seconds(tick), class_="soft", x=x(tick), y=foot + 20, text_anchor="middle"
        )  # fmt: skip


def _label(line: CompletionLine) -> str:
    return f"{line.name}: {format_seconds(line.mean_seconds)}"


def _steps(line: CompletionLine, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Up by one job at each end."""
    places = []
    for ended, seconds in enumerate(sorted(line.seconds)):
        places += [(x(seconds), y(ended / len(line.seconds)))]
        places += [(x(seconds), y((ended + 1) / len(line.seconds)))]
    return places


def _labels(wanted: Sequence[float]) -> list[float]:
    """Apart, where points are close; in the order of the points."""
    placed: dict[int, float] = {}
    last = -math.inf
    for at in sorted(range(len(wanted)), key=lambda i: wanted[i]):
        last = placed[at] = max(wanted[at], last + _LABEL)
    return [placed[at] for at in range(len(wanted))]
