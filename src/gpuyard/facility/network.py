"""The network's part of a room: which fabric joins the machines, and its switches as devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuyard.catalog import Switch, links, machines, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.device import Device, Kind
from gpuyard.facility.fabric import (
    FabricDesign,
    FabricRequest,
    Floor,
    bill_of,
    design_fabric,
    management_network,
)
from gpuyard.facility.fabric.request import spines_for
from gpuyard.specs import Cluster

# what a catalog row leaves open; assumed
_WATTS_PER_PORT_GBIT = 0.07
_KG_PER_UNIT = 9.0
_DEPTH_MM = 660.0
_TYPICAL = 0.7  # of a switch's maximum


@dataclass(frozen=True)
class RoomNetwork:
    """The fabric between machines and the management network; both are None for one machine."""

    compute: FabricDesign | None = None
    management: FabricDesign | None = None
    devices: tuple[tuple[Device, int], ...] = ()
    served: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """The machines (from 0) that each leaf serves."""

    def nodes_of_leaf(self, leaf: int) -> Sequence[int]:
        return self.served[leaf] if leaf < len(self.served) else ()


def network_for(cluster: Cluster, nodes_per_rack: int, per_row: int) -> RoomNetwork:
    """The cheapest fabric of the catalog for the cluster's network, in as many rails as it has."""
    if cluster.nodes == 1:
        return RoomNetwork()
    floor = Floor(nodes_per_rack=nodes_per_rack, racks_per_row=per_row)
    compute = _cheapest(cluster, floor)
    shape = compute.shape
    tiers: list[tuple[Kind, Switch, int]] = [
        ("leaf", compute.switch, shape.leaves),
        ("spine", compute.spine_switch, shape.spines),
        ("core", compute.spine_switch, shape.cores),
    ]
    boxes = sum(count for _, _, count in tiers)
    management = management_network(cluster.nodes, boxes, floor)
    tiers += [("management", switches().get(s), count) for s, count in management.chassis.items()]
    below: list[set[int]] = [set() for _ in range(shape.leaves)]
    for node, _, leaf in compute.wiring.endpoints:
        below[leaf].add(node)
    return RoomNetwork(
        compute,
        management,
        tuple((_device(kind, switch), count) for kind, switch, count in tiers if count),
        tuple(tuple(sorted(nodes)) for nodes in below),
    )


def _cheapest(cluster: Cluster, floor: Floor) -> FabricDesign:
    gbit, kind, ports = _ports(cluster)
    usable = [s for s in switches() if s.kind == kind and s.port_gbit_per_second >= gbit * 0.99]
    slowest = min((s.port_gbit_per_second for s in usable), default=0.0)
    oversubscription = cluster.network.oversubscription if cluster.network else 1.0
    found: list[FabricDesign] = []
    why = "none is that fast"
    for switch in (s for s in usable if s.port_gbit_per_second == slowest):
        for spine in [None, *spines_for(switch)] if switch.uplink_ports else [None]:
            request = FabricRequest(
                nodes=cluster.nodes,
                ports_per_node=ports,
                switch=switch.id,
                rails=ports,
                oversubscription=oversubscription,
                spine=spine,
                floor=floor,
            )
            try:
                found.append(design_fabric(request))
            except UserMistake as mistake:
                why = str(mistake)
    if not found:
        raise GpuyardError(
            f"no switch of the catalog joins {cluster.nodes} machines with {ports} ports of"
            f" {gbit:g} Gbit/s: {why}"
        )
    return min(found, key=lambda fabric: (bill_of(fabric).total_usd or math.inf, fabric.switch.id))


def _ports(cluster: Cluster) -> tuple[float, str, int]:
    """Gbit/s of a port, the kind of network, and ports of a machine."""
    network = cluster.network
    if network is not None and network.rate is not None:
        return network.rate * 8 / 1e9, "ethernet", network.rails
    if network is not None and network.link is not None:
        link, ports = links().get(network.link), network.rails
    else:
        machine = machines().get(str(cluster.machine))
        if machine.nic_link is None:
            raise GpuyardError(
                f"{machine.name} has no network card in the catalog; give the cluster a 'network'"
            )
        link, ports = links().get(machine.nic_link), machine.nics
    return link.raw_bytes_per_second * 8 / 1e9, link.kind, ports


def _device(kind: Kind, switch: Switch) -> Device:
    units = math.ceil(switch.rack_units) or 1
    gbit = switch.ports * switch.port_gbit_per_second
    watts = switch.max_watts or max(gbit * _WATTS_PER_PORT_GBIT, 40.0)
    estimated = switch.max_watts is None or switch.watts_basis == "estimate"
    supplies = 2 if watts <= 3000 else 2 * math.ceil(watts / 2500)
    return Device(
        kind=kind,
        name=switch.name,
        rack_units=units,
        depth_mm=_DEPTH_MM,
        weight_kg=switch.weight_kg or _KG_PER_UNIT * units,
        typical_watts=_TYPICAL * watts,
        peak_watts=watts,
        supplies=supplies,
        supplies_needed=supplies // 2,
        supplies_minimum=supplies // 2,
        inlet="c14" if watts / (supplies // 2) <= 1900 else "c20",
        price_usd=switch.price_usd,
        price_date=f"{switch.date}, {switch.price_basis}" if switch.price_usd else "",
        basis="watts estimated" if estimated else "watts as listed",
        part=switch.id,
    )
