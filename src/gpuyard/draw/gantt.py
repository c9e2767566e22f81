"""Draws jobs over time: when each job waited, when it ran, and on how many GPUs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, element, render_chart, shorten, text_element
from gpuyard.draw.palette import COLORS, MISSED, NEUTRAL

_WIDTH, _LEFT, _NARROW_LEFT, _RIGHT, _TOP = 900, 150, 30, 20, 64
_MAX_TICKS = 8
_MAX_NAMED_ROWS = 40  # a chart with more rows does not show their names
_ROW, _THIN_ROW = 18, 6
_MAX_THIN_ROWS_HEIGHT = 420  # total height of unnamed rows, so that the chart fits on a screen
_SIXTY, _DECIMAL = (1, 2, 5, 10, 15, 30), [n * 10**e for e in range(9) for n in (1, 2, 5)]
_STEPS = (
    ("s", 1, _SIXTY),
    ("min", 60, _SIXTY),
    ("h", 3600, (1, 2, 3, 6, 12)),
    ("d", 86400, _DECIMAL),
)
"""Units of time with their names, seconds, and readable tick distances."""


@dataclass(frozen=True)
class GanttBar:
    """A period in which a job ran, with its number of GPUs."""

    begin_s: float
    end_s: float
    gpus: int


@dataclass(frozen=True)
class GanttRow:
    """One job; jobs of one kind have the same color."""

    name: str
    kind: str
    submitted_s: float
    bars: tuple[GanttBar, ...]
    deadline_s: float | None = None


def draw_gantt_svg(rows: Sequence[GanttRow], title: str, until_s: float = 0.0) -> str:
    """Draw one row per job. More GPUs give a stronger color, a thin line shows waiting, and an upright one the deadline.

    To compare charts, end them at the same time with `until_s`.
    """
    first = min(row.submitted_s for row in rows)
    last = max((bar.end_s for row in rows for bar in row.bars), default=first + 1)
    last = max(last, until_s)
    max_gpus = max((bar.gpus for row in rows for bar in row.bars), default=1)
    named = len(rows) <= _MAX_NAMED_ROWS
    left = _LEFT if named else _NARROW_LEFT
    height = _ROW if named else min(_THIN_ROW, _MAX_THIN_ROWS_HEIGHT / len(rows))
    bottom = _TOP + height * len(rows)
    kinds = list(dict.fromkeys(row.kind for row in rows))
    colors = {kind: COLORS[i % len(COLORS)] for i, kind in enumerate(kinds)}
    span = max(last - first, 1e-9)

    def x(time_s: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (time_s - first) / span

    parts = [_draw_tick(x(first + seconds), text, bottom) for seconds, text in choose_ticks(span)]
    for index, row in enumerate(rows):
        top = _TOP + height * index
        if named:
            name = shorten(row.name, _LEFT - 10 - CHART_EDGE, 12)
            parts.append(
                text_element(
                    "text", name, class_="words", x=_LEFT - 8, y=top + 13, text_anchor="end"
                )
            )
        middle = top + height / 2
        parts += [
            element("line", x1=x(begin), x2=x(end), y1=middle, y2=middle, stroke=NEUTRAL)
            for begin, end in _find_waits(row, last)
        ]
        parts += [
            element(
                "rect", text_element("title", f"{row.name}: {bar.gpus} GPUs"),
                x=x(bar.begin_s), y=top + height * 0.1, height=height * 0.8, fill=colors[row.kind],
                width=max(0.5, x(bar.end_s) - x(bar.begin_s)),
                fill_opacity=f"{0.35 + 0.65 * bar.gpus / max_gpus:.2f}",
            )
            for bar in row.bars
        ]  # fmt: skip
        if row.deadline_s is not None and first <= row.deadline_s <= last:
            parts.append(_draw_deadline(row, x(row.deadline_s), top, height))
    parts += _draw_legend(colors, bottom) if len(kinds) > 1 else []
    return render_chart(parts, _WIDTH, bottom + (40 if len(kinds) > 1 else 16), title=title)


def _find_waits(row: GanttRow, last_s: float) -> Iterator[tuple[float, float]]:
    """Yield the gaps between bars. A line under a bar would show through, because bars are translucent."""
    since = row.submitted_s
    for bar in sorted(row.bars, key=lambda bar: bar.begin_s):
        if bar.begin_s > since:
            yield since, bar.begin_s
        since = max(since, bar.end_s)
    if not row.bars:
        yield since, last_s


def _draw_deadline(row: GanttRow, x: float, top: float, height: float) -> str:
    """Draw a line at the deadline: red if the job ends later or never."""
    assert row.deadline_s is not None  # noqa: S101
    end_s = max((bar.end_s for bar in row.bars), default=math.inf)
    met = end_s <= row.deadline_s
    title = text_element("title", f"{row.name}: deadline {'met' if met else 'missed'}")
    return element(
        "line", title, class_="deadline", x1=x, x2=x, y1=top, y2=top + height,
        stroke=NEUTRAL if met else MISSED, stroke_width=2,
    )  # fmt: skip


def choose_ticks(span_s: float) -> list[tuple[float, str]]:
    """Return tick times from 0 on, with their labels in round seconds, minutes, hours, or days."""
    name, unit, count = next(
        (name, unit, count)
        for name, unit, counts in _STEPS
        for count in counts
        if span_s <= _MAX_TICKS * count * unit or count == _DECIMAL[-1]
    )
    steps = range(min(int(span_s // (count * unit)), _MAX_TICKS) + 1)
    return [(step * count * unit, f"{step * count:,} {name}" if step else "0") for step in steps]


def _draw_tick(x: float, time: str, bottom: float) -> str:
    return element("line", class_="grid", x1=x, x2=x, y1=_TOP - 6, y2=bottom) + text_element(
        "text", time, class_="soft", x=x, y=_TOP - 12, text_anchor="middle"
    )


def _draw_legend(colors: dict[str, str], bottom: float) -> list[str]:
    """Draw a legend of as many kinds as fit on one line."""
    parts = []
    for index, (kind, color) in enumerate(list(colors.items())[:6]):
        x = CHART_EDGE + 145 * index
        parts.append(element("rect", x=x, y=bottom + 14, width=12, height=12, fill=color))
        parts.append(
            text_element(
                "text", shorten(kind or "others", 120, 12), class_="soft", x=x + 18, y=bottom + 24
            )
        )
    return parts
