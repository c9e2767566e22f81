"""Computes the position of every device and wire of a block diagram.

CPUs with their host bridges are on top, followed by tiers of PCIe switches, one row of GPUs, NICs, and drives,
and NVSwitches at the bottom. Each PCIe wire has its own port and its own horizontal track, then runs straight
down, so no two of them cross. The drawing starts at (0, 0).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.draw.topology import columns as sizes
from gpuyard.draw.topology.columns import BRIDGE_INSET, Box, Columns
from gpuyard.draw.topology.nvlinks import Arc, place_arcs
from gpuyard.draw.topology.tree import Branch, build_host_trees, find_other_wires
from gpuyard.hardware.graph import MachineGraph, Wire

TRACK_GAP = 7.0
FIRST_TRACK = 13.0  # distance below the parent
_PORT_GAP = 14.0
_STRAIGHT = 0.5
_LABEL_HEIGHT = 46.0  # between the last track and the next tier
_OVERHEAD_HEIGHT = 26.0  # for a socket link that passes over other sockets
_NVSWITCH_GAP = 46.0


@dataclass(frozen=True)
class Route:
    """The corners of a wire from a parent down to its child."""

    wire: Wire
    parent: str
    child: str
    points: tuple[tuple[float, float], ...]

    @property
    def drop(self) -> float:
        """The x of the vertical segment that reaches the child."""
        return self.points[2][0]


@dataclass(frozen=True)
class Lane:
    """The port where a wire leaves its parent, its horizontal track, and the x of its way down."""

    child: Branch
    port: float
    drop: float
    track: int


def assign_lanes(parent: Branch, columns: Columns) -> list[Lane]:
    """Assign lanes to the wires under a parent from left to right; the farthest gets the highest track."""
    wired = [child for child in parent.children if not _is_inside(parent, child)]
    below = sorted(wired, key=lambda child: columns.entry(child.device.id))
    left, width = columns.spans[parent.device.id]
    gap = min(_PORT_GAP, (width - 24) / max(len(below) - 1, 1))
    ports = [left + width / 2 + gap * (i - (len(below) - 1) / 2) for i in range(len(below))]
    drops = [columns.entry(child.device.id) for child in below]
    leftward = [i for i in range(len(below)) if drops[i] < ports[i] - _STRAIGHT]
    rightward = [i for i in reversed(range(len(below))) if drops[i] > ports[i] + _STRAIGHT]
    tracks = {i: track for side in (leftward, rightward) for track, i in enumerate(side)}
    return [Lane(child, ports[i], drops[i], tracks.get(i, 0)) for i, child in enumerate(below)]


def count_tracks(lanes: Sequence[Lane]) -> int:
    return max((lane.track + 1 for lane in lanes), default=0)


def route_wire(parent: Branch, lane: Lane, boxes: dict[str, Box], columns: Columns) -> Route:
    """Compute the corners of a wire from its lane and the final boxes."""
    above, box = boxes[parent.device.id], boxes[lane.child.device.id]
    edge = above.bottom + (BRIDGE_INSET if parent.device.kind == "host-bridge" else 0.0)
    turn = edge + FIRST_TRACK + TRACK_GAP * lane.track
    corners = [(lane.port, above.bottom), (lane.port, turn), (lane.drop, turn)]
    if columns.stacked.get(lane.child.device.id):
        middle = box.y + box.height / 2
        corners += [(lane.drop, middle), (box.x, middle)]
    else:
        corners.append((lane.drop, box.y))
    wire = lane.child.wire
    if wire is None:
        raise ValueError(f"{lane.child.device.id} has no wire to its parent")
    return Route(wire, parent.device.id, lane.child.device.id, tuple(corners))


def _is_inside(parent: Branch, child: Branch) -> bool:
    return parent.device.kind == "socket" and child.device.kind == "host-bridge"


@dataclass(frozen=True)
class SocketLink:
    """A link between CPUs: straight between neighbors, otherwise raised by `lift` above the CPUs."""

    wire: Wire
    left: str
    right: str
    lift: float


@dataclass(frozen=True)
class Layout:
    """Boxes by device id, and every line between them. A host bridge lies inside the box of its CPU."""

    width: float
    height: float
    boxes: dict[str, Box]
    routes: tuple[Route, ...]
    socket_links: tuple[SocketLink, ...]
    arcs: tuple[Arc, ...]
    other_wires: tuple[Wire, ...]


@dataclass(frozen=True)
class _Parent:
    branch: Branch
    level: int  # 0: CPU or host bridge, n: nth tier of switches
    lanes: list[Lane]


def lay_out(graph: MachineGraph) -> Layout:
    """Compute the position of every device and line; equal graphs give equal layouts."""
    trees = build_host_trees(graph)
    columns = Columns(len(graph.gpus))
    width = columns.place_roots(trees)
    parents = [
        _Parent(branch, level, assign_lanes(branch, columns))
        for tree in trees
        for branch, level in _iter_levels(tree)
    ]
    links = _place_socket_links(graph, columns)
    boxes = _place_boxes(parents, columns, top=max((link.lift for link in links), default=0.0))
    routes = [route_wire(p.branch, lane, boxes, columns) for p in parents for lane in p.lanes]
    arcs = place_arcs(graph, boxes)
    bottom = max((box.bottom for box in boxes.values()), default=0.0)
    bottom = max([bottom, *(arc.y + arc.depth + 12 for arc in arcs)])
    switches = _place_nvswitches(graph, boxes, bottom)
    boxes |= switches
    height = max([bottom, *(box.bottom for box in switches.values())])
    right = max([width, *(box.right for box in boxes.values())])
    return Layout(right, height, boxes, tuple(routes), links, arcs, find_other_wires(graph, trees))


def _iter_levels(branch: Branch, level: int = 0) -> Iterator[tuple[Branch, int]]:
    """Yield each device with its tier, which is the number of switches above and including it."""
    level += branch.device.kind == "switch"
    yield branch, level
    for child in branch.children:
        yield from _iter_levels(child, level)


def _place_boxes(parents: list[_Parent], columns: Columns, top: float) -> dict[str, Box]:
    tiers = _place_tiers(parents, top)
    return {parent.branch.device.id: _place_box(parent, columns, tiers) for parent in parents}


def _place_box(parent: _Parent, columns: Columns, tiers: list[float]) -> Box:
    device = parent.branch.device
    left, width = columns.spans[device.id]
    if device.kind == "socket":
        return Box(left, tiers[0], width, sizes.CPU_HEIGHT)
    if device.kind == "host-bridge":
        top = tiers[0] + sizes.CPU_HEIGHT - sizes.BRIDGE_HEIGHT - sizes.BRIDGE_INSET
        return Box(left, top, width, sizes.BRIDGE_HEIGHT)
    if device.kind == "switch":
        return Box(left, tiers[parent.level], width, sizes.SWITCH_HEIGHT)
    if device.id in columns.stacked:
        half = (sizes.DEVICE_HEIGHT - sizes.COLUMN_GAP) / 2
        below = (half + sizes.COLUMN_GAP) if columns.stacked[device.id] else 0.0
        return Box(left, tiers[-1] + below, width, half)
    return Box(left, tiers[-1], width, sizes.DEVICE_HEIGHT)


def _place_tiers(parents: list[_Parent], top: float) -> list[float]:
    """Return the top of each tier: CPUs, tiers of switches, then devices, with space for tracks between."""
    deepest = max((parent.level for parent in parents), default=0)
    kinds = {parent.branch.device.kind for parent in parents}
    height = sizes.CPU_HEIGHT if kinds & {"socket", "host-bridge"} else 0.0
    tops = [top]
    for level in range(deepest + 1):
        tracks = max((count_tracks(p.lanes) for p in parents if p.level == level), default=0)
        wired = any(p.lanes for p in parents if p.level == level)
        gap = FIRST_TRACK + TRACK_GAP * max(tracks - 1, 0) + _LABEL_HEIGHT if wired else 0.0
        tops.append(tops[-1] + height + gap)
        height = sizes.SWITCH_HEIGHT
    return tops


def _place_socket_links(graph: MachineGraph, columns: Columns) -> tuple[SocketLink, ...]:
    row = sorted((socket.id for socket in graph.devices_of_kind("socket")), key=columns.middle)
    links: list[SocketLink] = []
    overhead = 0
    for wire in graph.wires:
        if wire.kind == "socket" and wire.a in row and wire.b in row:
            left, right = sorted((wire.a, wire.b), key=row.index)
            far = row.index(right) - row.index(left) > 1
            overhead += far
            links.append(SocketLink(wire, left, right, overhead * _OVERHEAD_HEIGHT if far else 0.0))
    return tuple(links)


def _place_nvswitches(graph: MachineGraph, boxes: dict[str, Box], bottom: float) -> dict[str, Box]:
    """Divide a bar under the GPUs evenly between the switches."""
    switches = graph.devices_of_kind("nvswitch")
    if not switches:
        return {}
    row = [boxes[gpu] for gpu in graph.gpus] or list(boxes.values()) or [Box(0, 0, 120, 0)]
    left, right = min(box.x for box in row), max(box.right for box in row)
    gap = sizes.COLUMN_GAP
    width = (right - left - gap * (len(switches) - 1)) / len(switches)
    return {
        switch.id: Box(
            left + number * (width + gap), bottom + _NVSWITCH_GAP, width, sizes.NVSWITCH_HEIGHT
        )
        for number, switch in enumerate(switches)
    }
