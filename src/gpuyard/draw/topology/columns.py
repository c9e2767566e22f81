"""Places devices from left to right: children side by side, with their parent centered above."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gpuyard.draw.topology.tree import Branch
from gpuyard.hardware.graph import DeviceKind

SIBLING_GAP = 14.0
GROUP_GAP = 22.0
ROOT_GAP = 84.0
RAIL_GAP = 14.0  # space left of a column for the wire to its lower device
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
"""One place in a row: a subtree, or a column of two peripherals."""


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
    """Left edge and width of each device, and the peripherals that share a column."""

    gpus: int
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    stacked: dict[str, bool] = field(default_factory=dict)  # id → is the lower one of its column

    def place_roots(self, roots: Sequence[Branch]) -> float:
        """Place all trees in a row and return their total width."""
        left = 0.0
        for root in roots:
            self._place(root, left)
            left += self._width(root) + ROOT_GAP
        return max(left - ROOT_GAP, 0.0)

    def middle(self, id: str) -> float:
        left, width = self.spans[id]
        return left + width / 2

    def entry(self, id: str) -> float:
        """Return the x at which a wire from above reaches a device."""
        return self.spans[id][0] - RAIL_GAP / 2 if self.stacked.get(id) else self.middle(id)

    def _place(self, branch: Branch, left: float) -> None:
        device, units = branch.device, group_children(branch)
        width, own_width = self._width(branch), get_box_width(device.kind, self.gpus)
        self.spans[device.id] = (left + (width - own_width) / 2, own_width)
        x = left + (width - self._row_width(units)) / 2
        for unit, gap in zip(units, [*_get_gaps(units), 0.0], strict=False):
            self._place_unit(unit, x)
            x += self._unit_width(unit) + gap
        bridges = [b.device.id for b in branch.children if b.device.kind == "host-bridge"]
        if device.kind == "socket" and bridges:
            self.spans[device.id] = self._enclose(bridges, own_width)

    def _enclose(self, bridges: list[str], min_width: float) -> tuple[float, float]:
        first, last = self.spans[bridges[0]], self.spans[bridges[-1]]
        width = max(min_width, last[0] + last[1] - first[0] + 2 * BRIDGE_INSET)
        return (first[0] + last[0] + last[1] - width) / 2, width

    def _place_unit(self, unit: Unit, left: float) -> None:
        if len(unit) == 1:
            self._place(unit[0], left)
        for below, branch in enumerate(unit if len(unit) > 1 else ()):
            width = get_box_width(branch.device.kind, self.gpus)
            self.spans[branch.device.id] = (left + RAIL_GAP, width)
            self.stacked[branch.device.id] = bool(below)

    def _width(self, branch: Branch) -> float:
        row = self._row_width(group_children(branch))
        bridges = sum(child.device.kind == "host-bridge" for child in branch.children)
        row += 2 * BRIDGE_INSET if bridges > 1 else 0.0  # the CPU's box encloses them
        return max(get_box_width(branch.device.kind, self.gpus), row)

    def _row_width(self, units: Sequence[Unit]) -> float:
        return sum(self._unit_width(unit) for unit in units) + sum(_get_gaps(units))

    def _unit_width(self, unit: Unit) -> float:
        return self._width(unit[0]) + (RAIL_GAP if len(unit) > 1 else 0)


def group_children(branch: Branch) -> list[Unit]:
    """Return the children in order, with NICs and drives in columns of two."""
    leaves = [b for b in branch.children if b.device.kind in PERIPHERALS and not b.children]
    others: list[Unit] = [(b,) for b in branch.children if b not in leaves]
    # the devices of a column have identical wires, so that one label is correct for both
    by_wire: dict[tuple[object, ...], list[Branch]] = {}
    for leaf in leaves:
        by_wire.setdefault(_get_wire_signature(leaf), []).append(leaf)
    pairs = [group[i : i + 2] for group in by_wire.values() for i in range(0, len(group), 2)]
    return others + [tuple(pair) for pair in pairs]


def _get_wire_signature(branch: Branch) -> tuple[object, ...]:
    wire = branch.wire
    return (wire.generation, wire.width, wire.bytes_per_second) if wire else ()


def _get_gaps(units: Sequence[Unit]) -> list[float]:
    return [
        GROUP_GAP if left[0].children or right[0].children else SIBLING_GAP
        for left, right in pairwise(units)
    ]


def get_box_width(kind: DeviceKind, gpus: int) -> float:
    """Return the width of a box; boxes are narrower if there are many GPUs, so that 16 fit on a page."""
    few = gpus <= _MANY_GPUS
    widths: dict[DeviceKind, float] = {
        "socket": 190,
        "host-bridge": 116,
        "switch": 150 if few else 132,
        "gpu": 106 if few else 78,
    }
    return widths.get(kind, 84 if few else 74)
