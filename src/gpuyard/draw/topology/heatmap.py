"""The bandwidth between every two GPUs as a coloured table, each cell with its class."""

import math
from collections.abc import Iterable
from typing import TypeGuard

from gpuyard.draw.markup import element, shorten, text, text_width, words
from gpuyard.draw.palette import FADED, GROUND, INK
from gpuyard.draw.topology.words import gigabytes
from gpuyard.hardware.graph import MachineGraph
from gpuyard.hardware.pairs import bandwidth_matrix, class_matrix, is_staged

CELL_WIDTH, CELL_HEIGHT = 52.0, 34.0
_HEAD, _NUMBER, _CLASS = 11.0, 12.0, 9.0
_TITLE = "GPU to GPU, GB/s per direction"
_TITLE_ROOM = 46.0
_LONGEST_NAME = 90.0
# ColorBrewer's YlGnBu: told apart by people with any colour vision
_RAMP = ((255, 255, 217), (199, 233, 180), (65, 182, 196), (34, 94, 168), (8, 29, 88))
_NONE = "#eceff2"


class HeatMap:
    """Drawn with its upper left corner at (0, 0)."""

    def __init__(self, graph: MachineGraph) -> None:
        self.graph = graph
        self.rates = bandwidth_matrix(graph)
        self.classes = class_matrix(graph)
        self.scale = HeatScale(rate for row in self.rates for rate in row)
        names = [text_width(gpu, _HEAD) for gpu in graph.gpus]
        self.margin = min(max(names, default=0.0), _LONGEST_NAME) + 10
        self.width = max(self.margin + CELL_WIDTH * len(graph.gpus), text_width(_TITLE, 13))
        self.height = _TITLE_ROOM + CELL_HEIGHT * len(graph.gpus)

    @property
    def has_staged(self) -> bool:
        gpus = self.graph.gpus
        return any(is_staged(self.graph, a, b) for a in gpus for b in gpus)

    def draw(self) -> list[str]:
        drawn = [text(_TITLE, 0, 12, size=13, bold=True)]
        for number, gpu in enumerate(self.graph.gpus):
            x, y = self._corner(number, number)
            head = shorten(gpu, CELL_WIDTH - 4, _HEAD)
            drawn.append(text(head, x + CELL_WIDTH / 2, _TITLE_ROOM - 8, size=_HEAD, fill=FADED, anchor="middle"))  # fmt: skip
            side = shorten(gpu, _LONGEST_NAME, _HEAD)
            drawn.append(text(side, self.margin - 8, y + CELL_HEIGHT / 2 + 4, size=_HEAD, fill=FADED, anchor="end"))  # fmt: skip
        count = len(self.graph.gpus)
        return drawn + [self._cell(i, j) for i in range(count) for j in range(count)]

    def _corner(self, row: int, column: int) -> tuple[float, float]:
        return self.margin + CELL_WIDTH * column, _TITLE_ROOM + CELL_HEIGHT * row

    def _cell(self, row: int, column: int) -> str:
        x, y = self._corner(row, column)
        a, b = self.graph.gpus[row], self.graph.gpus[column]
        rate, path_class = self.rates[row][column], self.classes[row][column]
        ink = self.scale.ink(rate)
        ground = element("rect", x=x, y=y, width=CELL_WIDTH, height=CELL_HEIGHT,
                         fill=self.scale.fill(rate), stroke=GROUND, stroke_width=1.5)  # fmt: skip
        middle = x + CELL_WIDTH / 2
        if row == column:
            return ground + text("–", middle, y + CELL_HEIGHT / 2 + 4, fill=ink, anchor="middle")
        staged = is_staged(self.graph, a, b)
        how = f"{a} to {b}: {gigabytes(rate)} GB/s, {path_class}"
        cell = words("title", how + (", through host memory" if staged else "")) + ground
        cell += text(gigabytes(rate), middle, y + 16, size=_NUMBER, fill=ink, anchor="middle", bold=True)  # fmt: skip
        cell += text(path_class, middle, y + 28, size=_CLASS, fill=ink, anchor="middle")
        if staged:
            cell += staged_mark(x + CELL_WIDTH - 1, y + 1, ink)
        return element("g", cell, data_from=a, data_to=b)


def staged_mark(right: float, top: float, fill: str = INK) -> str:
    """A triangle in the upper right corner."""
    return element("path", d=f"M {right:.1f} {top:.1f} h -8 l 8 8 z", fill=fill)


class HeatScale:
    """Rates to colours, by their logarithm between the slowest and the fastest."""

    def __init__(self, rates: Iterable[float | None]) -> None:
        usable = [rate for rate in rates if _known(rate)]
        self.low, self.high = min(usable, default=1.0), max(usable, default=1.0)

    def fill(self, rate: float | None) -> str:
        if not _known(rate):
            return _NONE
        return "#{:02x}{:02x}{:02x}".format(*self._rgb(rate))

    def ink(self, rate: float | None) -> str:
        """Dark or white, whichever reads better on the fill."""
        if not _known(rate):
            return FADED
        red, green, blue = self._rgb(rate)
        return "#ffffff" if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else INK

    def steps(self, count: int) -> list[float]:
        """Rates from the slowest to the fastest, evenly apart on the scale."""
        ratio = self.high / self.low
        return [self.low * ratio ** (i / (count - 1)) for i in range(count)]

    def _rgb(self, rate: float) -> tuple[int, int, int]:
        if self.high <= self.low:
            share = 0.3
        else:
            share = math.log(rate / self.low) / math.log(self.high / self.low)
        at = (0.07 + 0.83 * min(max(share, 0.0), 1.0)) * (len(_RAMP) - 1)
        index = min(int(at), len(_RAMP) - 2)
        one, two = _RAMP[index], _RAMP[index + 1]
        red, green, blue = (
            round(a + (b - a) * (at - index)) for a, b in zip(one, two, strict=True)
        )
        return red, green, blue


def _known(rate: float | None) -> TypeGuard[float]:
    return rate is not None and math.isfinite(rate) and rate > 0
