"""Where everything stands: servers spread evenly over the racks, each leaf where its cables are
shortest, and the switches above amid the leaves."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuyard.facility.device import Device
from gpuyard.facility.packing import Limits, Packing, room_left, used_by
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
    """Racks are numbered along the rows, those with switches alone in the middle. Where the even
    spread does not fit, the packing's own does."""
    spread = _spread(packing, limits, per_row, nodes_of_leaf)
    counts = spread if spread is not None else _centred(packing)
    rows = Rows(len(counts), limits.units, per_row)
    return Room(rows, tuple(_stacked(packing.devices, counts, limits.units)))


def _centred(packing: Packing) -> list[list[int]]:
    hosting = [list(rack) for rack in packing.racks if _hosts(packing, rack)]
    alone = [list(rack) for rack in packing.racks if not _hosts(packing, rack)]
    middle = (len(hosting) + 1) // 2
    return [*hosting[:middle], *alone, *hosting[middle:]]


def _hosts(packing: Packing, rack: Sequence[int]) -> bool:
    return any(n and not d.is_switch for d, n in zip(packing.devices, rack, strict=True))


def _spread(
    packing: Packing, limits: Limits, per_row: int, nodes_of_leaf: NodesOfLeaf
) -> list[list[int]] | None:
    racks = len(packing.racks)
    rows = Rows(racks, limits.units, per_row)
    counts = [[0] * len(packing.devices) for _ in range(racks)]
    hosting = [rack for rack, here in enumerate(_centred(packing)) if _hosts(packing, here)]
    totals = [sum(rack[k] for rack in packing.racks) for k in range(len(packing.devices))]
    hosts: list[int] = []
    for k, device in enumerate(packing.devices):
        if not device.is_switch:
            each, more = divmod(totals[k], len(hosting))
            for index, rack in enumerate(hosting):
                counts[rack][k] = each + (1 if index < more else 0)
            if device.kind == "server":
                hosts = [rack for rack in hosting for _ in range(counts[rack][k])]
    shares = [limits.shares(device) for device in packing.devices]
    used = [used_by(rack, shares) for rack in counts]
    if any(max(rack) > 1 + 1e-9 for rack in used):
        return None
    leaves: list[int] = []
    nearness = _Nearness(rows)
    switches = [(k, d) for k, d in enumerate(packing.devices) if d.is_switch]
    for k, device in sorted(switches, key=lambda one: _TIERS.index(one[1].kind)):
        for number in range(totals[k]):
            free = [rack for rack in range(racks) if room_left(used[rack], shares[k])]
            if not free:
                return None
            served = nodes_of_leaf(number) if device.kind == "leaf" else ()
            near = [hosts[node] for node in served] or leaves or hosts
            away = nearness.metres_to_all(near)
            rack = min(free, key=lambda r: (away[r], r))
            counts[rack][k] += 1
            used[rack] = [a + b for a, b in zip(used[rack], shares[k], strict=True)]
            if device.kind == "leaf":
                leaves.append(rack)
    return counts


class _Nearness:
    """Metres from every rack to a set of racks together, kept: many leaves serve the same machines."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._known: dict[frozenset[tuple[int, int]], list[float]] = {}

    def metres_to_all(self, racks: Sequence[int]) -> list[float]:
        weights = Counter(racks)
        key = frozenset(weights.items())
        if key not in self._known:
            self._known[key] = [
                sum(n * self._rows.distance_m(rack, other) for other, n in weights.items())
                for rack in range(self._rows.racks)
            ]
        return self._known[key]


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
