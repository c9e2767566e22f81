"""Pydantic models of all spec files, read from YAML with line numbers in every error.

This module exports the models that every command needs. Plans, offers, sites, studies, and sweeps are imported from
their own modules, so that a prediction does not build them.
"""

from gpuyard.choices import Precision, Topology
from gpuyard.specs.base import KnownNames, Spec
from gpuyard.specs.cluster import Cluster, MachineSpec, Network, Protocol, Storage
from gpuyard.specs.exchange import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    ExchangeOptions,
    StrategyName,
)
from gpuyard.specs.loading import read_spec
from gpuyard.specs.workload import (
    Dataset,
    KnownThroughput,
    Tensor,
    TrainingTarget,
    Workload,
)

__all__ = [
    "DEFAULT_EXCHANGE",
    "DEFAULT_STRATEGY",
    "Cluster",
    "Dataset",
    "ExchangeOptions",
    "KnownNames",
    "KnownThroughput",
    "MachineSpec",
    "Network",
    "Precision",
    "Protocol",
    "Spec",
    "Storage",
    "StrategyName",
    "Tensor",
    "Topology",
    "TrainingTarget",
    "Workload",
    "read_spec",
]
