"""The network cables of a room, each as long as its two ends are apart in their racks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gpuyard.catalog import cables
from gpuyard.facility.fabric.cabling import choose_cable
from gpuyard.facility.network import RoomNetwork
from gpuyard.facility.placing import Room
from gpuyard.facility.rows import Placed


@dataclass(frozen=True)
class NetworkCable:
    """Cables that are ordered together."""

    use: str
    cable: str
    kind: str
    length_m: float
    count: int
    price_usd: float
    price_date: str


def network_cables(network: RoomNetwork, room: Room) -> tuple[NetworkCable, ...]:
    """Those that are alike together, machines first."""
    if network.compute is None:
        return ()
    return (*_compute(network, room), *_management(room))


def _compute(network: RoomNetwork, room: Room) -> Iterator[NetworkCable]:
    fabric = network.compute
    if fabric is None:
        return
    nodes, leaves = room.of_kind("server"), room.of_kind("leaf")
    spines, cores = room.of_kind("spine"), room.of_kind("core")
    down, up, top = Counter[float](), Counter[float](), Counter[float]()
    for node, _, leaf in fabric.wiring.endpoints:
        down[_apart(room, nodes[node], leaves[leaf])] += 1
    for bundle in fabric.wiring.leaf_spine():
        up[_apart(room, leaves[bundle.lower], spines[bundle.upper])] += bundle.links
    for bundle in fabric.wiring.spine_core():
        top[_apart(room, spines[bundle.lower], cores[bundle.upper])] += bundle.links
    gbit = fabric.switch.port_gbit_per_second
    yield from _sold("machine to leaf", down, gbit)
    yield from _sold("leaf to spine", up, fabric.switch.up_gbit_per_second)
    yield from _sold("spine to core", top, fabric.switch.up_gbit_per_second)


def _management(room: Room) -> Iterator[NetworkCable]:
    """Two from each machine and one from each switch to the nearest management switch."""
    managers = room.of_kind("management")
    near = {
        rack: min(managers, key=lambda m: (room.rows.distance_m(rack, m.rack), m.rack))
        for rack in range(room.rows.racks)
    }
    lengths = Counter[float]()
    for placed in room.placed:
        if placed.device.kind != "management":
            ports = 2 if placed.device.kind == "server" else 1
            lengths[_apart(room, placed, near[placed.rack])] += ports
    yield from _sold("management", lengths, 1.0)


def _apart(room: Room, one: Placed, other: Placed) -> float:
    return round(room.rows.cable_m(one, other), 1)


def _sold(use: str, lengths: Counter[float], gbit: float) -> Iterator[NetworkCable]:
    sold = Counter[tuple[str, float]]()
    for needed, count in lengths.items():
        cable = choose_cable(gbit, needed)
        sold[cable.id, cable.sold_length_m(needed)] += count
    for (name, length), count in sorted(sold.items(), key=lambda item: (item[0][1], item[0][0])):
        row = cables().get(name)
        price = round(row.cost_usd(length), 2)
        yield NetworkCable(
            use, row.id, row.name, length, count, price, f"{row.date}, {row.price_basis}"
        )
