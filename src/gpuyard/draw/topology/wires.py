"""Draws the wires of a block diagram and their labels. Adjacent identical wires share one label."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from gpuyard.draw.markup import path, text, text_width
from gpuyard.draw.palette import BACKGROUND, BLUE, MUTED
from gpuyard.draw.topology.columns import Box
from gpuyard.draw.topology.labels import format_rate, format_wire_name
from gpuyard.draw.topology.layout import Layout, Route, SocketLink
from gpuyard.draw.topology.nvlinks import Arc, bundle_switch_links, find_host_nvlinks
from gpuyard.hardware.graph import MachineGraph, Wire, WireKind

Name = tuple[str, str]
Points = tuple[tuple[float, float], ...]

COLORS: dict[WireKind, str] = {
    "pcie": BLUE[1],
    "socket": "#d97706",
    "nvlink": "#5c9411",
    "fabric": "#b45309",
    "internal": "#64748b",
}
_LINE = 13.0
_LABEL = 11.0
_LABEL_BESIDE = 6.0  # distance from a wire
_LABEL_ABOVE = 24.0  # distance from a box to the first of two lines
_LABEL_BELOW = 17.0  # distance from the last track
_CORNER = 4.0
SOCKET_WEIGHT = 7.0


@dataclass(frozen=True)
class Label:
    """A label of two lines: the name of a wire and its rate."""

    lines: Name
    x: float
    y: float
    centered: bool = False

    @property
    def right(self) -> float:
        width = max(text_width(line, _LABEL) for line in self.lines)
        return self.x + (width / 2 if self.centered else width)


def get_pcie_weight(wire: Wire) -> float:
    """Return the line thickness, which grows with the number of lanes."""
    return {16: 2.6, 8: 1.9, 4: 1.4}.get(wire.width, 2.6 if wire.width > 16 else 1.1)


def get_nvlink_weight(links: int) -> float:
    return min(1.6 + 0.9 * (links - 1), 4.5)


def draw_wires(graph: MachineGraph, layout: Layout) -> list[str]:
    """Draw all wires, which lie under the boxes."""
    drawn = [_draw_socket_link(link, layout) for link in layout.socket_links]
    drawn += [_draw_other_wire(wire, layout) for wire in layout.other_wires]
    drawn += [_draw_pcie_wire(route) for route in layout.routes]
    drawn += [_draw_arc(arc) for arc in sorted(layout.arcs, key=lambda arc: -arc.depth)]
    return drawn + _draw_nvswitch_links(graph, layout) + _draw_host_nvlinks(graph, layout)


def draw_labels(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    """Draw all labels, which lie on top of the wires."""
    drawn = [_draw_socket_label(link, layout) for link in layout.socket_links]
    drawn += [_draw_pcie_label(label) for label in labels]
    drawn += [
        text(arc.bundle.name, (arc.x1 + arc.x2) / 2, arc.y + arc.depth + 4, size=_LABEL,
             fill=COLORS[arc.bundle.kind], anchor="middle", bold=True, halo=BACKGROUND)
        for arc in layout.arcs
    ]  # fmt: skip
    for gpu, bundle in bundle_switch_links(graph).items():
        box = layout.boxes[gpu]
        drawn.append(text(bundle.name, box.middle + 7, box.bottom + 27, size=_LABEL,
                          fill=COLORS["nvlink"], bold=True))  # fmt: skip
    return drawn


def round_corners(points: Points) -> list[str | float]:
    """Return path data for a line with rounded corners."""
    distinct = [points[0], *(b for a, b in pairwise(points) if a != b)]
    data: list[str | float] = ["M", *distinct[0]]
    for before, corner, after in zip(distinct, distinct[1:], distinct[2:], strict=False):
        data += ["L", *_move_toward(corner, before), "Q", *corner, *_move_toward(corner, after)]
    return [*data, "L", *distinct[-1]]


def _move_toward(corner: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    dx, dy = end[0] - corner[0], end[1] - corner[1]
    length = abs(dx) + abs(dy)  # every line runs along an axis
    share = min(_CORNER, length / 2) / length
    return corner[0] + dx * share, corner[1] + dy * share


def _draw_pcie_wire(route: Route) -> str:
    return path(round_corners(route.points), stroke=COLORS[route.wire.kind],
                stroke_width=get_pcie_weight(route.wire))  # fmt: skip


def _draw_pcie_label(label: Label) -> str:
    anchor = "middle" if label.centered else "start"
    colors = (COLORS["pcie"], MUTED)
    return "".join(
        text(line, label.x, label.y + _LINE * number, size=_LABEL, fill=color,
             anchor=anchor, halo=BACKGROUND)
        for number, (line, color) in enumerate(zip(label.lines, colors, strict=True))
    )  # fmt: skip


def _draw_other_wire(wire: Wire, layout: Layout) -> str:
    upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: (b.y, b.x))
    points = _elbow(upper, lower, lower.x + lower.width * 0.9)
    return path(round_corners(points), stroke=COLORS[wire.kind], stroke_width=get_pcie_weight(wire),
                stroke_dasharray="5 4")  # fmt: skip


def _draw_socket_link(link: SocketLink, layout: Layout) -> str:
    left, right = layout.boxes[link.left], layout.boxes[link.right]
    if link.lift:
        y = _get_overhead_y(left, link)
        inset = 16 + link.lift / 4
        points: Points = (
            (left.right - inset, left.y), (left.right - inset, y), (right.x + inset, y), (right.x + inset, right.y),
        )  # fmt: skip
    else:
        y = _get_link_y(left)
        points = ((left.right, y), (right.x, y))
    return path(round_corners(points), stroke=COLORS["socket"],
                stroke_width=SOCKET_WEIGHT - (3 if link.lift else 0))  # fmt: skip


def _draw_socket_label(link: SocketLink, layout: Layout) -> str:
    left, right = layout.boxes[link.left], layout.boxes[link.right]
    y = _get_overhead_y(left, link) - 6 if link.lift else _get_link_y(left) - 9
    rate = format_rate(link.wire.bytes_per_second)
    count = f"{link.wire.width} × " if link.wire.width > 1 else ""
    label = f"{count}socket link · {rate}" if right.x - left.right > 150 else rate
    return text(label, (left.right + right.x) / 2, y,
                size=_LABEL, fill=COLORS["socket"], anchor="middle", bold=True, halo=BACKGROUND)  # fmt: skip


def _get_overhead_y(cpu: Box, link: SocketLink) -> float:
    return cpu.y - link.lift + 16


def _get_link_y(cpu: Box) -> float:
    return cpu.y + 28


def _draw_arc(arc: Arc) -> str:
    low = arc.y + arc.depth * 4 / 3  # a cubic curve extends to three quarters of its handles
    return path(["M", arc.x1, arc.y, "C", arc.x1, low, arc.x2, low, arc.x2, arc.y],
                stroke=COLORS[arc.bundle.kind], stroke_width=get_nvlink_weight(arc.bundle.links))  # fmt: skip


def _draw_nvswitch_links(graph: MachineGraph, layout: Layout) -> list[str]:
    """Draw one line straight down from each GPU, because it connects to all switches alike."""
    tops = [layout.boxes[switch.id].y for switch in graph.devices_of_kind("nvswitch")]
    return [
        path(["M", layout.boxes[gpu].middle, layout.boxes[gpu].bottom, "V", tops[0]],
             stroke=COLORS["nvlink"], stroke_width=get_nvlink_weight(bundle.links))
        for gpu, bundle in bundle_switch_links(graph).items()
    ]  # fmt: skip


def _draw_host_nvlinks(graph: MachineGraph, layout: Layout) -> list[str]:
    """Draw NVLinks from the host down to the right half of a GPU."""
    drawn = []
    for wire in find_host_nvlinks(graph):
        upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: b.y)
        points = _elbow(upper, lower, lower.x + lower.width * 0.85)
        drawn.append(
            path(
                round_corners(points),
                stroke=COLORS["nvlink"],
                stroke_width=get_nvlink_weight(wire.width),
            )
        )
    return drawn


def _elbow(upper: Box, lower: Box, x: float) -> Points:
    out, turn = upper.right - 12, lower.y - 6
    return (out, upper.bottom), (out, turn), (x, turn), (x, lower.y)


def place_pcie_labels(layout: Layout) -> list[Label]:
    """Place the labels of all PCIe wires, parent by parent."""
    labels: list[Label] = []
    for parent in dict.fromkeys(route.parent for route in layout.routes):
        labels += _place_under_parent([r for r in layout.routes if r.parent == parent], layout)
    return labels


def _place_under_parent(routes: list[Route], layout: Layout) -> list[Label]:
    if len(routes) == 1:
        x = routes[0].drop + _LABEL_BESIDE
        return [Label(_format_lines(routes[0]), x, _get_label_y(routes))]
    common, count = Counter(_format_lines(route) for route in routes).most_common(1)[0]
    shared = _place_shared(routes, common) if 2 * count > len(routes) else None
    if shared is None:
        return _place_separate(routes, layout)
    return [shared, *_place_separate([r for r in routes if _format_lines(r) != common], layout)]


def _place_shared(routes: list[Route], common: Name) -> Label | None:
    """Place one label between two of the wires that it describes, near the middle. Return None if it does not fit."""
    lines = (common[0], f"{common[1]} each")
    width = max(text_width(line, _LABEL) for line in lines) + _LABEL_BESIDE
    gaps = [
        (left.drop + right.drop) / 2
        for left, right in pairwise(routes)
        if _format_lines(left) == _format_lines(right) == common and right.drop - left.drop > width
    ]
    if not gaps:
        return None
    middle = (routes[0].drop + routes[-1].drop) / 2
    x = min(gaps, key=lambda gap: abs(gap - middle))
    return Label(lines, x, _get_label_y(routes), centered=True)


def _place_separate(routes: list[Route], layout: Layout) -> list[Label]:
    """Place each label next to its wire; of identical wires close together, only the last has a label."""
    labels = []
    for number, route in enumerate(routes):
        after = routes[number + 1] if number + 1 < len(routes) else None
        lines = _format_lines(route)
        y = layout.boxes[route.child].y - _LABEL_ABOVE
        label = Label(lines, route.drop + _LABEL_BESIDE, y)
        if after is None or _format_lines(after) != lines or after.drop >= label.right:
            labels.append(label)
    return labels


def _get_label_y(routes: list[Route]) -> float:
    return max(route.points[1][1] for route in routes) + _LABEL_BELOW


def _format_lines(route: Route) -> Name:
    return format_wire_name(route.wire), format_rate(route.wire.bytes_per_second)
