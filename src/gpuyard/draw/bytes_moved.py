"""An epoch by its batch: how long it takes against how many bytes it moves, as SVG and for a terminal."""

import math
from collections.abc import Iterator, Sequence

from gpuyard.draw.markup import CHART_EDGE, chart_page, element, words
from gpuyard.predict import Prediction
from gpuyard.units import format_bytes, format_seconds

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _FOOT = 640, 420, 90, 120, 60, 60
_DOT = 4
_LEAST_MARKS = 10


def bytes_moved_svg(predictions: Sequence[Prediction], title: str) -> str:
    """Bytes moved across, time up, both logarithmic; one dot a batch."""
    points = [(p.epoch_bytes or 1.0, p.epoch_seconds or 1.0) for p in predictions]
    across = _scale([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _scale([y for _, y in points], _HEIGHT - _FOOT, _TOP)
    parts = []
    for (moved, seconds), p in zip(points, predictions, strict=True):
        x, y = across(moved), up(seconds)
        parts += [
            element("circle", class_="exchange", cx=x, cy=y, r=_DOT),
            words("text", f"batch {p.batch_per_gpu * p.gpus}", class_="words", x=x + 8, y=y + 4),
        ]
    parts += _axis(points, across, up)
    return chart_page(parts, _WIDTH, _HEIGHT, title=title)


def bytes_moved_lines(predictions: Sequence[Prediction], columns: int) -> Iterator[str]:
    """Two bars a batch: what an epoch moves, and how long it takes."""
    most_bytes = max(p.epoch_bytes or 0.0 for p in predictions)
    most_seconds = max(p.epoch_seconds or 0.0 for p in predictions)
    wide = max(_LEAST_MARKS, (columns - 34) // 2)
    for p in predictions:
        moved, seconds = p.epoch_bytes or 0.0, p.epoch_seconds or 0.0
        bars = (
            "█" * max(1, round(wide * moved / most_bytes)),
            "▒" * max(1, round(wide * seconds / most_seconds)),
        )
        yield (
            f"batch {p.batch_per_gpu * p.gpus:>6} {bars[0]:<{wide}} {format_bytes(moved):>9} "
            f"{bars[1]:<{wide}} {format_seconds(seconds):>8}"
        )


def _axis(points: Sequence[tuple[float, float]], across: "_Scale", up: "_Scale") -> list[str]:
    ends_x = sorted({min(x for x, _ in points), max(x for x, _ in points)})
    ends_y = sorted({min(y for _, y in points), max(y for _, y in points)})
    foot = _HEIGHT - _FOOT
    return [
        element("line", class_="grid", x1=_LEFT, y1=foot + 14, x2=_WIDTH - _RIGHT, y2=foot + 14),
        element("line", class_="grid", x1=_LEFT - 14, y1=_TOP, x2=_LEFT - 14, y2=foot),
        *(words("text", format_bytes(x), class_="soft", x=across(x), y=foot + 32, text_anchor="middle")
          for x in ends_x),
        *(words("text", format_seconds(y), class_="soft", x=_LEFT - 20, y=up(y) + 4, text_anchor="end")
          for y in ends_y),
        words("text", "moved in an epoch across, its time up, both logarithmic", class_="soft",
              x=CHART_EDGE, y=_HEIGHT - 8),
    ]  # fmt: skip


class _Scale:
    """A logarithmic axis."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high, self._start, self._end = low, high, start, end

    def __call__(self, value: float) -> float:
        if self._high <= self._low:
            return (self._start + self._end) / 2
        share = math.log(value / self._low) / math.log(self._high / self._low)
        return self._start + share * (self._end - self._start)


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    return _Scale(min(values), max(values), start, end)
