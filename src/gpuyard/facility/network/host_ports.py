"""Which fabric of the catalog joins the ports of a room's machines: the cheapest."""

import math
from dataclasses import dataclass

from gpuyard.catalog import Link, links, machines
from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.fabric import (
    FabricDesign,
    FabricRequest,
    TypicalFloor,
    bill_of,
    design_fabric,
    spines_for,
)
from gpuyard.specs import Cluster


@dataclass(frozen=True)
class HostPorts:
    """What each host brings to one network: ports of one rate, each on a rail of its own."""

    gbit_per_second: float
    kind: str
    ports: int = 1
    oversubscription: float = 1.0


def machine_ports(cluster: Cluster) -> HostPorts:
    """From the cluster's network, else from the cards that the catalog knows of its machine."""
    network = cluster.network
    if network is not None and network.rate is not None:
        gbit = network.rate * 8 / 1e9
        return HostPorts(gbit, "ethernet", network.rails, network.oversubscription)
    if network is not None and network.link is not None:
        link, ports = between_hosts(links().get(network.link), "network.link"), network.rails
    else:
        machine = machines().get(str(cluster.machine))
        if machine.nic_link is None:
            raise GpuyardError(
                f"{machine.name} has no network card in the catalog; give the cluster a 'network'"
            )
        link, ports = links().get(machine.nic_link), machine.nics
    oversubscription = network.oversubscription if network else 1.0
    return HostPorts(link.raw_bytes_per_second * 8 / 1e9, link.kind, ports, oversubscription)


def between_hosts(link: Link, key: str) -> Link:
    """The link, if it can leave a machine."""
    if link.kind not in {"ethernet", "infiniband"}:
        raise UserMistake(
            f"{key}: {link.id} is inside a machine; between machines there is ethernet or infiniband"
        )
    return link


def cheapest_fabric(wanted: HostPorts, hosts: int, floor: TypicalFloor) -> FabricDesign:
    """Of the slowest switches that are fast enough. Those no longer sold are taken only where there is
    no other."""
    found: list[FabricDesign] = []
    why = "none is that fast"
    for switch in _usable(wanted):
        for spine in [None, *_spines(switch)]:
            request = FabricRequest(
                nodes=hosts,
                ports_per_node=wanted.ports,
                switch=switch.id,
                rails=wanted.ports,
                oversubscription=wanted.oversubscription,
                spine=spine,
                floor=floor,
            )
            try:
                found.append(design_fabric(request))
            except UserMistake as mistake:
                why = str(mistake)
    if not found:
        raise GpuyardError(
            f"no switch of the catalog joins {hosts} hosts with {wanted.ports} ports of"
            f" {wanted.gbit_per_second:g} Gbit/s: {why}"
        )
    return min(found, key=lambda fabric: (bill_of(fabric).total_usd or math.inf, fabric.switch.id))


def _spines(leaf: Switch) -> list[str]:
    """Other switches above it: any for uplinks of their own rate, directors for all."""
    return [
        spine
        for spine in spines_for(leaf)
        if leaf.uplink_ports or (switches().get(spine).director and spine != leaf.id)
    ]


def _usable(wanted: HostPorts) -> list[Switch]:
    fast = [
        switch
        for switch in switches()
        if switch.kind == wanted.kind
        and switch.port_gbit_per_second >= wanted.gbit_per_second * 0.99
    ]
    slowest = min((switch.port_gbit_per_second for switch in fast), default=0.0)
    same = [switch for switch in fast if switch.port_gbit_per_second == slowest]
    return [switch for switch in same if not switch.discontinued] or same
