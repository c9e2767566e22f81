"""Where everything stands: servers spread evenly over the racks, each leaf where its cables are
shortest, and the switches above amid the leaves."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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

    @functools.cached_property
    def _by_rack(self) -> list[list[Placed]]:
        racks: list[list[Placed]] = [[] for _ in range(self.rows.racks)]
        for one in self.placed:
            racks[one.rack].append(one)
        return racks

    def in_rack(self, rack: int) -> list[Placed]:
        return self._by_rack[rack]

    def of_kind(self, kind: str) -> list[Placed]:
        """In the order of their numbers."""
        found = [one for one in self.placed if one.device.kind == kind]
        return sorted(found, key=lambda one: one.number)


def place(packing: Packing, limits: Limits, per_row: int, nodes_of_leaf: NodesOfLeaf) -> Room:
    """Racks are numbered along the rows, those with switches alone in the middle. Where the even
    spread does not fit, the packing's own does."""
    racks_of = _spread(packing, limits, per_row, nodes_of_leaf) or _as_packed(packing)
    rows = Rows(len(packing.racks), limits.units, per_row)
    return Room(rows, tuple(_stacked(packing.devices, racks_of, rows)))


def _as_packed(packing: Packing) -> list[list[int]]:
    """For each device, the rack of its first, second, …"""
    racks = list(enumerate(_centred(packing)))
    kinds = range(len(packing.devices))
    return [[rack for rack, here in racks for _ in range(here[k])] for k in kinds]


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
    hosting = [rack for rack, here in enumerate(_centred(packing)) if _hosts(packing, here)]
    totals = [sum(rack[k] for rack in packing.racks) for k in range(len(packing.devices))]
    racks_of: list[list[int]] = [[] for _ in packing.devices]
    hosts: list[int] = []
    for k, device in enumerate(packing.devices):
        if not device.is_switch:
            racks_of[k] = _evenly(totals[k], hosting)
            hosts = racks_of[k] if device.kind == "server" else hosts
    shares = [limits.shares(device) for device in packing.devices]
    used = [used_by([here.count(rack) for here in racks_of], shares) for rack in range(racks)]
    if any(max(rack) > 1 + 1e-9 for rack in used):
        return None
    leaves: list[int] = []
    nearness = _Nearness(rows)
    switches = [(k, d) for k, d in enumerate(packing.devices) if d.is_switch]
    for k, device in sorted(switches, key=lambda one: _TIERS.index(one[1].kind)):
        free = [rack for rack in range(racks) if room_left(used[rack], shares[k])]
        for number in range(totals[k]):
            if not free:
                return None
            served = nodes_of_leaf(number) if device.kind == "leaf" else ()
            near = [hosts[node] for node in served] or leaves or hosts
            away = nearness.metres_to_all(near)
            rack = min(free, key=lambda r: (away[r], r))
            racks_of[k].append(rack)
            used[rack] = [a + b for a, b in zip(used[rack], shares[k], strict=True)]
            if not room_left(used[rack], shares[k]):
                free.remove(rack)
            if device.kind == "leaf":
                leaves.append(rack)
    return racks_of


def _evenly(count: int, racks: Sequence[int]) -> list[int]:
    """The rack of each, in order; the first racks have one more."""
    each, more = divmod(count, len(racks))
    return [rack for i, rack in enumerate(racks) for _ in range(each + (i < more))]


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
    devices: Sequence[Device], racks_of: Sequence[Sequence[int]], rows: Rows
) -> Iterator[Placed]:
    """The heavy boxes from the floor up, the switches from the top down; numbered by their kind."""
    inside: list[list[tuple[Device, int]]] = [[] for _ in range(rows.racks)]
    numbers: Counter[str] = Counter()
    for device, racks in zip(devices, racks_of, strict=True):
        for rack in racks:
            numbers[device.kind] += 1
            inside[rack].append((device, numbers[device.kind]))
    for rack, here in enumerate(inside):
        low, high = 1, rows.units + 1
        for device, number in sorted(here, key=_lowest_first):
            if device.is_switch:
                high -= device.rack_units
                yield Placed(device, number, rack, high)
            else:
                yield Placed(device, number, rack, low)
                low += device.rack_units


def _lowest_first(one: tuple[Device, int]) -> tuple[bool, int, float, int]:
    device, number = one
    tier = _TIERS.index(device.kind) if device.is_switch else 0
    return device.is_switch, tier, -device.weight_kg, number
