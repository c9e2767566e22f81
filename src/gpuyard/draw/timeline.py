"""The time line of one predicted step as an SVG picture that stands alone."""

from html import escape

from gpuyard.predict.timeline import Bar, TimeLine
from gpuyard.units import format_seconds

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 900, 160, 150, 64, 26
_BAR = 16
_MOST_BUCKET_ROWS = 12
_TICKS = 5
# the page's own colours, and dark where the reader's screen is
_STYLE = """
text{font:13px system-ui,sans-serif;fill:#16191d}
.title{font-weight:600;font-size:15px}.soft,.times{fill:#565d67;font-size:12px}
.page{fill:#fff}.grid{stroke:#d9dde3}
.compute{fill:#0b7a4b}.exchange{fill:#005a9c}.wait{fill:#b3261e}
.ready{stroke:#005a9c;stroke-width:2;stroke-dasharray:2 4}
@media (prefers-color-scheme:dark){text{fill:#e8eaed}.soft,.times{fill:#a5adb8}.page{fill:#14171b}
.grid{stroke:#363c45}.compute{fill:#62cf9b}.exchange{fill:#7cb8ee}.wait{fill:#ff9389}
.ready{stroke:#7cb8ee}}
"""


def timeline_svg(line: TimeLine, title: str) -> str:
    """One row for each bar; neighbouring buckets share a row where there are many."""
    rows = list(line.rows(_MOST_BUCKET_ROWS))
    bottom = _TOP + _ROW * len(rows)
    height = bottom + (46 if line.note else 26)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
        *(_tick(line.step_seconds, i / _TICKS, bottom) for i in range(_TICKS + 1)),
    ]
    for index, (name, bars) in enumerate(rows):
        top = _TOP + _ROW * index + (_ROW - _BAR) / 2
        first, last = bars[0].start_seconds, bars[-1].end_seconds
        middle = top + _BAR - 4
        parts.append(f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{name}</text>')
        parts += [_bar(bar, line.step_seconds, top) for bar in bars]
        times = f"{_time(first)} – {_time(last)}"
        parts.append(
            f'<text class="times" x="{_WIDTH - 12}" y="{middle}" text-anchor="end">{times}</text>'
        )
    if line.note:
        parts += [
            f'<text class="soft" x="12" y="{bottom + 20 + 15 * i}">{escape(part)}</text>'
            for i, part in enumerate(_in_two(line.note))
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _time(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "0"


def _x(seconds: float, step_seconds: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / step_seconds


def _tick(step_seconds: float, share: float, bottom: float) -> str:
    x = _x(share, 1.0)
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{bottom}"/>'
        f'<text class="soft" x="{x:.1f}" y="{_TOP - 12}" text-anchor="middle">{_time(share * step_seconds)}</text>'
    )


def _bar(bar: Bar, step_seconds: float, top: float) -> str:
    start, end = _x(bar.start_seconds, step_seconds), _x(bar.end_seconds, step_seconds)
    drawn = (
        f'<rect class="{bar.lane}" x="{start:.1f}" y="{top}" width="{max(1.0, end - start):.1f}" '
        f'height="{_BAR}"/>'
    )
    if bar.ready_seconds is None or bar.ready_seconds >= bar.start_seconds:
        return drawn
    ready, middle = _x(bar.ready_seconds, step_seconds), top + _BAR / 2
    dots = f'<line class="ready" x1="{ready:.1f}" x2="{start:.1f}" y1="{middle}" y2="{middle}"/>'
    return dots + drawn


def _in_two(note: str) -> list[str]:
    """At the end of its first sentence: an SVG text breaks no lines."""
    first, _, rest = note.partition(". ")
    return [f"{first}.", rest] if rest else [note]
