"""Design the network between machines: switches, cables, bandwidth, and price."""

from gpuyard.facilities.fabric.candidates import (
    HostPorts,
    design_direct_fabric,
    design_fabrics,
    design_management_network,
    design_storage_network,
    estimate_storage_servers,
    find_cheapest_fabric,
    is_suitable_switch,
)
from gpuyard.facilities.fabric.design import FabricBill, FabricDesign, design_fabric
from gpuyard.facilities.fabric.request import FabricRequest, TypicalFloor

__all__ = [
    "FabricBill",
    "FabricDesign",
    "FabricRequest",
    "HostPorts",
    "TypicalFloor",
    "design_direct_fabric",
    "design_fabric",
    "design_fabrics",
    "design_management_network",
    "design_storage_network",
    "estimate_storage_servers",
    "find_cheapest_fabric",
    "is_suitable_switch",
]
