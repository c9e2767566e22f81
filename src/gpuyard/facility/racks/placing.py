"""Where everything stands: servers spread evenly over the racks, each leaf where its cables are
shortest, the switches above amid the leaves, and storage servers amid the machines."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.facility.device import Contents, RackDevice
from gpuyard.facility.network.devices import TIERS
from gpuyard.facility.network.room_network import RoomNetwork
from gpuyard.facility.racks.floor_plan import FloorPlan, PlacedDevice
from gpuyard.facility.racks.packing import Limits, RackPacking, room_left, used_by

_AFTER_MACHINES = (*TIERS["machines"], "storage", *TIERS["storage"], *TIERS["management"])
"""In this order, so that each finds those that it serves in their places."""


@dataclass(frozen=True)
class Room:
    """The racks and all that is in them."""

    floor: FloorPlan
    placed: tuple[PlacedDevice, ...]

    @functools.cached_property
    def _by_rack(self) -> list[list[PlacedDevice]]:
        racks: list[list[PlacedDevice]] = [[] for _ in range(self.floor.racks)]
        for one in self.placed:
            racks[one.rack].append(one)
        return racks

    def in_rack(self, rack: int) -> list[PlacedDevice]:
        return self._by_rack[rack]

    def contents(self, rack: int) -> Contents:
        return tuple(Counter(one.device for one in self.in_rack(rack)).items())

    def of_kind(self, kind: str) -> list[PlacedDevice]:
        """In the order of their numbers."""
        found = [one for one in self.placed if one.device.kind == kind]
        return sorted(found, key=lambda one: one.number)


def place(packing: RackPacking, limits: Limits, per_row: int, network: RoomNetwork) -> Room:
    """Racks are numbered along the rows, those without machines in the middle. Where the even spread
    does not fit, the packing's own does."""
    floor = FloorPlan(len(packing.racks), limits.units, per_row)
    racks_of = _Spread(packing, limits, floor, network).racks_of() or _as_packed(packing)
    return Room(floor, tuple(_stacked(packing.devices, racks_of, floor)))


def _as_packed(packing: RackPacking) -> list[list[int]]:
    """For each device, the rack of its first, second, …"""
    racks = list(enumerate(_centred(packing)))
    kinds = range(len(packing.devices))
    return [[rack for rack, here in racks for _ in range(here[k])] for k in kinds]


def _centred(packing: RackPacking) -> list[list[int]]:
    hosting = [list(rack) for rack in packing.racks if _hosts(packing, rack)]
    alone = [list(rack) for rack in packing.racks if not _hosts(packing, rack)]
    middle = (len(hosting) + 1) // 2
    return [*hosting[:middle], *alone, *hosting[middle:]]


def _hosts(packing: RackPacking, rack: Sequence[int]) -> bool:
    return any(n and d.kind == "server" for d, n in zip(packing.devices, rack, strict=True))


