"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.gpus import Gpu, gpus
from gpuyard.catalog.links import Link, links
from gpuyard.catalog.machines import Machine, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.price_basis import PRICES_OF
from gpuyard.catalog.prices import Price, past_prices, price_named, prices
from gpuyard.catalog.tables import Table

__all__ = [
    "PRICES_OF",
    "Gpu",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Price",
    "Table",
    "gpus",
    "links",
    "machines",
    "models",
    "past_prices",
    "price_named",
    "prices",
]
