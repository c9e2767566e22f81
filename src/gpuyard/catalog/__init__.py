"""Facts about hardware, models, and prices, each with its source and date."""

from gpuyard.catalog.hardware import Gpu, Link, Machine, gpus, links, machines
from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.prices import Price, find_price, past_prices, prices
from gpuyard.catalog.tables import FactTable
from gpuyard.catalog.transformers import TransformerModel, transformers

__all__ = [
    "FactTable",
    "Gpu",
    "LayerProfile",
    "Link",
    "Machine",
    "ModelProfile",
    "Price",
    "TransformerModel",
    "find_price",
    "gpus",
    "links",
    "machines",
    "models",
    "past_prices",
    "prices",
    "transformers",
]
