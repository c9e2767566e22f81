"""Jobs over time: when each waited, and when it ran on how many GPUs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, chart_page, element, shorten, words
from gpuyard.draw.palette import COLOURS, NEUTRAL

_WIDTH, _LEFT, _NARROW_LEFT, _RIGHT, _TOP = 900, 150, 30, 20, 64
_MOST_TICKS = 8
_FEW_ROWS = 40  # with names beside them
_ROW, _THIN_ROW = 18, 6
_MANY_ROWS_HEIGHT = 420  # of all together: what does not fit a screen is not read as one picture
_SIXTY, _DECIMAL = (1, 2, 5, 10, 15, 30), [n * 10**e for e in range(9) for n in (1, 2, 5)]
_STEPS = (
    ("s", 1, _SIXTY),
    ("min", 60, _SIXTY),
    ("h", 3600, (1, 2, 3, 6, 12)),
    ("d", 86400, _DECIMAL),
)
"""What people count time in."""


@dataclass(frozen=True)
class GanttBar:
    """Some GPUs for some time."""

    begin_s: float
    end_s: float
    gpus: int


@dataclass(frozen=True)
class GanttRow:
    """One job."""

    name: str
    kind: str  # those of one kind have one colour
    submitted_s: float
    bars: tuple[GanttBar, ...]


def gantt_svg(rows: Sequence[GanttRow], title: str, until_s: float = 0.0) -> str:
    """A line a job in the order given; the more GPUs, the stronger the colour, and a thin line while it waits.

    Charts that are compared end at the same time, `until_s`.
    """
    first = min(row.submitted_s for row in rows)
    last = max((bar.end_s for row in rows for bar in row.bars), default=first + 1)
    last = max(last, until_s)
    most = max((bar.gpus for row in rows for bar in row.bars), default=1)
    few = len(rows) <= _FEW_ROWS
    left = _LEFT if few else _NARROW_LEFT
    height = _ROW if few else min(_THIN_ROW, _MANY_ROWS_HEIGHT / len(rows))
    bottom = _TOP + height * len(rows)
    kinds = list(dict.fromkeys(row.kind for row in rows))
    colours = {kind: COLOURS[at % len(COLOURS)] for at, kind in enumerate(kinds)}
    span = max(last - first, 1e-9)

    def x(time_s: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (time_s - first) / span

    parts = [_tick(x(first + seconds), text, bottom) for seconds, text in round_ticks(span)]
    for at, row in enumerate(rows):
        top = _TOP + height * at
        if few:
            name = shorten(row.name, _LEFT - 10 - CHART_EDGE, 12)
            parts.append(
                words("text", name, class_="words", x=_LEFT - 8, y=top + 13, text_anchor="end")
            )
        middle = top + height / 2
        parts += [
            element("line", x1=x(begin), x2=x(end), y1=middle, y2=middle, stroke=NEUTRAL)
            for begin, end in _waits(row, last)
        ]
        parts += [
            element(
                "rect", words("title", f"{row.name}: {bar.gpus} GPUs"),
                x=x(bar.begin_s), y=top + height * 0.1, height=height * 0.8, fill=colours[row.kind],
                width=max(0.5, x(bar.end_s) - x(bar.begin_s)),
                fill_opacity=f"{0.35 + 0.65 * bar.gpus / most:.2f}",
            )
            for bar in row.bars
        ]  # fmt: skip
    parts += _legend(colours, bottom) if len(kinds) > 1 else []
    return chart_page(parts, _WIDTH, bottom + (40 if len(kinds) > 1 else 16), title=title)


def _waits(row: GanttRow, last_s: float) -> Iterator[tuple[float, float]]:
    """Between its bars only: they let through what lies under them."""
    since = row.submitted_s
    for bar in sorted(row.bars, key=lambda bar: bar.begin_s):
        if bar.begin_s > since:
            yield since, bar.begin_s
        since = max(since, bar.end_s)
    if not row.bars:
        yield since, last_s


def round_ticks(span_s: float) -> list[tuple[float, str]]:
    """Moments from 0 on, and what is written there: whole minutes, hours or days."""
    name, unit, count = next(
        (name, unit, count)
        for name, unit, counts in _STEPS
        for count in counts
        if span_s <= _MOST_TICKS * count * unit or count == _DECIMAL[-1]
    )
    steps = range(min(int(span_s // (count * unit)), _MOST_TICKS) + 1)
    return [(step * count * unit, f"{step * count:,} {name}" if step else "0") for step in steps]


def _tick(x: float, time: str, bottom: float) -> str:
    return element("line", class_="grid", x1=x, x2=x, y1=_TOP - 6, y2=bottom) + words(
        "text", time, class_="soft", x=x, y=_TOP - 12, text_anchor="middle"
    )


def _legend(colours: dict[str, str], bottom: float) -> list[str]:
    """As many kinds as one line holds."""
    parts = []
    for at, (kind, colour) in enumerate(list(colours.items())[:6]):
        x = CHART_EDGE + 145 * at
        parts.append(element("rect", x=x, y=bottom + 14, width=12, height=12, fill=colour))
        parts.append(
            words(
                "text", shorten(kind or "others", 120, 12), class_="soft", x=x + 18, y=bottom + 24
            )
        )
    return parts
