"""Place the devices in the racks so that cables stay short.

Servers are spread evenly over the racks. Each leaf goes where its cables are shortest, the switches above go among the
leaves, and the storage servers go among the machines.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.network.devices import TIERS
from gpuyard.facilities.network.room_network import RoomNetwork
from gpuyard.facilities.racks.floor_plan import FloorPlan, PlacedDevice, Room
from gpuyard.facilities.racks.packing import RackLimits, RackPacking, count_fitting, sum_shares

_PLACING_ORDER = (*TIERS["machines"], "storage", *TIERS["storage"], *TIERS["management"])
"""The order after the servers: each kind is placed after the devices that it connects to."""


def place_devices(
    packing: RackPacking, limits: RackLimits, per_row: int, network: RoomNetwork
) -> Room:
    """Place all devices. Racks are numbered along the rows, with those without servers in the middle.

    If an even spread does not fit, the racks are filled as packed.
    """
    floor = FloorPlan(len(packing.racks), limits.units, per_row)
    placement = _EvenPlacement(packing, limits, floor, network).place() or _place_as_packed(packing)
    return Room(floor, tuple(_stack(packing.devices, placement, floor)))


def _place_as_packed(packing: RackPacking) -> list[list[int]]:
    """Return, for each device of the packing, the rack of its first, second, … copy."""
    racks = list(enumerate(_order_racks(packing)))
    kinds = range(len(packing.devices))
    return [[rack for rack, counts in racks for _ in range(counts[k])] for k in kinds]


def _order_racks(packing: RackPacking) -> list[tuple[int, ...]]:
    """Return the counts of each rack, with the racks without servers in the middle."""
    with_servers = [rack for rack in packing.racks if _has_servers(packing, rack)]
    without_servers = [rack for rack in packing.racks if not _has_servers(packing, rack)]
    middle = (len(with_servers) + 1) // 2
    return [*with_servers[:middle], *without_servers, *with_servers[middle:]]


def _has_servers(packing: RackPacking, rack: Sequence[int]) -> bool:
    return any(n and d.kind == "server" for d, n in zip(packing.devices, rack, strict=True))


class _EvenPlacement:
    """Spread the servers evenly, then put every other device closest to the devices that it connects to."""

    def __init__(
        self, packing: RackPacking, limits: RackLimits, floor: FloorPlan, network: RoomNetwork
    ) -> None:
        self._packing, self._network = packing, network
        self._shares = [limits.calculate_shares(device) for device in packing.devices]
        self._distances = _DistanceCache(floor)
        self._racks: dict[str, list[int]] = {}
        """For each kind, the rack of its first, second, … device."""
        self._used: list[list[float]] = []

    def place(self) -> list[list[int]] | None:
        """Return the racks of each device of the packing, or None if an even spread does not fit."""
        devices, racks = self._packing.devices, self._packing.racks
        server_racks = [
            rack
            for rack, counts in enumerate(_order_racks(self._packing))
            if _has_servers(self._packing, counts)
        ]
        totals = [sum(rack[k] for rack in racks) for k in range(len(devices))]
        placement: list[list[int]] = [[] for _ in devices]
        for k, device in enumerate(devices):
            if device.kind == "server":
                placement[k] = self._racks["server"] = _spread(totals[k], server_racks)
        self._used = [
            sum_shares([placed.count(rack) for placed in placement], self._shares)
            for rack in range(len(racks))
        ]
        if any(max(rack) > 1 + 1e-9 for rack in self._used):
            return None
        others = [(k, d) for k, d in enumerate(devices) if d.kind != "server"]
        for k, device in sorted(others, key=lambda other: _PLACING_ORDER.index(other[1].kind)):
            placed = self._place_near(k, device, totals[k])
            if placed is None:
                return None
            placement[k] = self._racks[device.kind] = placed
        return placement

    def _place_near(self, k: int, device: RackDevice, count: int) -> list[int] | None:
        shares = self._shares[k]
        free = [rack for rack, used in enumerate(self._used) if count_fitting(used, shares)]
        connected_racks = self._list_connected_racks(device.kind, count)
        chosen: list[int] = []
        for number in range(count):
            if not free:
                return None
            meters = self._distances.measure_to_all(connected_racks[number])
            rack = min(free, key=lambda r: (meters[r], r))
            chosen.append(rack)
            self._used[rack] = [a + b for a, b in zip(self._used[rack], shares, strict=True)]
            if not count_fitting(self._used[rack], shares):
                free.remove(rack)
        return chosen

    def _list_connected_racks(self, kind: str, count: int) -> list[list[int]]:
        """Return, for each device of this kind, the racks to which its cables go."""
        server_racks = self._racks["server"]
        if kind == "storage":
            return [server_racks] * count
        if kind == "management":
            return self._list_managed_racks(count)
        host_racks = [*server_racks, *self._racks.get("storage", [])]
        if kind in {"leaf", "storage leaf"}:
            below = [self._network.get_leaf_hosts(kind, leaf) for leaf in range(count)]
            # storage servers that share the machines' network are placed after its leaves
            return [
                [host_racks[host] for host in hosts if host < len(host_racks)] or server_racks
                for hosts in below
            ]
        lowest = next(tiers[0] for tiers in TIERS.values() if kind in tiers)
        return [self._racks[lowest]] * count

    def _list_managed_racks(self, count: int) -> list[list[int]]:
        """Return the racks that each management switch serves; its ports are assigned rack by rack."""
        fabric = self._network.management
        ports = Counter[int]()
        for device in self._packing.devices:
            for rack in self._racks.get(device.kind, []):
                ports[rack] += self._network.count_management_ports(device)
        port_racks = [rack for rack in sorted(ports) for _ in range(ports[rack])]
        served: list[list[int]] = [[] for _ in range(count)]
        if fabric is not None:
            for port, _, leaf in fabric.wiring.endpoints:
                served[leaf].append(port_racks[port])
        return served


def _spread(count: int, racks: Sequence[int]) -> list[int]:
    """Return the rack of each server in order; the first racks get one more if the count does not divide."""
    each, more = divmod(count, len(racks))
    return [rack for i, rack in enumerate(racks) for _ in range(each + (i < more))]


class _DistanceCache:
    """The total distance from every rack to a set of racks; cached, because many leaves serve the same machines."""

    def __init__(self, floor: FloorPlan) -> None:
        self._floor = floor
        self._cache: dict[frozenset[tuple[int, int]], list[float]] = {}

    def measure_to_all(self, racks: Sequence[int]) -> list[float]:
        weights = Counter(racks)
        key = frozenset(weights.items())
        if key not in self._cache:
            self._cache[key] = [
                sum(n * self._floor.measure_distance_m(rack, other) for other, n in weights.items())
                for rack in range(self._floor.racks)
            ]
        return self._cache[key]


def _stack(
    devices: Sequence[RackDevice], placement: Sequence[Sequence[int]], floor: FloorPlan
) -> Iterator[PlacedDevice]:
    """Stack heavy devices from the floor up and switches from the top down, and number them by kind."""
    inside: list[list[tuple[RackDevice, int]]] = [[] for _ in range(floor.racks)]
    numbers: Counter[str] = Counter()
    for device, racks in zip(devices, placement, strict=True):
        for rack in racks:
            numbers[device.kind] += 1
            inside[rack].append((device, numbers[device.kind]))
    for rack, numbered in enumerate(inside):
        low, high = 1, floor.units + 1
        for device, number in sorted(numbered, key=_stacking_key):
            if device.is_switch:
                high -= device.rack_units
                yield PlacedDevice(device, number, rack, high)
            else:
                yield PlacedDevice(device, number, rack, low)
                low += device.rack_units


def _stacking_key(numbered: tuple[RackDevice, int]) -> tuple[bool, int, float, int]:
    device, number = numbered
    tier = _PLACING_ORDER.index(device.kind) if device.is_switch else 0
    return device.is_switch, tier, -device.weight_kg, number
