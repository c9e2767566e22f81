"""What the lines and colours of this drawing mean; only what is in it is explained."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.draw.markup import element, path, text, wrap
from gpuyard.draw.palette import FADED, FRAME, GROUND
from gpuyard.draw.topology.heatmap import HeatMap, staged_mark
from gpuyard.draw.topology.layout import Layout
from gpuyard.draw.topology.nvlinks import (
    LinkBundle,
    bundle,
    direct_bundles,
    host_wires,
    switched_bundles,
)
from gpuyard.draw.topology.wires import COLOURS, SOCKET_WEIGHT, nvlink_weight, pcie_weight
from gpuyard.draw.topology.words import class_words, gigabytes, rate, wire_name
from gpuyard.hardware.graph import MachineGraph, Wire, WireKind
from gpuyard.hardware.rings import STAGED_SHARE
from gpuyard.units import format_share

WIDTH = 380.0
_ROW, _SIZE, _SWATCH = 22.0, 12.0, 44.0
_STEPS = 24


class Legend:
    """Collects its rows from the top down; drawn at (0, 0)."""

    def __init__(self, graph: MachineGraph, layout: Layout, heat_map: HeatMap | None) -> None:
        self._drawn: list[str] = []
        self.height = 0.0
        lines = _lines(graph)
        if lines:
            self._heading("Links, per direction")
        for line in lines:
            self._row(_stroke(line), f"{line.says} · {rate(line.bytes_per_second)}")
        if layout.other_wires:
            self._row(_dashed, "second uplink")
        if heat_map is not None:
            self._explain(heat_map)
        if graph.notes:
            self._heading("Notes")
            for note in graph.notes:
                self._paragraph(note)

    def draw(self) -> list[str]:
        return self._drawn

    def _explain(self, heat_map: HeatMap) -> None:
        self._heading("Paths between GPUs")
        for meaning in class_words(heat_map.classes):
            self._paragraph(meaning)
        if heat_map.has_staged:
            self._row(_staged_swatch, "no peer-to-peer: staged through host memory,")
            self._row(None, f"assumed at {format_share(STAGED_SHARE)} of the slowest link")
        if heat_map.scale.high > heat_map.scale.low:
            self._scale(heat_map)

    def _heading(self, content: str) -> None:
        self.height += 12 if self._drawn else 0
        self._drawn.append(text(content, 0, self.height + 12, size=13, bold=True))
        self.height += _ROW

    def _row(self, swatch: Callable[[float], str] | None, content: str) -> None:
        middle = self.height + _ROW / 2
        self._drawn.append(swatch(middle) if swatch else "")
        self._drawn.append(text(content, _SWATCH + 12, middle + 4, size=_SIZE, fill=FADED))
        self.height += _ROW

    def _paragraph(self, content: str) -> None:
        for line in wrap(content, WIDTH, _SIZE, 6):
            self._drawn.append(text(line, 0, self.height + 14, size=_SIZE, fill=FADED))
            self.height += _ROW - 4

    def _scale(self, heat_map: HeatMap) -> None:
        top, width = self.height + 10, 240.0
        for number, step in enumerate(heat_map.scale.steps(_STEPS)):
            self._drawn.append(element("rect", x=number * width / _STEPS, y=top, height=12,
                                       width=width / _STEPS + 0.5, fill=heat_map.scale.fill(step)))  # fmt: skip
        self._drawn.append(element("rect", x=0, y=top, width=width, height=12, fill="none", stroke=FRAME))  # fmt: skip
        low, high = gigabytes(heat_map.scale.low), gigabytes(heat_map.scale.high)
        self._drawn.append(text(f"{low} GB/s", 0, top + 27, size=11, fill=FADED))
        self._drawn.append(text(f"{high} GB/s", width, top + 27, size=11, fill=FADED, anchor="end"))
        self.height += 42


@dataclass(frozen=True)
class _Line:
    """One look of a line, what it says, and its rate."""

    kind: WireKind
    weight: float
    says: str
    bytes_per_second: float


def _lines(graph: MachineGraph) -> list[_Line]:
    """Each look once: socket links, then PCIe, then NVLink, fast ones first."""
    order = ("socket", "pcie", "nvlink", "fabric")
    found = {_host_line(wire) for wire in graph.wires if wire.kind in ("socket", "pcie")}
    bundles = [*switched_bundles(graph).values(), *direct_bundles(graph).values()]
    bundles += [bundle([wire]) for wire in host_wires(graph)]
    found |= {_nvlink_line(links) for links in bundles}
    return sorted(
        found, key=lambda line: (order.index(line.kind), -line.bytes_per_second, line.says)
    )


def _host_line(wire: Wire) -> _Line:
    if wire.kind == "pcie":
        return _Line("pcie", pcie_weight(wire), wire_name(wire), wire.bytes_per_second)
    says = "link between CPUs" if wire.width == 1 else f"{wire.width} links between CPUs"
    return _Line("socket", SOCKET_WEIGHT, says, wire.bytes_per_second)


def _nvlink_line(links: LinkBundle) -> _Line:
    generation = f" {links.generation}" if links.generation else ""
    what = f"NVLink{generation}" if links.kind == "nvlink" else "link between GPUs"
    says = f"{links.name}: {links.links} × {what}"
    return _Line(links.kind, nvlink_weight(links.links), says, links.bytes_per_second)


def _stroke(line: _Line) -> Callable[[float], str]:
    def draw(middle: float) -> str:
        return path(["M", 0.0, middle, "H", _SWATCH], stroke=COLOURS[line.kind],
                    stroke_width=line.weight)  # fmt: skip

    return draw


def _dashed(middle: float) -> str:
    return path(["M", 0.0, middle, "H", _SWATCH], stroke=COLOURS["pcie"], stroke_width=1.9,
                stroke_dasharray="5 4")  # fmt: skip


def _staged_swatch(middle: float) -> str:
    box = element("rect", x=10, y=middle - 8, width=24, height=16, fill=GROUND, stroke=FRAME)
    return box + staged_mark(33.5, middle - 7.5)
