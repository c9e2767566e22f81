"""Scaling efficiency over the number of nodes, a panel a workload, as an SVG that stands alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import CHART_EDGE, chart_page, corners, element, moved, words
from gpuyard.draw.palette import COLOURS
from gpuyard.units import format_per_second, format_share

_LEFT, _TOP, _FOOT = 58, 74, 44
_PLOT_WIDTH, _PLOT_WIDTH_ALONE, _PLOT_HEIGHT = 230, 470, 200
_LABEL_HEIGHT, _WORDS_HEIGHT, _HEAD = 16, 18, 58
_LETTER = 6.4  # of the widest usual letters at 12 px, so that no label is cut
_MOST_TICKS = 10
_TRIANGLE = ((0.0, -5.0), (4.6, 3.6), (-4.6, 3.6))
_DIAMOND = ((0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0))
_SHAPES = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class ScalingPoint:
    """So many workers, and how much of their work they did; the mean where it was measured again."""

    workers: int
    efficiency: float
    samples_per_second: float


@dataclass(frozen=True)
class ScalingLine:
    """One batch, link and remedy; `sentence` is about the most workers."""

    label: str
    points: tuple[ScalingPoint, ...]
    sentence: str


@dataclass(frozen=True)
class ScalingPanel:
    """One workload on one kind of device; a line without a run on one worker is left out."""

    title: str
    weighs: str
    members: str
    lines: tuple[ScalingLine, ...]
    words: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def below(self) -> list[str]:
        """What is said under its plot."""
        if not self.left_out:
            return list(self.words)
        missing = f"not drawn, no run on 1 {self.members.removesuffix('s')}: "
        return [*self.words, missing + "; ".join(self.left_out)]


@dataclass(frozen=True)
class _Look:
    """Colour and shape of a line's points."""

    colour: str
    shape: str

    def draw(self, x: float, y: float) -> str:
        if self.shape == "circle":
            return element("circle", cx=x, cy=y, r=4, fill=self.colour)
        if self.shape == "square":
            return element("rect", x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, fill=self.colour)
        outline = _TRIANGLE if self.shape == "triangle" else _DIAMOND
        places = corners((x + right, y + down) for right, down in outline)
        return element("polygon", points=places, fill=self.colour)


Looks = Mapping[str, _Look]


def scaling_svg(panels: Sequence[ScalingPanel], title: str, basis: str) -> str:
    """Two panels a row; the same batch, link and remedy looks the same in each. `basis` says where and
    when it was measured."""
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    looks = {
        label: _Look(COLOURS[i % len(COLOURS)], _SHAPES[i % len(_SHAPES)])
        for i, label in enumerate(labels)
    }
    frame = _Frame(panels, labels, heads=(title, basis))
    parts = [words("text", basis, class_="soft", x=CHART_EDGE, y=43)]
    for index, panel in enumerate(panels):
        row, column = divmod(index, frame.columns)
        inside = "\n".join(["", *_panel(panel, frame, looks), ""])
        parts.append(moved(inside, column * frame.panel_width, _HEAD + row * frame.panel_height))
    return chart_page(parts, frame.width, frame.height, title=title)


class _Frame:
    """Sizes that all panels of a picture share, and where a value is in a panel."""

    def __init__(
        self, panels: Sequence[ScalingPanel], labels: Sequence[str], heads: Sequence[str]
    ) -> None:
        self.columns = 1 if len(panels) == 1 else 2
        self.plot_width = _PLOT_WIDTH_ALONE if self.columns == 1 else _PLOT_WIDTH
        most_lines = max((len(panel.lines) for panel in panels), default=1)
        self.plot_height = max(_PLOT_HEIGHT, (most_lines + 1) * _LABEL_HEIGHT)
        room = max((len(label) for label in labels), default=0) + len("100 %  ")
        texts = [t for panel in panels for t in (panel.title, panel.weighs, *panel.below)]
        self.panel_width = max(
            _LEFT + self.plot_width + 26 + math.ceil(room * _LETTER) + CHART_EDGE, _width_of(texts)
        )
        most_below = max((len(panel.below) for panel in panels), default=0)
        self.panel_height = _TOP + self.plot_height + _FOOT + _WORDS_HEIGHT * most_below + 12
        self.width = max(self.columns * self.panel_width, _width_of(heads))
        self.height = _HEAD + math.ceil(len(panels) / self.columns) * self.panel_height
        every = [p for panel in panels for line in panel.lines for p in line.points]
        self.most_workers = max((p.workers for p in every), default=1)
        highest = max((p.efficiency for p in every), default=1.0)
        self.top_share = max(1.0, math.ceil(highest * 4 - 0.2) / 4)  # noise above 100 % has room

    def x(self, workers: float) -> float:
        return _LEFT + self.plot_width * (workers - 1) / max(1, self.most_workers - 1)

    def y(self, efficiency: float) -> float:
        return _TOP + self.plot_height * (1 - efficiency / self.top_share)

    @property
    def foot(self) -> float:
        return _TOP + self.plot_height


