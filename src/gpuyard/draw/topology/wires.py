"""The lines of a diagram: PCIe in right angles, socket links thick, NVLink in green."""

from itertools import pairwise

from gpuyard.draw.markup import path, text
from gpuyard.draw.palette import FADED, GROUND, WIRES
from gpuyard.draw.topology.arcs import Arc
from gpuyard.draw.topology.boxes import Box
from gpuyard.draw.topology.labels import SIZE as LABEL_SIZE
from gpuyard.draw.topology.labels import Label
from gpuyard.draw.topology.layout import Layout, SocketLink
from gpuyard.draw.topology.nvlinks import host_wires, switched_bundles
from gpuyard.draw.topology.routes import Route
from gpuyard.draw.topology.words import rate
from gpuyard.hardware.graph import MachineGraph, Wire

Points = tuple[tuple[float, float], ...]

_LINE = 13.0
_CORNER = 4.0
SOCKET_WEIGHT = 7.0


def pcie_weight(wire: Wire) -> float:
    """Thicker with more lanes."""
    return {16: 2.6, 8: 1.9, 4: 1.4}.get(wire.width, 2.6 if wire.width > 16 else 1.1)


def nvlink_weight(links: int) -> float:
    return min(1.6 + 0.9 * (links - 1), 4.5)


def draw_wires(graph: MachineGraph, layout: Layout) -> list[str]:
    """Everything that lies under the boxes."""
    drawn = [_socket_line(link, layout) for link in layout.socket_links]
    drawn += [_beside(wire, layout) for wire in layout.beside]
    drawn += [_pcie_line(route) for route in layout.routes]
    drawn += [_arc(arc) for arc in sorted(layout.arcs, key=lambda arc: -arc.depth)]
    return drawn + _nvswitch_lines(graph, layout) + _host_nvlinks(graph, layout)


def draw_labels(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    """What lies on top of the wires."""
    drawn = [_socket_label(link, layout) for link in layout.socket_links]
    drawn += [_pcie_label(label) for label in labels]
    drawn += [
        text(f"NV{arc.links}", (arc.x1 + arc.x2) / 2, arc.y + arc.depth + 4, size=LABEL_SIZE,
             fill=WIRES["nvlink"], anchor="middle", bold=True, halo=GROUND)
        for arc in layout.arcs
    ]  # fmt: skip
    for gpu, bundle in switched_bundles(graph).items():
        box = layout.boxes[gpu]
        drawn.append(text(bundle.name, box.middle + 7, box.bottom + 27, size=LABEL_SIZE,
                          fill=WIRES["nvlink"], bold=True))  # fmt: skip
    return drawn


def rounded(points: Points) -> list[str | float]:
    """A line with its corners taken off."""
    kept = [points[0], *(b for a, b in pairwise(points) if a != b)]
    data: list[str | float] = ["M", *kept[0]]
    for before, corner, after in zip(kept, kept[1:], kept[2:], strict=False):
        data += ["L", *_towards(corner, before), "Q", *corner, *_towards(corner, after)]
    return [*data, "L", *kept[-1]]


def _towards(corner: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    dx, dy = end[0] - corner[0], end[1] - corner[1]
    length = abs(dx) + abs(dy)  # every line runs along an axis
    share = min(_CORNER, length / 2) / length
    return corner[0] + dx * share, corner[1] + dy * share


def _pcie_line(route: Route) -> str:
    return path(rounded(route.points), stroke=WIRES[route.wire.kind],
                stroke_width=pcie_weight(route.wire))  # fmt: skip


def _pcie_label(label: Label) -> str:
    anchor = "middle" if label.centred else "start"
    colours = (WIRES["pcie"], FADED)
    return "".join(
        text(line, label.x, label.y + _LINE * number, size=LABEL_SIZE, fill=colour,
             anchor=anchor, halo=GROUND)
        for number, (line, colour) in enumerate(zip(label.lines, colours, strict=True))
    )  # fmt: skip


def _beside(wire: Wire, layout: Layout) -> str:
    upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: (b.y, b.x))
    points = _elbow(upper, lower, lower.x + lower.width * 0.9)
    return path(rounded(points), stroke=WIRES[wire.kind], stroke_width=pcie_weight(wire),
                stroke_dasharray="5 4")  # fmt: skip


def _socket_line(link: SocketLink, layout: Layout) -> str:
    left, right = layout.boxes[link.left], layout.boxes[link.right]
    if link.lift:
        y = _overhead(left, link)
        inset = 16 + link.lift / 4
        points: Points = (
            (left.right - inset, left.y), (left.right - inset, y), (right.x + inset, y), (right.x + inset, right.y),
        )  # fmt: skip
    else:
        y = _socket_height(left)
        points = ((left.right, y), (right.x, y))
    return path(rounded(points), stroke=WIRES["socket"],
                stroke_width=SOCKET_WEIGHT - (3 if link.lift else 0))  # fmt: skip


def _socket_label(link: SocketLink, layout: Layout) -> str:
    left, right = layout.boxes[link.left], layout.boxes[link.right]
    y = _overhead(left, link) - 6 if link.lift else _socket_height(left) - 9
    wide = right.x - left.right > 150
    each = f"{link.wire.width} × " if link.wire.width > 1 else ""
    says = f"{each}socket link · {rate(link.wire.bytes_per_second)}"
    return text(says if wide else rate(link.wire.bytes_per_second), (left.right + right.x) / 2, y,
                size=LABEL_SIZE, fill=WIRES["socket"], anchor="middle", bold=True, halo=GROUND)  # fmt: skip


def _overhead(cpu: Box, link: SocketLink) -> float:
    return cpu.y - link.lift + 16


def _socket_height(cpu: Box) -> float:
    return cpu.y + 28


def _arc(arc: Arc) -> str:
    low = arc.y + arc.depth * 4 / 3  # a cubic curve reaches three quarters of its handles
    return path(["M", arc.x1, arc.y, "C", arc.x1, low, arc.x2, low, arc.x2, arc.y],
                stroke=WIRES["nvlink"], stroke_width=nvlink_weight(arc.links))  # fmt: skip


def _nvswitch_lines(graph: MachineGraph, layout: Layout) -> list[str]:
    """Straight down from each GPU: the switches work as one, whichever of them lies below it."""
    tops = [layout.boxes[switch.id].y for switch in graph.of_kind("nvswitch")]
    return [
        path(["M", layout.boxes[gpu].middle, layout.boxes[gpu].bottom, "V", tops[0]],
             stroke=WIRES["nvlink"], stroke_width=nvlink_weight(bundle.links))
        for gpu, bundle in switched_bundles(graph).items()
    ]  # fmt: skip


def _host_nvlinks(graph: MachineGraph, layout: Layout) -> list[str]:
    """From the host down to the right half of a GPU."""
    drawn = []
    for wire in host_wires(graph):
        upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: b.y)
        points = _elbow(upper, lower, lower.x + lower.width * 0.85)
        drawn.append(
            path(rounded(points), stroke=WIRES["nvlink"], stroke_width=nvlink_weight(wire.width))
        )
    return drawn


def _elbow(upper: Box, lower: Box, x: float) -> Points:
    out, turn = upper.right - 12, lower.y - 6
    return (out, upper.bottom), (out, turn), (x, turn), (x, lower.y)
