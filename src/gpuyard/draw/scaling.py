"""Draws scaling efficiency over the number of nodes as a standalone SVG, with one panel per workload."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.draw.markup import (
    CHART_EDGE,
    element,
    format_points,
    render_chart,
    text_element,
    translate,
)
from gpuyard.draw.palette import COLORS
from gpuyard.units import format_per_second, format_share

_LEFT, _TOP, _FOOT = 58, 74, 44
_PLOT_WIDTH, _PLOT_WIDTH_ALONE, _PLOT_HEIGHT = 230, 470, 200
_LABEL_HEIGHT, _SENTENCE_HEIGHT, _HEADER_HEIGHT = 16, 18, 58
_LETTER_WIDTH = 6.4  # width of the widest usual letters at 12 px, so that no label is cut
_MAX_TICKS = 10
_TRIANGLE = ((0.0, -5.0), (4.6, 3.6), (-4.6, 3.6))
_DIAMOND = ((0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0))
_SHAPES = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class ScalingPoint:
    """Scaling efficiency on a number of workers; repeated measurements are averaged."""

    workers: int
    efficiency: float
    samples_per_second: float


@dataclass(frozen=True)
class ScalingLine:
    """One combination of batch size, link, and remedy; `sentence` describes its point with the most workers."""

    label: str
    points: tuple[ScalingPoint, ...]
    sentence: str


@dataclass(frozen=True)
class ScalingPanel:
    """One workload on one kind of device. `left_out` names the lines without a run on one worker."""

    title: str
    traffic: str
    members: str
    lines: tuple[ScalingLine, ...]
    sentences: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """The lines of text under the plot."""
        if not self.left_out:
            return list(self.sentences)
        missing = f"not drawn, no run on 1 {self.members.removesuffix('s')}: "
        return [*self.sentences, missing + "; ".join(self.left_out)]


@dataclass(frozen=True)
class _Marker:
    """Color and shape of a line's points."""

    color: str
    shape: str

    def draw(self, x: float, y: float) -> str:
        if self.shape == "circle":
            return element("circle", cx=x, cy=y, r=4, fill=self.color)
        if self.shape == "square":
            return element("rect", x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, fill=self.color)
        outline = _TRIANGLE if self.shape == "triangle" else _DIAMOND
        points = format_points((x + right, y + down) for right, down in outline)
        return element("polygon", points=points, fill=self.color)


Markers = Mapping[str, _Marker]


def draw_scaling_svg(panels: Sequence[ScalingPanel], title: str, basis: str) -> str:
    """Draw the panels two per row. Equal labels look the same in every panel. `basis` describes the measurement."""
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    markers = {
        label: _Marker(COLORS[i % len(COLORS)], _SHAPES[i % len(_SHAPES)])
        for i, label in enumerate(labels)
    }
    frame = _Frame(panels, labels, headers=(title, basis))
    parts = [text_element("text", basis, class_="soft", x=CHART_EDGE, y=43)]
    for index, panel in enumerate(panels):
        row, column = divmod(index, frame.columns)
        inside = "\n".join(["", *_draw_panel(panel, frame, markers), ""])
        top = _HEADER_HEIGHT + row * frame.panel_height
        parts.append(translate(inside, column * frame.panel_width, top))
    return render_chart(parts, frame.width, frame.height, title=title)


class _Frame:
    """Sizes that all panels of a picture share, and the scales of their axes."""

    def __init__(
        self, panels: Sequence[ScalingPanel], labels: Sequence[str], headers: Sequence[str]
    ) -> None:
        self.columns = 1 if len(panels) == 1 else 2
        self.plot_width = _PLOT_WIDTH_ALONE if self.columns == 1 else _PLOT_WIDTH
        max_lines = max((len(panel.lines) for panel in panels), default=1)
        self.plot_height = max(_PLOT_HEIGHT, (max_lines + 1) * _LABEL_HEIGHT)
        label_length = max((len(label) for label in labels), default=0) + len("100%  ")
        texts = [t for panel in panels for t in (panel.title, panel.traffic, *panel.notes)]
        self.panel_width = max(
            _LEFT + self.plot_width + 26 + math.ceil(label_length * _LETTER_WIDTH) + CHART_EDGE,
            _get_max_width(texts),
        )
        max_notes = max((len(panel.notes) for panel in panels), default=0)
        self.panel_height = _TOP + self.plot_height + _FOOT + _SENTENCE_HEIGHT * max_notes + 12
        self.width = max(self.columns * self.panel_width, _get_max_width(headers))
        rows = math.ceil(len(panels) / self.columns)
        self.height = _HEADER_HEIGHT + rows * self.panel_height
        points = [p for panel in panels for line in panel.lines for p in line.points]
        self.max_workers = max((p.workers for p in points), default=1)
        highest = max((p.efficiency for p in points), default=1.0)
        # a little noise above 100% does not add another level
        self.top_share = max(1.0, math.ceil(highest * 4 - 0.2) / 4)

    def x(self, workers: float) -> float:
        return _LEFT + self.plot_width * (workers - 1) / max(1, self.max_workers - 1)

    def y(self, efficiency: float) -> float:
        return _TOP + self.plot_height * (1 - efficiency / self.top_share)

    @property
    def foot(self) -> float:
        return _TOP + self.plot_height


