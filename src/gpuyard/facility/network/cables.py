"""The network cables of a room, each as long as its two ends are apart in their racks."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuyard.catalog.fabric import cables
from gpuyard.facility.fabric import FabricDesign
from gpuyard.facility.fabric.cabling import choose_cable
from gpuyard.facility.network.devices import TIERS
from gpuyard.facility.network.room_network import RoomNetwork
from gpuyard.facility.racks.floor_plan import PlacedDevice
from gpuyard.facility.racks.placing import Room


@dataclass(frozen=True)
class NetworkCable:
    """Cables that are ordered together."""

    network: str
    use: str
    cable: str
    kind: str
    length_m: float
    count: int
    price_usd: float
    price_date: str


def network_cables(network: RoomNetwork, room: Room) -> tuple[NetworkCable, ...]:
    """Those that are alike together, network by network and from the hosts up."""
    hosts = [*room.of_kind("server"), *room.of_kind("storage")]
    found: list[NetworkCable] = []
    if network.compute is not None:
        found += _laid("machines", network.compute, room, lambda port: hosts[port])
    if network.storage is not None:
        owners = network.storage_hosts
        found += _laid("storage", network.storage, room, lambda port: hosts[owners[port]])
    if network.management is not None:
        managed = managed_ports(network, room)
        found += _laid("management", network.management, room, lambda port: managed[port])
    return tuple(found)


def managed_ports(network: RoomNetwork, room: Room) -> list[PlacedDevice]:
    """What is plugged into each port of the management network: dealt from rack to rack."""
    return [
        placed
        for rack in range(room.floor.racks)
        for placed in room.in_rack(rack)
        for _ in range(network.ports_for_management(placed.device))
    ]


def _laid(
    name: str, fabric: FabricDesign, room: Room, host: Callable[[int], PlacedDevice]
) -> Iterator[NetworkCable]:
    leaves, spines, cores = (room.of_kind(kind) for kind in TIERS[name])
    down, up, top = Counter[float](), Counter[float](), Counter[float]()
    for node, _, leaf in fabric.wiring.endpoints:
        down[_apart(room, host(node), leaves[leaf])] += 1
    for bundle in fabric.wiring.leaf_spine():
        up[_apart(room, leaves[bundle.lower], spines[bundle.upper])] += bundle.links
    for bundle in fabric.wiring.spine_core():
        top[_apart(room, spines[bundle.lower], cores[bundle.upper])] += bundle.links
    before = "" if name == "machines" else f"{name}, "
    below = "machine to leaf" if name == "machines" else f"{before}host to leaf"
    if name == "management":
        below = "management"
    gbit, above = fabric.switch.port_gbit_per_second, fabric.switch.up_gbit_per_second
    yield from _sold((name, below), down, gbit)
    yield from _sold((name, f"{before}leaf to spine"), up, above)
    yield from _sold((name, f"{before}spine to core"), top, above)


def _apart(room: Room, one: PlacedDevice, other: PlacedDevice) -> float:
    return round(room.floor.cable_m(one, other), 1)


def _sold(use: tuple[str, str], lengths: Counter[float], gbit: float) -> Iterator[NetworkCable]:
    sold = Counter[tuple[str, float]]()
    for needed, count in lengths.items():
        cable = choose_cable(gbit, needed)
        sold[cable.id, cable.sold_length_m(needed)] += count
    for (name, length), count in sorted(sold.items(), key=lambda item: (item[0][1], item[0][0])):
        row = cables().get(name)
        price = round(row.cost_usd(length), 2)
        yield NetworkCable(*use, row.id, row.name, length, count, price, row.price_as_of)
