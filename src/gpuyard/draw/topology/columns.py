"""Where everything stands from left to right: children side by side, their parent centred above."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gpuyard.draw.topology.tree import Branch
from gpuyard.hardware.graph import DeviceKind

SIBLING_GAP = 14.0
GROUP_GAP = 22.0
ROOT_GAP = 84.0
RAIL_GAP = 14.0  # left of a column, for the wire to its lower device
COLUMN_GAP = 8.0
CPU_HEIGHT = 84.0
BRIDGE_HEIGHT = 26.0
BRIDGE_INSET = 7.0
SWITCH_HEIGHT = 46.0
DEVICE_HEIGHT = 72.0
NVSWITCH_HEIGHT = 38.0
PERIPHERALS: frozenset[DeviceKind] = frozenset({"nic", "nvme"})
_MANY_GPUS = 8

Unit = tuple[Branch, ...]
"""What takes one place in a row: a subtree, or a column of two peripherals."""


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass
class Columns:
    """Left edge and width of each device, and the peripherals that stand in the lower half."""

    gpus: int
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    stacked: dict[str, bool] = field(default_factory=dict)  # id → stands below its neighbour

    def place_roots(self, roots: Sequence[Branch]) -> float:
        """All trees in a row; the width that they take."""
        left = 0.0
        for root in roots:
            self._place(root, left)
            left += self._width(root) + ROOT_GAP
        return max(left - ROOT_GAP, 0.0)

    def middle(self, id: str) -> float:
        left, width = self.spans[id]
        return left + width / 2

    def entry(self, id: str) -> float:
        """Where a wire from above comes down to a device."""
        return self.spans[id][0] - RAIL_GAP / 2 if self.stacked.get(id) else self.middle(id)

    def _place(self, branch: Branch, left: float) -> None:
        device, units = branch.device, units_of(branch)
        width, own = self._width(branch), box_width(device.kind, self.gpus)
        self.spans[device.id] = (left + (width - own) / 2, own)
        at = left + (width - self._row_width(units)) / 2
        for unit, gap in zip(units, [*_gaps(units), 0.0], strict=False):
            self._place_unit(unit, at)
            at += self._unit_width(unit) + gap
        bridges = [b.device.id for b in branch.children if b.device.kind == "host-bridge"]
        if device.kind == "socket" and bridges:
            self.spans[device.id] = self._around(bridges, own)

    def _around(self, bridges: list[str], least: float) -> tuple[float, float]:
        first, last = self.spans[bridges[0]], self.spans[bridges[-1]]
        width = max(least, last[0] + last[1] - first[0] + 2 * BRIDGE_INSET)
        return (first[0] + last[0] + last[1] - width) / 2, width

    def _place_unit(self, unit: Unit, left: float) -> None:
        if len(unit) == 1:
            self._place(unit[0], left)
        for below, branch in enumerate(unit if len(unit) > 1 else ()):
            width = box_width(branch.device.kind, self.gpus)
            self.spans[branch.device.id] = (left + RAIL_GAP, width)
            self.stacked[branch.device.id] = bool(below)

    def _width(self, branch: Branch) -> float:
        row = self._row_width(units_of(branch))
        bridges = sum(child.device.kind == "host-bridge" for child in branch.children)
        row += 2 * BRIDGE_INSET if bridges > 1 else 0.0  # the CPU's box reaches around them
        return max(box_width(branch.device.kind, self.gpus), row)

    def _row_width(self, units: Sequence[Unit]) -> float:
        return sum(self._unit_width(unit) for unit in units) + sum(_gaps(units))

    def _unit_width(self, unit: Unit) -> float:
        return self._width(unit[0]) + (RAIL_GAP if len(unit) > 1 else 0)


def units_of(branch: Branch) -> list[Unit]:
    """The children in order; NICs and drives two by two, one above the other."""
    leaves = [b for b in branch.children if b.device.kind in PERIPHERALS and not b.children]
    others: list[Unit] = [(b,) for b in branch.children if b not in leaves]
    # only two on like wires share a column: their label then holds for both
    alike: dict[tuple[object, ...], list[Branch]] = {}
    for leaf in leaves:
        alike.setdefault(_wire_look(leaf), []).append(leaf)
    pairs = [found[i : i + 2] for found in alike.values() for i in range(0, len(found), 2)]
    return others + [tuple(pair) for pair in pairs]


def _wire_look(branch: Branch) -> tuple[object, ...]:
    wire = branch.wire
    return (wire.generation, wire.width, wire.bytes_per_second) if wire else ()


def _gaps(units: Sequence[Unit]) -> list[float]:
    return [
        GROUP_GAP if one[0].children or two[0].children else SIBLING_GAP
        for one, two in pairwise(units)
    ]


def box_width(kind: DeviceKind, gpus: int) -> float:
    """Many GPUs are drawn narrower, so that sixteen still fit on a page."""
    few = gpus <= _MANY_GPUS
    widths: dict[DeviceKind, float] = {
        "socket": 190,
        "host-bridge": 116,
        "switch": 150 if few else 132,
        "gpu": 106 if few else 78,
    }
    return widths.get(kind, 84 if few else 74)