def _width_of(texts: Sequence[str]) -> int:
    longest = max((len(text) for text in texts), default=0)
    return math.ceil(longest * _LETTER * 13 / 12) + 2 * CHART_EDGE


def _panel(panel: ScalingPanel, frame: _Frame, looks: Looks) -> list[str]:
    middle = _LEFT + frame.plot_width / 2
    parts = [
        words("text", panel.title, class_="panel", x=CHART_EDGE, y=20),
        words("text", panel.weighs, class_="soft", x=CHART_EDGE, y=38),
        words("text", "scaling efficiency; dashed: ideal", class_="soft", x=_LEFT, y=_TOP - 10),
        words("text", panel.members, class_="soft", x=middle, y=frame.foot + 35, text_anchor="middle"),
        *(_level(quarter / 4, frame) for quarter in range(round(4 * frame.top_share) + 1)),
        *(
            words("text", str(workers), class_="soft", x=frame.x(workers), y=frame.foot + 18,
                  text_anchor="middle")
            for workers in _ticks(panel)
        ),
    ]  # fmt: skip
    for line in panel.lines:
        parts += _drawn(line, frame, looks[line.label])
    parts += _labels(panel.lines, frame, looks)
    below = frame.foot + _FOOT + 14
    return parts + [
        words("text", content, class_="words", x=CHART_EDGE, y=below + i * _WORDS_HEIGHT)
        for i, content in enumerate(panel.below)
    ]


def _level(share: float, frame: _Frame) -> str:
    """A line across the plot, and how much of ideal it stands for."""
    y, look = frame.y(share), "ideal" if share == 1 else "grid"
    across = element("line", class_=look, x1=_LEFT, x2=frame.x(frame.most_workers), y1=y, y2=y)
    return across + words(
        "text", format_share(share), class_="soft", x=_LEFT - 8, y=y + 4, text_anchor="end"
    )


def _ticks(panel: ScalingPanel) -> list[int]:
    counts = sorted({p.workers for line in panel.lines for p in line.points})
    return counts[:: math.ceil(len(counts) / _MOST_TICKS)] if counts else []


def _drawn(line: ScalingLine, frame: _Frame, look: _Look) -> list[str]:
    places = [(frame.x(p.workers), frame.y(p.efficiency)) for p in line.points]
    return [
        element("polyline", class_="line", stroke=look.colour, points=corners(places)),
        *(
            element("g", words("title", _tooltip(line, point)) + look.draw(x, y))
            for (x, y), point in zip(places, line.points, strict=True)
        ),
    ]


def _tooltip(line: ScalingLine, point: ScalingPoint) -> str:
    rate = f"{format_per_second(point.samples_per_second)} samples/s"
    return f"{line.label}, {point.workers}: {rate}, {format_share(point.efficiency)}"


def _labels(lines: Sequence[ScalingLine], frame: _Frame, looks: Looks) -> list[str]:
    """At the end of each line what it is; moved apart where lines end close together."""
    ordered = sorted(lines, key=lambda line: -line.points[-1].efficiency)
    wanted = [frame.y(line.points[-1].efficiency) for line in ordered]
    placed: list[float] = []
    for i, y in enumerate(wanted):
        lowest = frame.foot - _LABEL_HEIGHT * (len(wanted) - 1 - i)
        after = placed[-1] + _LABEL_HEIGHT if placed else y
        placed.append(min(max(y, after), lowest))
    x = frame.x(frame.most_workers) + 18
    parts = []
    for line, y, label_y in zip(ordered, wanted, placed, strict=True):
        last = line.points[-1]
        start = frame.x(last.workers) + 6
        says = f"{format_share(last.efficiency)}, {line.label}"
        parts.append(
            element("line", class_="leader", x1=start, x2=x - 7, y1=y, y2=label_y)
            + looks[line.label].draw(x, label_y)
            + words("text", says, x=x + 9, y=label_y + 4)
        )
    return parts