def _get_max_width(texts: Sequence[str]) -> int:
    longest = max((len(text) for text in texts), default=0)
    return math.ceil(longest * _LETTER_WIDTH * 13 / 12) + 2 * CHART_EDGE


def _draw_panel(panel: ScalingPanel, frame: _Frame, markers: Markers) -> list[str]:
    middle = _LEFT + frame.plot_width / 2
    parts = [
        text_element("text", panel.title, class_="panel", x=CHART_EDGE, y=20),
        text_element("text", panel.traffic, class_="soft", x=CHART_EDGE, y=38),
        text_element("text", "scaling efficiency; dashed: ideal", class_="soft", x=_LEFT, y=_TOP - 10),
        text_element("text", panel.members, class_="soft", x=middle, y=frame.foot + 35, text_anchor="middle"),
        *(_draw_level(quarter / 4, frame) for quarter in range(round(4 * frame.top_share) + 1)),
        *(
            text_element("text", str(workers), class_="soft", x=frame.x(workers), y=frame.foot + 18,
                  text_anchor="middle")
            for workers in _choose_ticks(panel)
        ),
    ]  # fmt: skip
    for line in panel.lines:
        parts += _draw_line(line, frame, markers[line.label])
    parts += _draw_labels(panel.lines, frame, markers)
    top = frame.foot + _FOOT + 14
    return parts + [
        text_element("text", note, class_="words", x=CHART_EDGE, y=top + i * _SENTENCE_HEIGHT)
        for i, note in enumerate(panel.notes)
    ]


def _draw_level(share: float, frame: _Frame) -> str:
    """Draw a horizontal line at this share of ideal scaling, with its label."""
    y, style = frame.y(share), "ideal" if share == 1 else "grid"
    line = element("line", class_=style, x1=_LEFT, x2=frame.x(frame.max_workers), y1=y, y2=y)
    return line + text_element(
        "text", format_share(share), class_="soft", x=_LEFT - 8, y=y + 4, text_anchor="end"
    )


def _choose_ticks(panel: ScalingPanel) -> list[int]:
    counts = sorted({p.workers for line in panel.lines for p in line.points})
    return counts[:: math.ceil(len(counts) / _MAX_TICKS)] if counts else []


def _draw_line(line: ScalingLine, frame: _Frame, marker: _Marker) -> list[str]:
    coordinates = [(frame.x(p.workers), frame.y(p.efficiency)) for p in line.points]
    return [
        element("polyline", class_="line", stroke=marker.color, points=format_points(coordinates)),
        *(
            element("g", text_element("title", _format_tooltip(line, point)) + marker.draw(x, y))
            for (x, y), point in zip(coordinates, line.points, strict=True)
        ),
    ]


def _format_tooltip(line: ScalingLine, point: ScalingPoint) -> str:
    rate = f"{format_per_second(point.samples_per_second)} samples/s"
    return f"{line.label}, {point.workers}: {rate}, {format_share(point.efficiency)}"


def _draw_labels(lines: Sequence[ScalingLine], frame: _Frame, markers: Markers) -> list[str]:
    """Label each line at its end; move labels apart if lines end close together."""
    ordered = sorted(lines, key=lambda line: -line.points[-1].efficiency)
    ends = [frame.y(line.points[-1].efficiency) for line in ordered]
    placed: list[float] = []
    for i, y in enumerate(ends):
        lowest = frame.foot - _LABEL_HEIGHT * (len(ends) - 1 - i)
        after = placed[-1] + _LABEL_HEIGHT if placed else y
        placed.append(min(max(y, after), lowest))
    x = frame.x(frame.max_workers) + 18
    parts = []
    for line, y, label_y in zip(ordered, ends, placed, strict=True):
        last = line.points[-1]
        start = frame.x(last.workers) + 6
        label = f"{format_share(last.efficiency)}, {line.label}"
        parts.append(
            element("line", class_="leader", x1=start, x2=x - 7, y1=y, y2=label_y)
            + markers[line.label].draw(x, label_y)
            + text_element("text", label, x=x + 9, y=label_y + 4)
        )
    return parts
