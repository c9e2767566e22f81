"""Where everything stands: servers spread evenly over the racks, each leaf where its cables are
shortest, and the switches above amid the leaves."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.facility.device import Device
from gpuyard.facility.packing import Limits, Packing
from gpuyard.facility.rows import Placed, Rows

_TIERS = ("leaf", "spine", "core", "management")
NodesOfLeaf = Callable[[int], Sequence[int]]
"""Numbers (from 0) of the nodes that a leaf serves."""


@dataclass(frozen=True)
class Room:
    """The racks and all that is in them."""

    rows: Rows
    placed: tuple[Placed, ...]

    def in_rack(self, rack: int) -> list[Placed]:
        return [one for one in self.placed if one.rack == rack]

    def of_kind(self, kind: str) -> list[Placed]:
        return [one for one in self.placed if one.device.kind == kind]


def place(packing: Packing, limits: Limits, per_row: int, nodes_of_leaf: NodesOfLeaf) -> Room:
    """Racks are numbered along the rows. Where the even spread does not fit, the packing's own does."""
    spread = _spread(packing, limits, per_row, nodes_of_leaf)
    counts = spread if spread is not None else [list(rack) for rack in packing.racks]
    rows = Rows(len(counts), limits.units, per_row)
    return Room(rows, tuple(_stacked(packing.devices, counts, limits.units)))


def _spread(
    packing: Packing, limits: Limits, per_row: int, nodes_of_leaf: NodesOfLeaf
) -> list[list[int]] | None:
    racks = len(packing.racks)
    rows = Rows(racks, limits.units, per_row)
    counts = [[0] * len(packing.devices) for _ in range(racks)]
    totals = [sum(rack[k] for rack in packing.racks) for k in range(len(packing.devices))]
    hosts: list[int] = []
    for k, device in enumerate(packing.devices):
        if not device.is_switch:
            for rack in range(racks):
                counts[rack][k] = totals[k] // racks + (1 if rack < totals[k] % racks else 0)
            if device.kind == "server":
                hosts = [rack for rack in range(racks) for _ in range(counts[rack][k])]
    if not all(limits.hold(packing.devices, rack) for rack in counts):
        return None
    leaves: list[int] = []
    switches = [(k, d) for k, d in enumerate(packing.devices) if d.is_switch]
    for k, device in sorted(switches, key=lambda one: _TIERS.index(one[1].kind)):
        for number in range(totals[k]):
            free = [r for r, c in enumerate(counts) if _one_more(packing, c, k, limits)]
            if not free:
                return None
            served = nodes_of_leaf(number) if device.kind == "leaf" else ()
            near = [hosts[node] for node in served] or leaves or hosts
            rack = _nearest(near, free, rows)
            counts[rack][k] += 1
            if device.kind == "leaf":
                leaves.append(rack)
    return counts


def _one_more(packing: Packing, counts: Sequence[int], kind: int, limits: Limits) -> bool:
    return limits.hold(packing.devices, [n + (k == kind) for k, n in enumerate(counts)])


def _nearest(to: Sequence[int], free: Sequence[int], rows: Rows) -> int:
    """The free rack that is nearest to all of these racks together."""
    weights = Counter(to)
    return min(
        free,
        key=lambda rack: (sum(n * rows.distance_m(rack, r) for r, n in weights.items()), rack),
    )


def _stacked(
    devices: Sequence[Device], counts: Sequence[Sequence[int]], units: int
) -> list[Placed]:
    """The heavy boxes from the floor up, the switches from the top down."""
    numbers = dict.fromkeys(devices, 0)
    placed = []
    for rack, here in enumerate(counts):
        low, high = 1, units + 1
        order = sorted(
            range(len(devices)), key=lambda k: (devices[k].is_switch, -devices[k].weight_kg)
        )
        for k in order:
            for _ in range(here[k]):
                device = devices[k]
                numbers[device] += 1
                if device.is_switch:
                    high -= device.rack_units
                    unit = high
                else:
                    unit, low = low, low + device.rack_units
                placed.append(Placed(device, numbers[device], rack, unit))
    return placed
