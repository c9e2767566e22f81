"""Draws the bandwidth between every pair of GPUs as a colored table; each cell also names the path class."""

import math
from collections.abc import Iterable
from typing import TypeGuard

from gpuyard.draw.markup import element, shorten, text, text_element, text_width
from gpuyard.draw.palette import BACKGROUND, INK, MUTED
from gpuyard.draw.topology.labels import format_gigabytes
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.pairs import compute_bandwidth_matrix, compute_class_matrix, is_staged

CELL_WIDTH, CELL_HEIGHT = 52.0, 34.0
_HEAD, _NUMBER, _CLASS = 11.0, 12.0, 9.0
_TITLE = "GPU to GPU, GB/s per direction"
_TITLE_HEIGHT = 46.0
_MAX_NAME = 90.0
# ColorBrewer's YlGnBu, which readers with any color vision can tell apart
_RAMP = ((255, 255, 217), (199, 233, 180), (65, 182, 196), (34, 94, 168), (8, 29, 88))
_NONE = "#eceff2"


class HeatMap:
    """A table of GPUs by GPUs, with its upper left corner at (0, 0)."""

    def __init__(self, graph: MachineGraph) -> None:
        self.graph = graph
        self.rates = compute_bandwidth_matrix(graph)
        self.classes = compute_class_matrix(graph)
        self.scale = HeatScale(rate for row in self.rates for rate in row)
        names = [text_width(gpu, _HEAD) for gpu in graph.gpus]
        self.margin = min(max(names, default=0.0), _MAX_NAME) + 10
        self.width = max(self.margin + CELL_WIDTH * len(graph.gpus), text_width(_TITLE, 13))
        self.height = _TITLE_HEIGHT + CELL_HEIGHT * len(graph.gpus)

    @property
    def has_staged(self) -> bool:
        gpus = self.graph.gpus
        return any(is_staged(self.graph, a, b) for a in gpus for b in gpus)

    def draw(self) -> list[str]:
        drawn = [text(_TITLE, 0, 12, size=13, bold=True)]
        for number, gpu in enumerate(self.graph.gpus):
            x, y = self._get_corner(number, number)
            head = shorten(gpu, CELL_WIDTH - 4, _HEAD)
            drawn.append(text(head, x + CELL_WIDTH / 2, _TITLE_HEIGHT - 8, size=_HEAD, fill=MUTED, anchor="middle"))  # fmt: skip
            side = shorten(gpu, _MAX_NAME, _HEAD)
            drawn.append(text(side, self.margin - 8, y + CELL_HEIGHT / 2 + 4, size=_HEAD, fill=MUTED, anchor="end"))  # fmt: skip
        count = len(self.graph.gpus)
        return drawn + [self._draw_cell(i, j) for i in range(count) for j in range(count)]

    def _get_corner(self, row: int, column: int) -> tuple[float, float]:
        return self.margin + CELL_WIDTH * column, _TITLE_HEIGHT + CELL_HEIGHT * row

    def _draw_cell(self, row: int, column: int) -> str:
        x, y = self._get_corner(row, column)
        a, b = self.graph.gpus[row], self.graph.gpus[column]
        rate, path_class = self.rates[row][column], self.classes[row][column]
        ink = self.scale.ink(rate)
        background = element("rect", x=x, y=y, width=CELL_WIDTH, height=CELL_HEIGHT,
                         fill=self.scale.fill(rate), stroke=BACKGROUND, stroke_width=1.5)  # fmt: skip
        middle = x + CELL_WIDTH / 2
        if row == column:
            return background + text(
                "–", middle, y + CELL_HEIGHT / 2 + 4, fill=ink, anchor="middle"
            )
        staged = is_staged(self.graph, a, b)
        tooltip = f"{a} to {b}: {format_gigabytes(rate)} GB/s, {path_class}"
        tooltip += ", through host memory" if staged else ""
        cell = text_element("title", tooltip) + background
        cell += text(format_gigabytes(rate), middle, y + 16, size=_NUMBER, fill=ink, anchor="middle", bold=True)  # fmt: skip
        cell += text(path_class, middle, y + 28, size=_CLASS, fill=ink, anchor="middle")
        if staged:
            cell += draw_staged_mark(x + CELL_WIDTH - 1, y + 1, ink)
        return element("g", cell, data_from=a, data_to=b)


def draw_staged_mark(right: float, top: float, fill: str = INK) -> str:
    """Draw a triangle whose upper right corner is at (right, top)."""
    return element("path", d=f"M {right:.1f} {top:.1f} h -8 l 8 8 z", fill=fill)


class HeatScale:
    """Maps rates to colors on a logarithmic scale from the slowest to the fastest."""

    def __init__(self, rates: Iterable[float | None]) -> None:
        usable = [rate for rate in rates if _is_positive(rate)]
        self.low, self.high = min(usable, default=1.0), max(usable, default=1.0)

    def fill(self, rate: float | None) -> str:
        if not _is_positive(rate):
            return _NONE
        return "#{:02x}{:02x}{:02x}".format(*self._rgb(rate))

    def ink(self, rate: float | None) -> str:
        """Return dark or white, whichever is easier to read on the fill."""
        if not _is_positive(rate):
            return MUTED
        red, green, blue = self._rgb(rate)
        return "#ffffff" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else INK

    def steps(self, count: int) -> list[float]:
        """Return rates from the slowest to the fastest at even distances on the scale."""
        ratio = self.high / self.low
        return [self.low * ratio ** (i / (count - 1)) for i in range(count)]

    def _rgb(self, rate: float) -> tuple[int, int, int]:
        if self.high <= self.low:
            share = 0.3
        else:
            share = math.log(rate / self.low) / math.log(self.high / self.low)
        position = (0.07 + 0.83 * min(max(share, 0.0), 1.0)) * (len(_RAMP) - 1)
        index = min(int(position), len(_RAMP) - 2)
        red, green, blue = (
            round(a + (b - a) * (position - index))
            for a, b in zip(_RAMP[index], _RAMP[index + 1], strict=True)
        )
        return red, green, blue


def _is_positive(rate: float | None) -> TypeGuard[float]:
    return rate is not None and math.isfinite(rate) and rate > 0
