"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.cables import Cable, cables
from gpuyard.catalog.cloud_data import ASSUMED_CLOUD, CloudData, cloud_data
from gpuyard.catalog.facility_costs import FacilityCost, facility_costs
from gpuyard.catalog.gpus import Gpu, gpus
from gpuyard.catalog.links import Link, links
from gpuyard.catalog.machines import Machine, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.parts import Chassis, GpuPrice, Port, chassis, gpu_prices, ports
from gpuyard.catalog.pdus import Pdu, pdus
from gpuyard.catalog.plugs import Plug, fits, plugs
from gpuyard.catalog.price_basis import PRICES_OF
from gpuyard.catalog.prices import Price, past_prices, price_named, prices
from gpuyard.catalog.servers import Server, servers
from gpuyard.catalog.storage import StorageOption, storage_options
from gpuyard.catalog.storage_needs import StorageNeed, storage_needs
from gpuyard.catalog.switches import Switch, switches
from gpuyard.catalog.tables import Table

__all__ = [
    "ASSUMED_CLOUD",
    "PRICES_OF",
    "Cable",
    "Chassis",
    "CloudData",
    "FacilityCost",
    "Gpu",
    "GpuPrice",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Pdu",
    "Plug",
    "Port",
    "Price",
    "Server",
    "StorageNeed",
    "StorageOption",
    "Switch",
    "Table",
    "cables",
    "chassis",
    "cloud_data",
    "facility_costs",
    "fits",
    "gpu_prices",
    "gpus",
    "links",
    "machines",
    "models",
    "past_prices",
    "pdus",
    "plugs",
    "ports",
    "price_named",
    "prices",
    "servers",
    "storage_needs",
    "storage_options",
    "switches",
]
