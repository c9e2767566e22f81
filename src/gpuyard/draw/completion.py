"""How many jobs have ended after how long, a line a policy, as an SVG that stands alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, chart_page, corners, element, text_width, words
from gpuyard.draw.palette import COLOURS
from gpuyard.units import format_seconds

_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT, _FOOT = 58, 78, 560, 300, 52
_LINE_HEIGHT = 22
_TICKS_S = (60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 604800.0)
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


def completion_svg(lines: Sequence[CompletionLine], title: str, basis: str) -> str:
    """The lines in the order given, each named with its mean; time is logarithmic."""
    low = max(1.0, min(min(line.seconds) for line in lines))
    high = max(low * 2, *(max(line.seconds) for line in lines))

    def x(seconds: float) -> float:
        return _LEFT + _PLOT_WIDTH * math.log(max(seconds, low) / low) / math.log(high / low)

    def y(share: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - share)

    foot = _TOP + _PLOT_HEIGHT
    right = _LEFT + _PLOT_WIDTH
    parts = [
        words("text", basis, class_="soft", x=CHART_EDGE, y=43),
        words("text", "% of jobs that have ended", class_="soft", x=_LEFT, y=_TOP - 10),
        words("text", "time from submission", class_="soft", x=_LEFT + _PLOT_WIDTH / 2, y=foot + 40, text_anchor="middle"),
    ]  # fmt: skip
    for quarter in range(5):
        level = y(quarter / 4)
        parts.append(element("line", class_="grid", x1=_LEFT, x2=right, y1=level, y2=level))
        label = f"{25 * quarter}"
        parts.append(
            words("text", label, class_="soft", x=_LEFT - 8, y=level + 4, text_anchor="end")
        )
    for tick in _TICKS_S:
        if low <= tick <= high:
            parts.append(
                element("line", class_="grid", x1=x(tick), x2=x(tick), y1=_TOP, y2=foot + 5)
            )
            parts.append(
                words("text", format_seconds(tick), class_="soft", x=x(tick), y=foot + 20, text_anchor="middle")
            )  # fmt: skip
    for at, line in enumerate(lines):
        colour = COLOURS[at % len(COLOURS)]
        dash = _DASHES[at // len(COLOURS) % len(_DASHES)]
        parts.append(
            element("polyline", class_="line", points=corners(_steps(line, x, y)), stroke=colour, stroke_dasharray=dash)
        )  # fmt: skip
        top = _TOP + 8 + _LINE_HEIGHT * at
        parts.append(
            element("line", x1=right + 18, x2=right + 42, y1=top, y2=top, stroke=colour, stroke_width=2.5, stroke_dasharray=dash)
        )  # fmt: skip
        parts.append(words("text", _label(line), class_="words", x=right + 50, y=top + 4))
    width = max(text_width(_label(line), 14) for line in lines)
    return chart_page(parts, right + 50 + width + CHART_EDGE, foot + _FOOT, title=title)


def _label(line: CompletionLine) -> str:
    return f"{line.name}: {format_seconds(line.mean_seconds)}"


def _steps(line: CompletionLine, x: Scale, y: Scale) -> list[tuple[float, float]]:
    """Up by one job at each end."""
    places = []
    for ended, seconds in enumerate(sorted(line.seconds)):
        places += [(x(seconds), y(ended / len(line.seconds)))]
        places += [(x(seconds), y((ended + 1) / len(line.seconds)))]
    return places
