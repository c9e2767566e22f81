"""Draws the legend of a block diagram, which explains only the lines and colors that occur in it."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuyard.draw.markup import element, path, text, wrap
from gpuyard.draw.palette import BACKGROUND, FRAME, MUTED
from gpuyard.draw.topology.heatmap import HeatMap, draw_staged_mark
from gpuyard.draw.topology.labels import (
    describe_path_classes,
    format_gigabytes,
    format_rate,
    format_wire_name,
)
from gpuyard.draw.topology.layout import Layout
from gpuyard.draw.topology.nvlinks import (
    LinkBundle,
    bundle_direct_links,
    bundle_switch_links,
    bundle_wires,
    find_host_nvlinks,
)
from gpuyard.draw.topology.wires import COLORS, SOCKET_WEIGHT, get_nvlink_weight, get_pcie_weight
from gpuyard.hardware.graph import MachineGraph, Wire, WireKind
from gpuyard.hardware.rings import STAGED_SHARE
from gpuyard.units import format_share

WIDTH = 380.0
_ROW, _SIZE, _SWATCH = 22.0, 12.0, 44.0
_STEPS = 24


class Legend:
    """Legend rows from the top down, with the upper left corner at (0, 0)."""

    def __init__(self, graph: MachineGraph, layout: Layout, heat_map: HeatMap | None) -> None:
        self._drawn: list[str] = []
        self.height = 0.0
        lines = _list_lines(graph)
        if lines:
            self._add_heading("Links, per direction")
        for line in lines:
            self._add_row(_make_stroke(line), f"{line.name} · {format_rate(line.bytes_per_second)}")
        if layout.other_wires:
            self._add_row(_draw_dashes, "second uplink")
        if heat_map is not None:
            self._add_heat_map_rows(heat_map)
        if graph.notes:
            self._add_heading("Notes")
            for note in graph.notes:
                self._add_paragraph(note)

    def draw(self) -> list[str]:
        return self._drawn

    def _add_heat_map_rows(self, heat_map: HeatMap) -> None:
        self._add_heading("Paths between GPUs")
        for meaning in describe_path_classes(heat_map.classes):
            self._add_paragraph(meaning)
        if heat_map.has_staged:
            self._add_row(_draw_staged_swatch, "no peer-to-peer: staged through host memory,")
            self._add_row(None, f"assumed at {format_share(STAGED_SHARE)} of the slowest link")
        if heat_map.scale.high > heat_map.scale.low:
            self._add_scale(heat_map)

    def _add_heading(self, content: str) -> None:
        self.height += 12 if self._drawn else 0
        self._drawn.append(text(content, 0, self.height + 12, size=13, bold=True))
        self.height += _ROW

    def _add_row(self, swatch: Callable[[float], str] | None, content: str) -> None:
        middle = self.height + _ROW / 2
        self._drawn.append(swatch(middle) if swatch else "")
        self._drawn.append(text(content, _SWATCH + 12, middle + 4, size=_SIZE, fill=MUTED))
        self.height += _ROW

    def _add_paragraph(self, content: str) -> None:
        for line in wrap(content, WIDTH, _SIZE, 6):
            self._drawn.append(text(line, 0, self.height + 14, size=_SIZE, fill=MUTED))
            self.height += _ROW - 4

    def _add_scale(self, heat_map: HeatMap) -> None:
        top, width = self.height + 10, 240.0
        for number, step in enumerate(heat_map.scale.steps(_STEPS)):
            self._drawn.append(element("rect", x=number * width / _STEPS, y=top, height=12,
                                       width=width / _STEPS + 0.5, fill=heat_map.scale.fill(step)))  # fmt: skip
        self._drawn.append(element("rect", x=0, y=top, width=width, height=12, fill="none", stroke=FRAME))  # fmt: skip
        low, high = format_gigabytes(heat_map.scale.low), format_gigabytes(heat_map.scale.high)
        self._drawn.append(text(f"{low} GB/s", 0, top + 27, size=11, fill=MUTED))
        self._drawn.append(text(f"{high} GB/s", width, top + 27, size=11, fill=MUTED, anchor="end"))
        self.height += 42


@dataclass(frozen=True)
class _Line:
    """A line style of the diagram, with its name and rate."""

    kind: WireKind
    weight: float
    name: str
    bytes_per_second: float


def _list_lines(graph: MachineGraph) -> list[_Line]:
    """Return each line style once: socket links, then PCIe, then NVLink, the fastest first."""
    order = ("socket", "pcie", "nvlink", "fabric")
    lines = {_from_host_wire(wire) for wire in graph.wires if wire.kind in ("socket", "pcie")}
    bundles = [*bundle_switch_links(graph).values(), *bundle_direct_links(graph).values()]
    bundles += [bundle_wires([wire]) for wire in find_host_nvlinks(graph)]
    lines |= {_from_bundle(bundle) for bundle in bundles}
    return sorted(
        lines, key=lambda line: (order.index(line.kind), -line.bytes_per_second, line.name)
    )


def _from_host_wire(wire: Wire) -> _Line:
    if wire.kind == "pcie":
        return _Line("pcie", get_pcie_weight(wire), format_wire_name(wire), wire.bytes_per_second)
    name = "link between CPUs" if wire.width == 1 else f"{wire.width} links between CPUs"
    return _Line("socket", SOCKET_WEIGHT, name, wire.bytes_per_second)


def _from_bundle(bundle: LinkBundle) -> _Line:
    generation = f" {bundle.generation}" if bundle.generation else ""
    link = f"NVLink{generation}" if bundle.kind == "nvlink" else "link between GPUs"
    name = f"{bundle.name}: {bundle.links} × {link}"
    return _Line(bundle.kind, get_nvlink_weight(bundle.links), name, bundle.bytes_per_second)


def _make_stroke(line: _Line) -> Callable[[float], str]:
    def draw(middle: float) -> str:
        return path(["M", 0.0, middle, "H", _SWATCH], stroke=COLORS[line.kind],
                    stroke_width=line.weight)  # fmt: skip

    return draw


def _draw_dashes(middle: float) -> str:
    return path(["M", 0.0, middle, "H", _SWATCH], stroke=COLORS["pcie"], stroke_width=1.9,
                stroke_dasharray="5 4")  # fmt: skip


def _draw_staged_swatch(middle: float) -> str:
    box = element("rect", x=10, y=middle - 8, width=24, height=16, fill=BACKGROUND, stroke=FRAME)
    return box + draw_staged_mark(33.5, middle - 7.5)
