"""Draws the timeline of one predicted step, as a standalone SVG and as terminal lines."""

from collections.abc import Iterator, Sequence

from gpuyard.draw.markup import CHART_EDGE, element, render_chart, text_element
from gpuyard.predictor.explain.timeline import Bar, StepTimeline
from gpuyard.units import format_seconds

_MAX_BUCKET_ROWS = 12
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 900, 160, 150, 64, 26
_BAR = 16
_TICKS = 5

_TEXT_LABEL, _TEXT_TIMES, _MIN_MARKS = 21, 19, 20
_LONG_STEP_SECONDS = 10.0


def draw_timeline_svg(line: StepTimeline, title: str) -> str:
    """Draw one row per bar; if there are many buckets, neighboring buckets share a row."""
    rows = list(line.rows(_MAX_BUCKET_ROWS))
    bottom = _TOP + _ROW * len(rows)
    parts = [_draw_tick(line.step_seconds, i / _TICKS, bottom) for i in range(_TICKS + 1)]
    for index, (name, bars) in enumerate(rows):
        top = _TOP + _ROW * index + (_ROW - _BAR) / 2
        foot = top + _BAR - 4
        times = _format_span(bars, line.step_seconds)
        parts += [
            text_element("text", name, class_="words", x=_LEFT - 10, y=foot, text_anchor="end"),
            *(_draw_bar(bar, line.step_seconds, top) for bar in bars),
            text_element(
                "text", times, class_="soft", x=_WIDTH - CHART_EDGE, y=foot, text_anchor="end"
            ),
        ]
    if line.note:
        parts += [
            text_element("text", part, class_="soft", x=CHART_EDGE, y=bottom + 20 + 15 * i)
            for i, part in enumerate(_split_note(line.note))
        ]
    return render_chart(parts, _WIDTH, bottom + (46 if line.note else 26), title=title)


def draw_timeline_lines(line: StepTimeline, columns: int) -> Iterator[tuple[str, str]]:
    """Yield lines of text, each with the lane that it shows ("" for header and legend)."""
    width = max(_MIN_MARKS, columns - _TEXT_LABEL - _TEXT_TIMES - 2)
    end = format_seconds(line.step_seconds)
    yield f"{'one step':<{_TEXT_LABEL}} 0{end:>{width - 1}}", ""
    for name, bars in line.rows(_MAX_BUCKET_ROWS):
        marks = _draw_marks(bars, line.step_seconds, width)
        times = _format_span(bars, line.step_seconds)
        yield f"{name:<{_TEXT_LABEL}} {marks} {times:>{_TEXT_TIMES}}", bars[0].lane
    if line.lane("exchange"):
        yield "█ busy   · bucket full, but the link or another worker is not ready", ""


def _format_span(bars: Sequence[Bar], step_seconds: float) -> str:
    """Format when a row starts and ends, with the same unit and precision in all rows."""
    unit, factor = ("s", 1.0) if step_seconds >= _LONG_STEP_SECONDS else ("ms", 1e3)
    first, last = bars[0].start_seconds, bars[-1].end_seconds
    return f"{factor * first:.1f} – {factor * last:.1f} {unit}"


def _x(seconds: float, step_seconds: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / step_seconds


def _draw_tick(step_seconds: float, share: float, bottom: float) -> str:
    x, time = _x(share, 1.0), format_seconds(share * step_seconds) if share else "0"
    return element("line", class_="grid", x1=x, x2=x, y1=_TOP - 6, y2=bottom) + text_element(
        "text", time, class_="soft", x=x, y=_TOP - 12, text_anchor="middle"
    )


def _draw_bar(bar: Bar, step_seconds: float, top: float) -> str:
    start, end = _x(bar.start_seconds, step_seconds), _x(bar.end_seconds, step_seconds)
    rectangle = element(
        "rect", class_=bar.lane, x=start, y=top, width=max(1.0, end - start), height=_BAR
    )
    if bar.ready_seconds is None or bar.ready_seconds >= bar.start_seconds:
        return rectangle
    ready, middle = _x(bar.ready_seconds, step_seconds), top + _BAR / 2
    return element("line", class_="ready", x1=ready, x2=start, y1=middle, y2=middle) + rectangle


def _split_note(note: str) -> list[str]:
    """Break a note after its first sentence, because SVG text does not wrap."""
    first, _, rest = note.partition(". ")
    return [f"{first}.", rest] if rest else [note]


def _draw_marks(bars: Sequence[Bar], step_seconds: float, width: int) -> str:
    def column(seconds: float) -> int:
        return min(width, round(width * seconds / step_seconds))

    marks = [" "] * width
    for bar in bars:
        if bar.ready_seconds is not None:
            for i in range(column(bar.ready_seconds), column(bar.start_seconds)):
                marks[i] = "·" if marks[i] == " " else marks[i]
        start = min(column(bar.start_seconds), width - 1)
        # even the shortest bar is visible
        for i in range(start, max(column(bar.end_seconds), start + 1)):
            marks[i] = "█"
    return "".join(marks)
