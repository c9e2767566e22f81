"""Which fabrics of the catalog could join some ports, and the cheapest of them; and the networks beside the compute
fabric: management of every box, and storage."""

import math
from dataclasses import dataclass, replace

from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facility.fabric.design import FabricDesign, bill_of, design_fabric
from gpuyard.facility.fabric.request import FabricRequest, TypicalFloor, spines_for

MANAGEMENT_SWITCH = "nvidia-sn2201"
_SMALL_MANAGEMENT_SWITCH = "mikrotik-crs326-24g"
_MANAGEMENT_SPINES = ("mellanox-sn2700", "mellanox-sn4600c")
# a management network carries little: 20 ports of 1 Gbit/s share what one of them could fill
_MANAGEMENT_OVERSUBSCRIPTION = 20.0
_MACHINES_PER_STORAGE_SERVER = 10
"""Assumed."""


@dataclass(frozen=True)
class HostPorts:
    """What each host brings to one network: ports of one rate, each on a rail of its own. `redundant` asks
    for switches that two feeds can power."""

    gbit_per_second: float
    kind: str
    ports: int = 1
    oversubscription: float = 1.0
    redundant: bool = False


def fabrics_on(
    switch: Switch, hosts: int, ports: int, oversubscription: float, floor: TypicalFloor
) -> list[FabricDesign]:
    """A fabric with this leaf under every switch that may stand above it, and each port of a host on a
    rail of its own. Raises UserMistake with a reason where there is none."""
    found: list[FabricDesign] = []
    refused: UserMistake | None = None
    for spine in _spines(switch, hosts * ports):
        request = FabricRequest(
            nodes=hosts,
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
            refused = mistake
    if refused is not None and not found:
        raise refused
    return found


def direct_fabric(ports_of: Switch, ports: int, floor: TypicalFloor) -> FabricDesign:
    """Two machines with ports like those of this switch, and cables between them."""
    request = FabricRequest(2, ports, ports_of.id, rails=ports, floor=floor, direct=True)
    return design_fabric(request)


def _spines(leaf: Switch, endpoints: int) -> list[str | None]:
    """None is the leaf's own model. Uplinks of another rate need another model, and a director may stand
    above any leaf of its rate."""
    if endpoints <= leaf.ports:
        return [None]
    fitting = [name for name in spines_for(leaf) if name != leaf.id]
    if leaf.uplink_ports:
        return [*fitting] or [None]
    return [None, *(name for name in fitting if switches().get(name).director)]


def cheapest_fabric(wanted: HostPorts, hosts: int, floor: TypicalFloor) -> FabricDesign:
    """Of the slowest switches that are fast enough. Those no longer sold are taken only where there is
    no other."""
    fitting = _slowest_enough(wanted, hosts * wanted.ports)
    found = [direct_fabric(fitting[0], wanted.ports, floor)] if fitting and hosts == 2 else []
    why = "none is that fast"
    for switch in fitting:
        try:
            found += fabrics_on(switch, hosts, wanted.ports, wanted.oversubscription, floor)
        except UserMistake as mistake:
            why = str(mistake)
    if not found:
        raise GpuyardError(
            f"no switch of the catalog joins {hosts} hosts with {wanted.ports} ports of"
            f" {wanted.gbit_per_second:g} Gbit/s: {why}"
        )
    return min(found, key=lambda fabric: (bill_of(fabric).total_usd or math.inf, fabric.switch.id))


def proposed_for(switch: Switch, endpoints: int) -> bool:
    """A small switch only where one of it is enough."""
    return not switch.small or endpoints <= switch.ports


def _slowest_enough(wanted: HostPorts, endpoints: int) -> list[Switch]:
    fast = [
        switch
        for switch in switches()
        if switch.kind == wanted.kind
        and switch.port_gbit_per_second >= wanted.gbit_per_second * 0.99
        and proposed_for(switch, endpoints)
    ]
    slowest = min((switch.port_gbit_per_second for switch in fast), default=0.0)
    same = [switch for switch in fast if switch.port_gbit_per_second == slowest]
    sold = [switch for switch in same if not switch.discontinued] or same
    return [switch for switch in sold if switch.supplies != 1 or not wanted.redundant] or sold


def management_network(
    nodes: int,
    switch_count: int,
    floor: TypicalFloor,
    ports_per_node: int = 2,
    *,
    redundant: bool = False,
) -> FabricDesign:
    """A port for each machine's controller, one for its operating system, and one for each switch.

    The boxes are counted as if spread evenly over the racks. A small switch does where its ports are enough; it has
    one power supply, so not where it has to be redundant.
    """
    ports = ports_per_node * nodes + switch_count
    racks = -(-nodes // floor.nodes_per_rack)
    spread = replace(floor, nodes_per_rack=-(-ports // racks))
    leaf = switches().get(MANAGEMENT_SWITCH)
    if not redundant and ports <= switches().get(_SMALL_MANAGEMENT_SWITCH).ports:
        leaf = switches().get(_SMALL_MANAGEMENT_SWITCH)
    alone = ports <= leaf.ports
    wide = ports > leaf.ports * switches().get(_MANAGEMENT_SPINES[0]).ports
    return design_fabric(
        FabricRequest(
            nodes=ports,
            ports_per_node=1,
            switch=leaf.id,
            spine=None if alone else _MANAGEMENT_SPINES[wide],
            oversubscription=1.0 if alone else _MANAGEMENT_OVERSUBSCRIPTION,
            floor=spread,
        )
    )


def storage_network(
    nodes: int, ports_per_node: int, switch: str, floor: TypicalFloor
) -> FabricDesign:
    """Machines and storage servers on a fabric of their own; a server has as many ports as a machine."""
    servers = default_storage_servers(nodes)
    return design_fabric(FabricRequest(nodes + servers, ports_per_node, switch, floor=floor))


def default_storage_servers(nodes: int) -> int:
    """How many there are where nobody says."""
    return math.ceil(nodes / _MACHINES_PER_STORAGE_SERVER)
