"""The nouns as pydantic models: YAML in, errors with line numbers out, JSON Schema."""

from gpuyard.specs.base import Spec
from gpuyard.specs.cluster import Cluster, MachineSpec, Network, Protocol, Storage, Topology
from gpuyard.specs.loading import read_spec
from gpuyard.specs.quantities import KnownNames
from gpuyard.specs.remedy import Remedy
from gpuyard.specs.schema import SPECS, json_schema
from gpuyard.specs.study import MeasureHere, RentOrBuy, Study, StudyCluster, StudyWorkload
from gpuyard.specs.sweep import SweepFile, SweepLink, SweepWorkload
from gpuyard.specs.workload import (
    Dataset,
    KnownThroughput,
    Precision,
    Strategy,
    Target,
    Tensor,
    Workload,
)

__all__ = [
    "SPECS",
    "Cluster",
    "Dataset",
    "KnownNames",
    "KnownThroughput",
    "MachineSpec",
    "MeasureHere",
    "Network",
    "Precision",
    "Protocol",
    "Remedy",
    "RentOrBuy",
    "Spec",
    "Storage",
    "Strategy",
    "Study",
    "StudyCluster",
    "StudyWorkload",
    "SweepFile",
    "SweepLink",
    "SweepWorkload",
    "Target",
    "Tensor",
    "Topology",
    "Workload",
    "json_schema",
    "read_spec",
]
