"""The time line of one predicted step: as an SVG picture that stands alone, and for a terminal."""

from collections.abc import Iterator, Sequence

from gpuyard.draw.markup import CHART_EDGE, chart_page, element, words
from gpuyard.predict.explain.timeline import Bar, TimeLine
from gpuyard.units import format_seconds

_MOST_BUCKET_ROWS = 12
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 900, 160, 150, 64, 26
_BAR = 16
_TICKS = 5

_TEXT_LABEL, _TEXT_TIMES, _LEAST_MARKS = 21, 19, 20
_LONG_STEP_SECONDS = 10.0


def timeline_svg(line: TimeLine, title: str) -> str:
    """One row for each bar; neighbouring buckets share a row where there are many."""
    rows = list(line.rows(_MOST_BUCKET_ROWS))
    bottom = _TOP + _ROW * len(rows)
    parts = [_tick(line.step_seconds, i / _TICKS, bottom) for i in range(_TICKS + 1)]
    for index, (name, bars) in enumerate(rows):
        top = _TOP + _ROW * index + (_ROW - _BAR) / 2
        foot = top + _BAR - 4
        times = _from_to(bars, line.step_seconds)
        parts += [
            words("text", name, class_="words", x=_LEFT - 10, y=foot, text_anchor="end"),
            *(_bar(bar, line.step_seconds, top) for bar in bars),
            words("text", times, class_="soft", x=_WIDTH - CHART_EDGE, y=foot, text_anchor="end"),
        ]
    if line.note:
        parts += [
            words("text", part, class_="soft", x=CHART_EDGE, y=bottom + 20 + 15 * i)
            for i, part in enumerate(_in_two(line.note))
        ]
    return chart_page(parts, _WIDTH, bottom + (46 if line.note else 26), title=title)


def timeline_lines(line: TimeLine, columns: int) -> Iterator[tuple[str, str]]:
    """Lines of text, and of which lane each is ("" for head and legend)."""
    width = max(_LEAST_MARKS, columns - _TEXT_LABEL - _TEXT_TIMES - 2)
    end = format_seconds(line.step_seconds)
    yield f"{'one step':<{_TEXT_LABEL}} 0{end:>{width - 1}}", ""
    for name, bars in line.rows(_MOST_BUCKET_ROWS):
        marks = _marks(bars, line.step_seconds, width)
        times = _from_to(bars, line.step_seconds)
        yield f"{name:<{_TEXT_LABEL}} {marks} {times:>{_TEXT_TIMES}}", bars[0].lane
    if line.lane("exchange"):
        yield "█ busy   · bucket full, but the link or another worker is not ready", ""


def _from_to(bars: Sequence[Bar], step_seconds: float) -> str:
    """In one unit for all rows, so that what is short at the end of a step is seen to last."""
    unit, factor = ("s", 1.0) if step_seconds >= _LONG_STEP_SECONDS else ("ms", 1e3)
    first, last = bars[0].start_seconds, bars[-1].end_seconds
    return f"{factor * first:.1f} – {factor * last:.1f} {unit}"


def _time(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "0"


def _x(seconds: float, step_seconds: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / step_seconds


def _tick(step_seconds: float, share: float, bottom: float) -> str:
    x, time = _x(share, 1.0), _time(share * step_seconds)
    return element("line", class_="grid", x1=x, x2=x, y1=_TOP - 6, y2=bottom) + words(
        "text", time, class_="soft", x=x, y=_TOP - 12, text_anchor="middle"
    )


def _bar(bar: Bar, step_seconds: float, top: float) -> str:
    start, end = _x(bar.start_seconds, step_seconds), _x(bar.end_seconds, step_seconds)
    drawn = element(
        "rect", class_=bar.lane, x=start, y=top, width=max(1.0, end - start), height=_BAR
    )
    if bar.ready_seconds is None or bar.ready_seconds >= bar.start_seconds:
        return drawn
    ready, middle = _x(bar.ready_seconds, step_seconds), top + _BAR / 2
    return element("line", class_="ready", x1=ready, x2=start, y1=middle, y2=middle) + drawn


def _in_two(note: str) -> list[str]:
    """At the end of its first sentence: an SVG text breaks no lines."""
    first, _, rest = note.partition(". ")
    return [f"{first}.", rest] if rest else [note]


def _marks(bars: Sequence[Bar], step_seconds: float, width: int) -> str:
    def column(seconds: float) -> int:
        return min(width, round(width * seconds / step_seconds))

    marks = [" "] * width
    for bar in bars:
        if bar.ready_seconds is not None:
            for at in range(column(bar.ready_seconds), column(bar.start_seconds)):
                marks[at] = "·" if marks[at] == " " else marks[at]
        start = min(column(bar.start_seconds), width - 1)
        # however short it is, it is there
        for at in range(start, max(column(bar.end_seconds), start + 1)):
            marks[at] = "█"
    return "".join(marks)
