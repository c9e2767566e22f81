"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.cables import Cable, cables
from gpuyard.catalog.gpus import Gpu, gpus
from gpuyard.catalog.links import Link, links
from gpuyard.catalog.machines import Machine, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.prices import Price, prices
from gpuyard.catalog.switches import Switch, switches
from gpuyard.catalog.tables import Table

__all__ = [
    "Cable",
    "Gpu",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Price",
    "Switch",
    "Table",
    "cables",
    "gpus",
    "links",
    "machines",
    "models",
    "prices",
    "switches",
]
