"""Facts about hardware and what it costs, each with its source and date."""

from gpuyard.catalog.hardware import Gpu, Link, Machine, gpus, links, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.prices import Price, past_prices, price_named, prices
from gpuyard.catalog.tables import FactTable

__all__ = [
    "FactTable",
    "Gpu",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Price",
    "gpus",
    "links",
    "machines",
    "models",
    "past_prices",
    "price_named",
    "prices",
]
