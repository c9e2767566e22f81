"""The network between machines: how many switches, which cables, what it carries and costs."""

from gpuyard.facility.fabric.candidates import (
    HostPorts,
    cheapest_fabric,
    default_storage_servers,
    direct_fabric,
    fabrics_on,
    management_network,
    proposed_for,
    storage_network,
)
from gpuyard.facility.fabric.design import FabricBill, FabricDesign, bill_of, design_fabric
from gpuyard.facility.fabric.request import FabricRequest, TypicalFloor

__all__ = [
    "FabricBill",
    "FabricDesign",
    "FabricRequest",
    "HostPorts",
    "TypicalFloor",
    "bill_of",
    "cheapest_fabric",
    "default_storage_servers",
    "design_fabric",
    "direct_fabric",
    "fabrics_on",
    "management_network",
    "proposed_for",
    "storage_network",
]
