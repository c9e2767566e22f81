"""The networks beside the compute fabric: management of every box, and storage."""

import math
from dataclasses import replace

from gpuyard.catalog.fabric import switches
from gpuyard.facility.fabric.design import FabricDesign, design_fabric
from gpuyard.facility.fabric.request import FabricRequest, TypicalFloor

MANAGEMENT_SWITCH = "nvidia-sn2201"
_SMALL_MANAGEMENT_SWITCH = "mikrotik-crs326-24g"
_MANAGEMENT_SPINES = ("mellanox-sn2700", "mellanox-sn4600c")
# a management network carries little: 20 ports of 1 Gbit/s share what one of them could fill
_MANAGEMENT_OVERSUBSCRIPTION = 20.0
_MACHINES_PER_STORAGE_SERVER = 10
"""Assumed."""


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
