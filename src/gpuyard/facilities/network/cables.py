"""The network cables of a room, with their lengths between the racks, and a summary of each network."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.fabric import FabricDesign
from gpuyard.facilities.fabric.cabling import choose_cables
from gpuyard.facilities.network.devices import TIERS
from gpuyard.facilities.network.room_network import RoomNetwork
from gpuyard.facilities.racks.floor_plan import PlacedDevice, Room

_HOST_CABLES = {
    "machines": "machine to leaf",
    "storage": "storage, host to leaf",
    "management": "management",
}
"""The name of the cables to the hosts, by network."""


@dataclass(frozen=True)
class NetworkCable:
    """Identical cables of one network, ordered together."""

    network: str
    use: str
    cable: str
    kind: str
    length_m: float
    count: int
    price_usd: float
    price_date: str


def lay_network_cables(network: RoomNetwork, room: Room) -> tuple[NetworkCable, ...]:
    """Return all cables, network by network and from the hosts up, with identical cables together."""
    hosts = [*room.find_devices("server"), *room.find_devices("storage")]
    endpoints = {
        "machines": hosts,
        "storage": [hosts[host] for host in network.storage_port_hosts],
        "management": list_management_ports(network, room),
    }
    return tuple(
        cable
        for name, fabric in network.fabrics.items()
        for cable in _lay_cables(name, fabric, room, endpoints[name])
    )


def list_management_ports(network: RoomNetwork, room: Room) -> list[PlacedDevice]:
    """Return the device on each port of the management network; ports are assigned rack by rack."""
    return [
        placed
        for rack in range(room.floor.racks)
        for placed in room.get_rack(rack)
        for _ in range(network.count_management_ports(placed.device))
    ]


def _lay_cables(
    name: str, fabric: FabricDesign, room: Room, endpoints: Sequence[PlacedDevice]
) -> Iterator[NetworkCable]:
    leaves, spines, cores = (room.find_devices(kind) for kind in TIERS[name])
    down, up, top = Counter[float](), Counter[float](), Counter[float]()
    if fabric.request.direct:
        down[_measure_m(room, endpoints[0], endpoints[1])] = fabric.request.ports_per_node
    for node, _, leaf in fabric.wiring.endpoints:
        down[_measure_m(room, endpoints[node], leaves[leaf])] += 1
    for bundle in fabric.wiring.iter_leaf_spine():
        up[_measure_m(room, leaves[bundle.lower], spines[bundle.upper])] += bundle.links
    for bundle in fabric.wiring.iter_spine_core():
        top[_measure_m(room, spines[bundle.lower], cores[bundle.upper])] += bundle.links
    lowest = "machine to machine" if fabric.request.direct else _HOST_CABLES[name]
    prefix = "" if name == "machines" else f"{name}, "
    gbit, uplink_gbit = fabric.switch.port_gbit_per_second, fabric.switch.up_gbit_per_second
    tiers = [
        (lowest, down, gbit),
        (f"{prefix}leaf to spine", up, uplink_gbit),
        (f"{prefix}spine to core", top, uplink_gbit),
    ]
    for use, lengths, rate in tiers:
        for cable, length_m, count in choose_cables(lengths, rate):
            price = round(cable.cost_usd(length_m), 2)
            yield NetworkCable(
                name, use, cable.id, cable.name, length_m, count, price, cable.price_as_of
            )


def _measure_m(room: Room, first: PlacedDevice, second: PlacedDevice) -> float:
    return round(room.floor.measure_cable_m(first, second), 1)


@dataclass(frozen=True)
class NetworkSummary:
    """The switches and cables of one network.

    `usd` is the estimated price of switches and cables; None if one of them has no price.
    """

    name: str
    fabric: FabricDesign
    switches: tuple[tuple[RackDevice, int], ...]
    cables: int
    usd: float | None

    @property
    def usd_per_port(self) -> float | None:
        return None if self.usd is None else self.usd / self.fabric.request.endpoints


def summarize_networks(
    network: RoomNetwork, cables: Sequence[NetworkCable]
) -> tuple[NetworkSummary, ...]:
    summaries = []
    for name, fabric in network.fabrics.items():
        switches = tuple((d, n) for d, n in network.devices if d.kind in TIERS[name])
        own_cables = [cable for cable in cables if cable.network == name]
        prices = [d.price_usd * n for d, n in switches if d.price_usd is not None]
        usd = None
        if len(prices) == len(switches):
            usd = sum(prices) + sum(cable.count * cable.price_usd for cable in own_cables)
        count = sum(cable.count for cable in own_cables)
        summaries.append(NetworkSummary(name, fabric, switches, count, usd))
    return tuple(summaries)
