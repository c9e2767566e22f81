"""The lines of a diagram: PCIe in right angles, socket links thick, NVLink in green; and which of them are
labelled: one for wires that are alike, so that nothing is said twice."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from gpuyard.draw.markup import path, text, text_width
from gpuyard.draw.palette import BLUE, FADED, GROUND
from gpuyard.draw.topology.columns import Box
from gpuyard.draw.topology.layout import Layout, Route, SocketLink
from gpuyard.draw.topology.nvlinks import Arc, host_wires, switched_bundles
from gpuyard.draw.topology.words import rate, wire_name
from gpuyard.hardware.graph import MachineGraph, Wire, WireKind

Name = tuple[str, str]
Points = tuple[tuple[float, float], ...]

COLOURS: dict[WireKind, str] = {
    "pcie": BLUE[1],
    "socket": "#d97706",
    "nvlink": "#5c9411",
    "fabric": "#b45309",
    "internal": "#64748b",
}
_LINE = 13.0
_LABEL = 11.0
_LABEL_BESIDE = 6.0  # from a wire
_LABEL_ABOVE = 24.0  # from a box to the first of two lines
_LABEL_BELOW = 17.0  # from the last track
_CORNER = 4.0
SOCKET_WEIGHT = 7.0


@dataclass(frozen=True)
class Label:
    """Two lines: what the wire is and its rate."""

    lines: Name
    x: float
    y: float
    centred: bool = False

    @property
    def right(self) -> float:
        width = max(text_width(line, _LABEL) for line in self.lines)
        return self.x + (width / 2 if self.centred else width)


def pcie_weight(wire: Wire) -> float:
    """Thicker with more lanes."""
    return {16: 2.6, 8: 1.9, 4: 1.4}.get(wire.width, 2.6 if wire.width > 16 else 1.1)


def nvlink_weight(links: int) -> float:
    return min(1.6 + 0.9 * (links - 1), 4.5)


def draw_wires(graph: MachineGraph, layout: Layout) -> list[str]:
    """Everything that lies under the boxes."""
    drawn = [_socket_line(link, layout) for link in layout.socket_links]
    drawn += [_other(wire, layout) for wire in layout.other_wires]
    drawn += [_pcie_line(route) for route in layout.routes]
    drawn += [_arc(arc) for arc in sorted(layout.arcs, key=lambda arc: -arc.depth)]
    return drawn + _nvswitch_lines(graph, layout) + _host_nvlinks(graph, layout)


def draw_labels(graph: MachineGraph, layout: Layout, labels: list[Label]) -> list[str]:
    """What lies on top of the wires."""
    drawn = [_socket_label(link, layout) for link in layout.socket_links]
    drawn += [_pcie_label(label) for label in labels]
    drawn += [
        text(arc.bundle.name, (arc.x1 + arc.x2) / 2, arc.y + arc.depth + 4, size=_LABEL,
             fill=COLOURS[arc.bundle.kind], anchor="middle", bold=True, halo=GROUND)
        for arc in layout.arcs
    ]  # fmt: skip
    for gpu, bundle in switched_bundles(graph).items():
        box = layout.boxes[gpu]
        drawn.append(text(bundle.name, box.middle + 7, box.bottom + 27, size=_LABEL,
                          fill=COLOURS["nvlink"], bold=True))  # fmt: skip
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
    return path(rounded(route.points), stroke=COLOURS[route.wire.kind],
                stroke_width=pcie_weight(route.wire))  # fmt: skip


def _pcie_label(label: Label) -> str:
    anchor = "middle" if label.centred else "start"
    colours = (COLOURS["pcie"], FADED)
    return "".join(
        text(line, label.x, label.y + _LINE * number, size=_LABEL, fill=colour,
             anchor=anchor, halo=GROUND)
        for number, (line, colour) in enumerate(zip(label.lines, colours, strict=True))
    )  # fmt: skip


def _other(wire: Wire, layout: Layout) -> str:
    upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: (b.y, b.x))
    points = _elbow(upper, lower, lower.x + lower.width * 0.9)
    return path(rounded(points), stroke=COLOURS[wire.kind], stroke_width=pcie_weight(wire),
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
    return path(rounded(points), stroke=COLOURS["socket"],
                stroke_width=SOCKET_WEIGHT - (3 if link.lift else 0))  # fmt: skip


def _socket_label(link: SocketLink, layout: Layout) -> str:
    left, right = layout.boxes[link.left], layout.boxes[link.right]
    y = _overhead(left, link) - 6 if link.lift else _socket_height(left) - 9
    wide = right.x - left.right > 150
    each = f"{link.wire.width} × " if link.wire.width > 1 else ""
    says = f"{each}socket link · {rate(link.wire.bytes_per_second)}"
    return text(says if wide else rate(link.wire.bytes_per_second), (left.right + right.x) / 2, y,
                size=_LABEL, fill=COLOURS["socket"], anchor="middle", bold=True, halo=GROUND)  # fmt: skip


def _overhead(cpu: Box, link: SocketLink) -> float:
    return cpu.y - link.lift + 16


def _socket_height(cpu: Box) -> float:
    return cpu.y + 28


def _arc(arc: Arc) -> str:
    low = arc.y + arc.depth * 4 / 3  # a cubic curve reaches three quarters of its handles
    return path(["M", arc.x1, arc.y, "C", arc.x1, low, arc.x2, low, arc.x2, arc.y],
                stroke=COLOURS[arc.bundle.kind], stroke_width=nvlink_weight(arc.bundle.links))  # fmt: skip


def _nvswitch_lines(graph: MachineGraph, layout: Layout) -> list[str]:
    """Straight down from each GPU: the switches work as one, whichever of them lies below it."""
    tops = [layout.boxes[switch.id].y for switch in graph.of_kind("nvswitch")]
    return [
        path(["M", layout.boxes[gpu].middle, layout.boxes[gpu].bottom, "V", tops[0]],
             stroke=COLOURS["nvlink"], stroke_width=nvlink_weight(bundle.links))
        for gpu, bundle in switched_bundles(graph).items()
    ]  # fmt: skip


def _host_nvlinks(graph: MachineGraph, layout: Layout) -> list[str]:
    """From the host down to the right half of a GPU."""
    drawn = []
    for wire in host_wires(graph):
        upper, lower = sorted((layout.boxes[wire.a], layout.boxes[wire.b]), key=lambda b: b.y)
        points = _elbow(upper, lower, lower.x + lower.width * 0.85)
        drawn.append(
            path(rounded(points), stroke=COLOURS["nvlink"], stroke_width=nvlink_weight(wire.width))
        )
    return drawn


def _elbow(upper: Box, lower: Box, x: float) -> Points:
    out, turn = upper.right - 12, lower.y - 6
    return (out, upper.bottom), (out, turn), (x, turn), (x, lower.y)


def pcie_labels(layout: Layout) -> list[Label]:
    """All labels, parent by parent."""
    labels: list[Label] = []
    for parent in dict.fromkeys(route.parent for route in layout.routes):
        labels += _under_parent([r for r in layout.routes if r.parent == parent], layout)
    return labels


def _under_parent(routes: list[Route], layout: Layout) -> list[Label]:
    if len(routes) == 1:
        return [Label(_name(routes[0]), routes[0].drop + _LABEL_BESIDE, _below_tracks(routes))]
    common, count = Counter(_name(route) for route in routes).most_common(1)[0]
    shared = _shared(routes, common) if 2 * count > len(routes) else None
    if shared is None:
        return _own(routes, layout)
    return [shared, *_own([r for r in routes if _name(r) != common], layout)]


def _shared(routes: list[Route], common: Name) -> Label | None:
    """Between two wires that it holds for, as near to the middle as it fits."""
    lines = (common[0], f"{common[1]} each")
    wide = max(text_width(line, _LABEL) for line in lines) + _LABEL_BESIDE
    gaps = [
        (one.drop + two.drop) / 2
        for one, two in pairwise(routes)
        if _name(one) == _name(two) == common and two.drop - one.drop > wide
    ]
    if not gaps:
        return None
    middle = (routes[0].drop + routes[-1].drop) / 2
    at = min(gaps, key=lambda gap: abs(gap - middle))
    return Label(lines, at, _below_tracks(routes), centred=True)


def _own(routes: list[Route], layout: Layout) -> list[Label]:
    """Each beside its wire; of like wires close together only the last one has it."""
    labels = []
    for number, route in enumerate(routes):
        after = routes[number + 1] if number + 1 < len(routes) else None
        label = Label(
            _name(route), route.drop + _LABEL_BESIDE, layout.boxes[route.child].y - _LABEL_ABOVE
        )
        said = after is not None and _name(after) == _name(route) and after.drop < label.right
        if not said:
            labels.append(label)
    return labels


def _below_tracks(routes: list[Route]) -> float:
    return max(route.points[1][1] for route in routes) + _LABEL_BELOW


def _name(route: Route) -> Name:
    return wire_name(route.wire), rate(route.wire.bytes_per_second)
