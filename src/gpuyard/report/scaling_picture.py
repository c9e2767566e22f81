"""Measured scaling efficiency over the number of nodes, a panel a workload, as an SVG that stands alone."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from gpuyard.draw.palette import COLOURS
from gpuyard.measure import Measurement
from gpuyard.report.figures.marks import Look
from gpuyard.report.scaling import ScalingLine, ScalingPanel, ScalingPoint, scaling_panels
from gpuyard.units import format_share

_EDGE, _LEFT, _TOP, _FOOT = 14, 58, 74, 44
_PLOT_WIDTH, _PLOT_WIDTH_ALONE, _PLOT_HEIGHT = 230, 470, 200
_LABEL_HEIGHT, _WORDS_HEIGHT, _HEAD = 16, 18, 58
_LETTER = 6.4  # of the widest usual letters at 12 px, so that no label is cut
_SHAPES = ("circle", "rect", "triangle", "diamond")
_MOST_TICKS = 10
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#16191d}
.title{font-weight:600;font-size:15px}.panel{font-weight:600;font-size:13px}.words{font-size:13px}
.soft{fill:#565d67}.page{fill:#fff}.grid{stroke:#d9dde3}.ideal{stroke:#565d67;stroke-dasharray:6 4}
.leader{stroke:#8a8f98;stroke-width:.7}.line{fill:none;stroke-width:2}
@media (prefers-color-scheme:dark){text{fill:#e8eaed}.soft{fill:#a5adb8}.page{fill:#14171b}
.grid{stroke:#363c45}.ideal{stroke:#a5adb8}}
"""


def scaling_svg(measurements: Sequence[Measurement], title: str) -> str:
    """Two panels a row; the same batch, link and remedy looks the same in each."""
    panels = scaling_panels(measurements)
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    looks = {
        label: Look(COLOURS[i % len(COLOURS)], _SHAPES[i % len(_SHAPES)])
        for i, label in enumerate(labels)
    }
    basis = _basis(measurements)
    frame = _Frame(panels, labels, heads=(title, basis))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width} {frame.height}" '
        f'width="{frame.width}" height="{frame.height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{frame.width}" height="{frame.height}"/>',
        f'<text class="title" x="{_EDGE}" y="24">{escape(title)}</text>',
        f'<text class="soft" x="{_EDGE}" y="43">{escape(basis)}</text>',
    ]
    for index, panel in enumerate(panels):
        row, column = divmod(index, frame.columns)
        x, y = column * frame.panel_width, _HEAD + row * frame.panel_height
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, frame, looks), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


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
        texts = [t for panel in panels for t in (panel.title, panel.weighs, *_below(panel))]
        self.panel_width = max(
            _LEFT + self.plot_width + 26 + math.ceil(room * _LETTER) + _EDGE, _width_of(texts)
        )
        most_below = max((len(_below(panel)) for panel in panels), default=0)
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


def _width_of(texts: Sequence[str]) -> int:
    longest = max((len(text) for text in texts), default=0)
    return math.ceil(longest * _LETTER * 13 / 12) + 2 * _EDGE


def _panel(panel: ScalingPanel, frame: _Frame, looks: Mapping[str, Look]) -> list[str]:
    foot = _TOP + frame.plot_height
    parts = [
        f'<text class="panel" x="{_EDGE}" y="20">{escape(panel.title)}</text>',
        f'<text class="soft" x="{_EDGE}" y="38">{escape(panel.weighs)}</text>',
        f'<text class="soft" x="{_LEFT}" y="{_TOP - 10}">scaling efficiency; dashed: ideal</text>',
        f'<text class="soft" x="{_LEFT + frame.plot_width / 2}" y="{foot + 35}" '
        f'text-anchor="middle">{panel.members}</text>',
    ]
    for quarter in range(round(4 * frame.top_share) + 1):
        y, ideal = frame.y(quarter / 4), quarter == 4
        parts.append(
            f'<line class="{"ideal" if ideal else "grid"}" x1="{_LEFT}" x2="{frame.x(frame.most_workers)}" '
            f'y1="{y:.1f}" y2="{y:.1f}"/><text class="soft" x="{_LEFT - 8}" y="{y + 4:.1f}" '
            f'text-anchor="end">{format_share(quarter / 4)}</text>'
        )
    parts += [
        f'<text class="soft" x="{frame.x(workers):.1f}" y="{foot + 18}" '
        f'text-anchor="middle">{workers}</text>'
        for workers in _ticks(panel)
    ]
    for line in panel.lines:
        parts += _drawn(line, frame, looks[line.label])
    parts += _labels(panel.lines, frame, looks)
    parts += [
        f'<text class="words" x="{_EDGE}" y="{foot + _FOOT + 14 + i * _WORDS_HEIGHT}">{escape(text)}</text>'
        for i, text in enumerate(_below(panel))
    ]
    return parts


