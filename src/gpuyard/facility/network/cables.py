"""The network cables of a room, each as long as its two ends are apart in their racks, and what each network
takes and costs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuyard.facility.device import RackDevice
from gpuyard.facility.fabric import FabricDesign
from gpuyard.facility.fabric.cabling import sold_cables
from gpuyard.facility.network.devices import TIERS
from gpuyard.facility.network.room_network import RoomNetwork
from gpuyard.facility.racks.floor_plan import PlacedDevice
from gpuyard.facility.racks.placing import Room

_LOWEST = {
    "machines": "machine to leaf",
    "storage": "storage, host to leaf",
    "management": "management",
}
"""What the cables to the hosts of a network are called."""


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
    plugged = {
        "machines": hosts,
        "storage": [hosts[owner] for owner in network.storage_hosts],
        "management": managed_ports(network, room),
    }
    return tuple(
        cable
        for name, fabric in network.fabrics.items()
        for cable in _laid(name, fabric, room, plugged[name])
    )


def managed_ports(network: RoomNetwork, room: Room) -> list[PlacedDevice]:
    """What is plugged into each port of the management network: dealt from rack to rack."""
    return [
        placed
        for rack in range(room.floor.racks)
        for placed in room.in_rack(rack)
        for _ in range(network.ports_for_management(placed.device))
    ]


def _laid(
    name: str, fabric: FabricDesign, room: Room, plugged: Sequence[PlacedDevice]
) -> Iterator[NetworkCable]:
    leaves, spines, cores = (room.of_kind(kind) for kind in TIERS[name])
    down, up, top = Counter[float](), Counter[float](), Counter[float]()
    if fabric.request.direct:
        down[_apart_m(room, plugged[0], plugged[1])] = fabric.request.ports_per_node
    for node, _, leaf in fabric.wiring.endpoints:
        down[_apart_m(room, plugged[node], leaves[leaf])] += 1
    for bundle in fabric.wiring.leaf_spine():
        up[_apart_m(room, leaves[bundle.lower], spines[bundle.upper])] += bundle.links
    for bundle in fabric.wiring.spine_core():
        top[_apart_m(room, spines[bundle.lower], cores[bundle.upper])] += bundle.links
    lowest = "machine to machine" if fabric.request.direct else _LOWEST[name]
    before = "" if name == "machines" else f"{name}, "
    gbit, above = fabric.switch.port_gbit_per_second, fabric.switch.up_gbit_per_second
    tiers = [
        (lowest, down, gbit),
        (f"{before}leaf to spine", up, above),
        (f"{before}spine to core", top, above),
    ]
    for use, lengths, rate in tiers:
        for cable, length_m, count in sold_cables(lengths, rate):
            price = round(cable.cost_usd(length_m), 2)
            yield NetworkCable(
                name, use, cable.id, cable.name, length_m, count, price, cable.price_as_of
            )


def _apart_m(room: Room, one: PlacedDevice, other: PlacedDevice) -> float:
    return round(room.floor.cable_m(one, other), 1)


@dataclass(frozen=True)
class NetworkFigures:
    """`usd` are switches and cables by estimated prices, None where one is not known."""

    name: str
    fabric: FabricDesign
    boxes: tuple[tuple[RackDevice, int], ...]
    cables: int
    usd: float | None

    @property
    def usd_per_port(self) -> float | None:
        return None if self.usd is None else self.usd / self.fabric.request.endpoints


def network_figures(
    network: RoomNetwork, cables: Sequence[NetworkCable]
) -> tuple[NetworkFigures, ...]:
    """Of each network that there is."""
    figures = []
    for name, fabric in network.fabrics.items():
        boxes = tuple((d, n) for d, n in network.devices if d.kind in TIERS[name])
        laid = [cable for cable in cables if cable.network == name]
        prices = [d.price_usd * n for d, n in boxes if d.price_usd is not None]
        usd = None
        if len(prices) == len(boxes):
            usd = sum(prices) + sum(cable.count * cable.price_usd for cable in laid)
        count = sum(cable.count for cable in laid)
        figures.append(NetworkFigures(name, fabric, boxes, count, usd))
    return tuple(figures)
