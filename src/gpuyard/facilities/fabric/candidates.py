"""Choose the cheapest fabric from the catalog, and design the management and storage networks beside it."""

import math
from dataclasses import dataclass, replace

from gpuyard.catalog.fabric import Switch, switches
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.fabric.design import FabricDesign, design_fabric
from gpuyard.facilities.fabric.request import FabricRequest, TypicalFloor, find_spines

MANAGEMENT_SWITCH = "nvidia-sn2201"
_SMALL_MANAGEMENT_SWITCH = "mikrotik-crs326-24g"
_MANAGEMENT_SPINES = ("mellanox-sn2700", "mellanox-sn4600c")
# management traffic is light: 20 ports of 1 Gbit/s share the bandwidth of one
_MANAGEMENT_OVERSUBSCRIPTION = 20.0
_MACHINES_PER_STORAGE_SERVER = 10  # assumed


@dataclass(frozen=True)
class HostPorts:
    """The ports that each host has on one network, all of one rate and each on its own rail.

    `redundant` requires switches that two feeds can power.
    """

    gbit_per_second: float
    kind: str
    ports: int = 1
    oversubscription: float = 1.0
    redundant: bool = False


def design_fabrics(
    leaf: Switch, hosts: int, ports: int, oversubscription: float, floor: TypicalFloor
) -> list[FabricDesign]:
    """Design a fabric with this leaf under every switch that matches it, with one rail per host port.

    Raises UserMistake with the reason if no fabric is possible.
    """
    designs: list[FabricDesign] = []
    error: UserMistake | None = None
    for spine in _list_spines(leaf, hosts * ports):
        request = FabricRequest(
            nodes=hosts,
            ports_per_node=ports,
            switch=leaf.id,
            rails=ports,
            oversubscription=oversubscription,
            spine=spine,
            floor=floor,
        )
        try:
            designs.append(design_fabric(request))
        except UserMistake as mistake:
            error = mistake
    if error is not None and not designs:
        raise error
    return designs


def design_direct_fabric(switch: Switch, ports: int, floor: TypicalFloor) -> FabricDesign:
    """Design cables between two machines whose ports are like those of this switch."""
    request = FabricRequest(2, ports, switch.id, rails=ports, floor=floor, direct=True)
    return design_fabric(request)


def _list_spines(leaf: Switch, endpoints: int) -> list[str | None]:
    """Return the switches to try above a leaf; None stands for the leaf's own model.

    Uplinks of another rate need another model. A director may be above any leaf of the same rate.
    """
    if endpoints <= leaf.ports:
        return [None]
    spines = [name for name in find_spines(leaf) if name != leaf.id]
    if leaf.uplink_ports:
        return [*spines] or [None]
    return [None, *(name for name in spines if switches().get(name).director)]


def find_cheapest_fabric(host_ports: HostPorts, hosts: int, floor: TypicalFloor) -> FabricDesign:
    """Return the cheapest fabric of the slowest switches that are fast enough.

    Discontinued switches are used only if there are no others.
    """
    candidates = _list_slowest_switches(host_ports, hosts * host_ports.ports)
    designs: list[FabricDesign] = []
    if candidates and hosts == 2:
        designs.append(design_direct_fabric(candidates[0], host_ports.ports, floor))
    reason = "no switch is fast enough"
    for switch in candidates:
        try:
            designs += design_fabrics(
                switch, hosts, host_ports.ports, host_ports.oversubscription, floor
            )
        except UserMistake as mistake:
            reason = str(mistake)
    if not designs:
        raise GpuyardError(
            f"no switch in the catalog joins {hosts} hosts with {host_ports.ports} ports of"
            f" {host_ports.gbit_per_second:g} Gbit/s: {reason}"
        )
    return min(designs, key=lambda design: (design.bill.total_usd or math.inf, design.switch.id))


def is_suitable_switch(switch: Switch, endpoints: int) -> bool:
    """Tell whether to consider a switch: a small one only if one of it has enough ports."""
    return not switch.small or endpoints <= switch.ports


def _list_slowest_switches(host_ports: HostPorts, endpoints: int) -> list[Switch]:
    fast_enough = [
        switch
        for switch in switches()
        if switch.kind == host_ports.kind
        and switch.port_gbit_per_second >= host_ports.gbit_per_second * 0.99
        and is_suitable_switch(switch, endpoints)
    ]
    slowest = min((switch.port_gbit_per_second for switch in fast_enough), default=0.0)
    same_rate = [switch for switch in fast_enough if switch.port_gbit_per_second == slowest]
    sold = [switch for switch in same_rate if not switch.discontinued] or same_rate
    return [switch for switch in sold if switch.supplies != 1 or not host_ports.redundant] or sold


def design_management_network(
    nodes: int,
    switch_count: int,
    floor: TypicalFloor,
    ports_per_node: int = 2,
    *,
    redundant: bool = False,
) -> FabricDesign:
    """Design a network with a port for each machine's controller, its operating system, and each switch.

    All devices count as spread evenly over the racks. A small switch is used if it has enough ports. It has only
    one power supply, so it is not used if the network must be redundant.
    """
    ports = ports_per_node * nodes + switch_count
    racks = -(-nodes // floor.nodes_per_rack)
    even_floor = replace(floor, nodes_per_rack=-(-ports // racks))
    leaf = switches().get(MANAGEMENT_SWITCH)
    if not redundant and ports <= switches().get(_SMALL_MANAGEMENT_SWITCH).ports:
        leaf = switches().get(_SMALL_MANAGEMENT_SWITCH)
    fits_one_switch = ports <= leaf.ports
    needs_wide_spine = ports > leaf.ports * switches().get(_MANAGEMENT_SPINES[0]).ports
    return design_fabric(
        FabricRequest(
            nodes=ports,
            ports_per_node=1,
            switch=leaf.id,
            spine=None if fits_one_switch else _MANAGEMENT_SPINES[needs_wide_spine],
            oversubscription=1.0 if fits_one_switch else _MANAGEMENT_OVERSUBSCRIPTION,
            floor=even_floor,
        )
    )


def design_storage_network(
    nodes: int, ports_per_node: int, switch: str, floor: TypicalFloor
) -> FabricDesign:
    """Design a separate fabric for machines and storage servers; a server has as many ports as a machine."""
    servers = estimate_storage_servers(nodes)
    return design_fabric(FabricRequest(nodes + servers, ports_per_node, switch, floor=floor))


def estimate_storage_servers(nodes: int) -> int:
    """Return the number of storage servers to assume if the cluster file does not set it."""
    return math.ceil(nodes / _MACHINES_PER_STORAGE_SERVER)