def _below(panel: ScalingPanel) -> list[str]:
    if not panel.left_out:
        return list(panel.words)
    missing = f"not drawn, without a run on one of the {panel.members}: "
    return [*panel.words, missing + "; ".join(panel.left_out)]


def _ticks(panel: ScalingPanel) -> list[int]:
    counts = sorted({p.workers for line in panel.lines for p in line.points})
    return counts[:: math.ceil(len(counts) / _MOST_TICKS)] if counts else []


def _drawn(line: ScalingLine, frame: _Frame, look: Look) -> list[str]:
    places = [(frame.x(p.workers), frame.y(p.efficiency)) for p in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return [
        f'<polyline class="line" stroke="{look.colour}" points="{path}"/>',
        *(
            f"<g><title>{escape(_told(line, point))}</title>{_shape(x, y, look)}</g>"
            for (x, y), point in zip(places, line.points, strict=True)
        ),
    ]


def _told(line: ScalingLine, point: ScalingPoint) -> str:
    rate = f"{point.samples_per_second:,.1f} samples/s"
    return f"{line.label}, {point.workers}: {rate}, {format_share(point.efficiency)}"


def _labels(lines: Sequence[ScalingLine], frame: _Frame, looks: Mapping[str, Look]) -> list[str]:
    """At the end of each line what it is; moved apart where lines end close together."""
    ordered = sorted(lines, key=lambda line: -line.points[-1].efficiency)
    wanted = [frame.y(line.points[-1].efficiency) for line in ordered]
    placed: list[float] = []
    for i, y in enumerate(wanted):
        lowest = _TOP + frame.plot_height - _LABEL_HEIGHT * (len(wanted) - 1 - i)
        after = placed[-1] + _LABEL_HEIGHT if placed else y
        placed.append(min(max(y, after), lowest))
    x = frame.x(frame.most_workers) + 18
    parts = []
    for line, y, text_y in zip(ordered, wanted, placed, strict=True):
        last = line.points[-1]
        start = frame.x(last.workers) + 6
        parts.append(
            f'<line class="leader" x1="{start:.1f}" x2="{x - 7}" y1="{y:.1f}" y2="{text_y:.1f}"/>'
            f"{_shape(x, text_y, looks[line.label])}"
            f'<text x="{x + 9}" y="{text_y + 4:.1f}">'
            f"{format_share(last.efficiency)}, {escape(line.label)}</text>"
        )
    return parts


def _shape(x: float, y: float, look: Look) -> str:
    fill = f'fill="{look.colour}"'
    match look.symbol:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {fill}/>'
        case "rect":
            return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" {fill}/>'
        case "triangle":
            corners = [(x, y - 5), (x + 4.6, y + 3.6), (x - 4.6, y + 3.6)]
        case _:
            corners = [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    return f'<polygon points="{points}" {fill}/>'


def _basis(measurements: Sequence[Measurement]) -> str:
    """How many runs, where, on what and when."""
    if not measurements:
        return "nothing was measured"
    runs = f"{len(measurements)} run{'s' if len(measurements) > 1 else ''}"
    in_a_lab = any(m.place.kind == "lab" for m in measurements)
    cpus = dict.fromkeys(
        f"{m.provenance.cpu_model}, {m.provenance.cores} cores" for m in measurements
    )
    dilations = sorted({m.place.dilation for m in measurements} - {1.0})
    dilated = " and ".join(f"× {dilation:g}" for dilation in dilations)
    parts = [
        f"{runs} {'in a lab ' if in_a_lab else ''}on {'; '.join(cpus)}",
        f"time dilated {dilated}" if dilated else "",
        max(m.created_at for m in measurements)[:10],
    ]
    return ", ".join(part for part in parts if part)
