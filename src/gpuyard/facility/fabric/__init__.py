"""The network between machines: how many switches, which cables, what it carries and costs."""

from gpuyard.facility.fabric.bill import FabricBill, bill_of
from gpuyard.facility.fabric.cabling import CableRun, place_switches
from gpuyard.facility.fabric.candidates import HostPorts, cheapest_fabric, fabrics_on
from gpuyard.facility.fabric.design import FabricDesign, design_fabric
from gpuyard.facility.fabric.floor import TypicalFloor
from gpuyard.facility.fabric.request import FabricRequest, spines_for
from gpuyard.facility.fabric.shape import Shape
from gpuyard.facility.fabric.supporting_networks import (
    default_storage_servers,
    management_network,
    storage_network,
)
from gpuyard.facility.fabric.wiring import Wiring

__all__ = [
    "CableRun",
    "FabricBill",
    "FabricDesign",
    "FabricRequest",
    "HostPorts",
    "Shape",
    "TypicalFloor",
    "Wiring",
    "bill_of",
    "cheapest_fabric",
    "default_storage_servers",
    "design_fabric",
    "fabrics_on",
    "management_network",
    "place_switches",
    "spines_for",
    "storage_network",
]
