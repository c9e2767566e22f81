"""Epoch time against bytes moved per epoch for several batch sizes, as SVG and as terminal lines."""

import math
from collections.abc import Iterator, Sequence

from gpuyard.draw.markup import CHART_EDGE, element, render_chart, text_element
from gpuyard.predictor import Prediction
from gpuyard.units import format_bytes, format_seconds

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _FOOT = 640, 420, 90, 120, 60, 60
_DOT = 4
_MIN_MARKS = 10


def draw_bytes_moved_svg(predictions: Sequence[Prediction], title: str) -> str:
    """Draw one dot per batch size: bytes moved across, time up, both axes logarithmic."""
    points = [(p.epoch_bytes or 1.0, p.epoch_seconds or 1.0) for p in predictions]
    across = _LogScale([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _LogScale([y for _, y in points], _HEIGHT - _FOOT, _TOP)
    parts = []
    for (moved, seconds), p in zip(points, predictions, strict=True):
        x, y = across(moved), up(seconds)
        parts += [
            element("circle", class_="exchange", cx=x, cy=y, r=_DOT),
            text_element(
                "text", f"batch {p.batch_per_gpu * p.gpus}", class_="words", x=x + 8, y=y + 4
            ),
        ]
    parts += _draw_axes(points, across, up)
    return render_chart(parts, _WIDTH, _HEIGHT, title=title)


def draw_bytes_moved_lines(predictions: Sequence[Prediction], columns: int) -> Iterator[str]:
    """Draw two bars per batch size: the bytes that an epoch moves, and its time."""
    max_bytes = max(p.epoch_bytes or 0.0 for p in predictions)
    max_seconds = max(p.epoch_seconds or 0.0 for p in predictions)
    width = max(_MIN_MARKS, (columns - 34) // 2)
    for p in predictions:
        moved, seconds = p.epoch_bytes or 0.0, p.epoch_seconds or 0.0
        bars = (
            "█" * max(1, round(width * moved / max_bytes)),
            "▒" * max(1, round(width * seconds / max_seconds)),
        )
        yield (
            f"batch {p.batch_per_gpu * p.gpus:>6} {bars[0]:<{width}} {format_bytes(moved):>9} "
            f"{bars[1]:<{width}} {format_seconds(seconds):>8}"
        )


def _draw_axes(
    points: Sequence[tuple[float, float]], across: "_LogScale", up: "_LogScale"
) -> list[str]:
    ends_x = sorted({min(x for x, _ in points), max(x for x, _ in points)})
    ends_y = sorted({min(y for _, y in points), max(y for _, y in points)})
    foot = _HEIGHT - _FOOT
    return [
        element("line", class_="grid", x1=_LEFT, y1=foot + 14, x2=_WIDTH - _RIGHT, y2=foot + 14),
        element("line", class_="grid", x1=_LEFT - 14, y1=_TOP, x2=_LEFT - 14, y2=foot),
        *(text_element("text", format_bytes(x), class_="soft", x=across(x), y=foot + 32, text_anchor="middle")
          for x in ends_x),
        *(text_element("text", format_seconds(y), class_="soft", x=_LEFT - 20, y=up(y) + 4, text_anchor="end")
          for y in ends_y),
        text_element("text", "across: bytes moved per epoch; up: epoch time; both logarithmic", class_="soft",
              x=CHART_EDGE, y=_HEIGHT - 8),
    ]  # fmt: skip


class _LogScale:
    """Maps values to pixels between `start` and `end`, logarithmically."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, self._high, self._start, self._end = min(values), max(values), start, end

    def __call__(self, value: float) -> float:
        if self._high <= self._low:
            return (self._start + self._end) / 2
        share = math.log(value / self._low) / math.log(self._high / self._low)
        return self._start + share * (self._end - self._start)
