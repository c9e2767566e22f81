"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.facility_costs import FacilityCost, facility_costs
from gpuyard.catalog.gpus import Gpu, gpus
from gpuyard.catalog.links import Link, links
from gpuyard.catalog.machines import Machine, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.pdus import Pdu, pdus
from gpuyard.catalog.plugs import Plug, fits, plugs
from gpuyard.catalog.prices import Price, prices
from gpuyard.catalog.servers import Server, servers
from gpuyard.catalog.tables import Table

__all__ = [
    "FacilityCost",
    "Gpu",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Pdu",
    "Plug",
    "Price",
    "Server",
    "Table",
    "facility_costs",
    "fits",
    "gpus",
    "links",
    "machines",
    "models",
    "pdus",
    "plugs",
    "prices",
    "servers",
]
