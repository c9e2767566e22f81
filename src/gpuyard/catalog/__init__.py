"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.gpus import Gpu, gpus
from gpuyard.catalog.links import Link, links
from gpuyard.catalog.machines import Machine, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.parts import Chassis, GpuPrice, Port, chassis, gpu_prices, ports
from gpuyard.catalog.prices import Price, past_prices, price_named, prices
from gpuyard.catalog.tables import Table

__all__ = [
    "Chassis",
    "Gpu",
    "GpuPrice",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Port",
    "Price",
    "Table",
    "chassis",
    "gpu_prices",
    "gpus",
    "links",
    "machines",
    "models",
    "past_prices",
    "ports",
    "price_named",
    "prices",
]
