"""PCIe wires as an engineer draws them: each from a port of its own, along a track of its own, and
straight down. No two of them cross."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.draw.topology.columns import BRIDGE_INSET, Box, Columns
from gpuyard.draw.topology.tree import Branch
from gpuyard.hardware.graph import Wire

TRACK_GAP = 7.0
FIRST_TRACK = 13.0  # below the parent
_PORT_GAP = 14.0
_STRAIGHT = 0.5


@dataclass(frozen=True)
class Route:
    """A wire from its parent down to its child, with the corners."""

    wire: Wire
    parent: str
    child: str
    points: tuple[tuple[float, float], ...]

    @property
    def drop(self) -> float:
        """The x of its way down."""
        return self.points[2][0]


@dataclass(frozen=True)
class Lane:
    """Where a wire leaves its parent, on which track it goes, and where it comes down."""

    child: Branch
    port: float
    drop: float
    track: int


def lanes(parent: Branch, columns: Columns) -> list[Lane]:
    """The wires under a parent from left to right; the farthest takes the highest track."""
    wired = [child for child in parent.children if not _inside(parent, child)]
    below = sorted(wired, key=lambda child: columns.entry(child.device.id))
    left, width = columns.spans[parent.device.id]
    gap = min(_PORT_GAP, (width - 24) / max(len(below) - 1, 1))
    ports = [left + width / 2 + gap * (i - (len(below) - 1) / 2) for i in range(len(below))]
    drops = [columns.entry(child.device.id) for child in below]
    leftward = [i for i in range(len(below)) if drops[i] < ports[i] - _STRAIGHT]
    rightward = [i for i in reversed(range(len(below))) if drops[i] > ports[i] + _STRAIGHT]
    tracks = {i: track for side in (leftward, rightward) for track, i in enumerate(side)}
    return [Lane(child, ports[i], drops[i], tracks.get(i, 0)) for i, child in enumerate(below)]


def track_count(found: Sequence[Lane]) -> int:
    return max((lane.track + 1 for lane in found), default=0)


def route(parent: Branch, lane: Lane, boxes: dict[str, Box], columns: Columns) -> Route:
    """The corners of a lane, once the boxes have their heights."""
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
        raise ValueError(f"{lane.child.device.id} hangs on nothing")
    return Route(wire, parent.device.id, lane.child.device.id, tuple(corners))


def _inside(parent: Branch, child: Branch) -> bool:
    return parent.device.kind == "socket" and child.device.kind == "host-bridge"