class _Spread:
    """Machines evenly, then each other device where it has the shortest way to those that it serves."""

    def __init__(
        self, packing: RackPacking, limits: Limits, floor: FloorPlan, network: RoomNetwork
    ) -> None:
        self._packing, self._network = packing, network
        self._shares = [limits.shares(device) for device in packing.devices]
        self._nearness = _Nearness(floor)
        self._racks: dict[str, list[int]] = {}
        """Of each kind, the rack of its first, second, …"""
        self._used: list[list[float]] = []

    def racks_of(self) -> list[list[int]] | None:
        """For each device of the packing; None where it does not fit like this."""
        devices, racks = self._packing.devices, self._packing.racks
        hosting = [
            n for n, here in enumerate(_centred(self._packing)) if _hosts(self._packing, here)
        ]
        totals = [sum(rack[k] for rack in racks) for k in range(len(devices))]
        found: list[list[int]] = [[] for _ in devices]
        for k, device in enumerate(devices):
            if device.kind == "server":
                found[k] = self._racks["server"] = _evenly(totals[k], hosting)
        self._used = [
            used_by([here.count(rack) for here in found], self._shares)
            for rack in range(len(racks))
        ]
        if any(max(rack) > 1 + 1e-9 for rack in self._used):
            return None
        others = [(k, d) for k, d in enumerate(devices) if d.kind != "server"]
        for k, device in sorted(others, key=lambda one: _AFTER_MACHINES.index(one[1].kind)):
            placed = self._placed(k, device, totals[k])
            if placed is None:
                return None
            found[k] = self._racks[device.kind] = placed
        return found

    def _placed(self, k: int, device: RackDevice, count: int) -> list[int] | None:
        shares = self._shares[k]
        free = [rack for rack, used in enumerate(self._used) if room_left(used, shares)]
        near = self._near(device.kind, count)
        chosen: list[int] = []
        for number in range(count):
            if not free:
                return None
            away = self._nearness.metres_to_all(near[number])
            rack = min(free, key=lambda r: (away[r], r))
            chosen.append(rack)
            self._used[rack] = [a + b for a, b in zip(self._used[rack], shares, strict=True)]
            if not room_left(self._used[rack], shares):
                free.remove(rack)
        return chosen

    def _near(self, kind: str, count: int) -> list[list[int]]:
        """For each device of this kind, the racks that its cables go to."""
        machines = self._racks["server"]
        if kind == "storage":
            return [machines] * count
        if kind == "management":
            return self._below_management(count)
        hosts = [*machines, *self._racks.get("storage", [])]
        if kind in {"leaf", "storage leaf"}:
            below = [self._network.hosts_of_leaf(kind, leaf) for leaf in range(count)]
            # storage servers that share the machines' network are placed after its leaves
            return [[hosts[h] for h in leaf if h < len(hosts)] or machines for leaf in below]
        lowest = next(tiers[0] for tiers in TIERS.values() if kind in tiers)
        return [self._racks[lowest]] * count

    def _below_management(self, count: int) -> list[list[int]]:
        """Ports are dealt to the management switches from rack to rack."""
        fabric = self._network.management
        ports = Counter[int]()
        for device in self._packing.devices:
            for rack in self._racks.get(device.kind, []):
                ports[rack] += self._network.ports_for_management(device)
        racks = [rack for rack in sorted(ports) for _ in range(ports[rack])]
        near: list[list[int]] = [[] for _ in range(count)]
        if fabric is not None:
            for port, _, leaf in fabric.wiring.endpoints:
                near[leaf].append(racks[port])
        return near


def _evenly(count: int, racks: Sequence[int]) -> list[int]:
    """The rack of each, in order; the first racks have one more."""
    each, more = divmod(count, len(racks))
    return [rack for i, rack in enumerate(racks) for _ in range(each + (i < more))]


class _Nearness:
    """Metres from every rack to a set of racks together, kept: many leaves serve the same machines."""

    def __init__(self, floor: FloorPlan) -> None:
        self._floor = floor
        self._known: dict[frozenset[tuple[int, int]], list[float]] = {}

    def metres_to_all(self, racks: Sequence[int]) -> list[float]:
        weights = Counter(racks)
        key = frozenset(weights.items())
        if key not in self._known:
            self._known[key] = [
                sum(n * self._floor.distance_m(rack, other) for other, n in weights.items())
                for rack in range(self._floor.racks)
            ]
        return self._known[key]


def _stacked(
    devices: Sequence[RackDevice], racks_of: Sequence[Sequence[int]], floor: FloorPlan
) -> Iterator[PlacedDevice]:
    """The heavy boxes from the floor up, the switches from the top down; numbered by their kind."""
    inside: list[list[tuple[RackDevice, int]]] = [[] for _ in range(floor.racks)]
    numbers: Counter[str] = Counter()
    for device, racks in zip(devices, racks_of, strict=True):
        for rack in racks:
            numbers[device.kind] += 1
            inside[rack].append((device, numbers[device.kind]))
    for rack, here in enumerate(inside):
        low, high = 1, floor.units + 1
        for device, number in sorted(here, key=_lowest_first):
            if device.is_switch:
                high -= device.rack_units
                yield PlacedDevice(device, number, rack, high)
            else:
                yield PlacedDevice(device, number, rack, low)
                low += device.rack_units


def _lowest_first(one: tuple[RackDevice, int]) -> tuple[bool, int, float, int]:
    device, number = one
    tier = _AFTER_MACHINES.index(device.kind) if device.is_switch else 0
    return device.is_switch, tier, -device.weight_kg, number
