"""The nouns as pydantic models: YAML in, errors with line numbers out, JSON Schema."""

from gpuyard.specs.base import Spec
from gpuyard.specs.cluster import Cluster, MachineSpec, Network, Protocol, Storage, Topology
from gpuyard.specs.exchange import DEFAULT_EXCHANGE, GradientExchange
from gpuyard.specs.loading import read_spec
from gpuyard.specs.offers import (
    Load,
    Offers,
    OfferSpec,
    OnDemandOffer,
    OwnedOffer,
    ReservedOffer,
    SpotOffer,
)
from gpuyard.specs.plan import OwnOffer, Plan, PlanRemedy, Way
from gpuyard.specs.quantities import KnownNames
from gpuyard.specs.remedy import Remedy
from gpuyard.specs.schema import SPECS, json_schema
from gpuyard.specs.site import Circuit, Cooling, RackLimits, Site, SiteKind
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
    "DEFAULT_EXCHANGE",
    "SPECS",
    "Circuit",
    "Cluster",
    "Cooling",
    "Dataset",
    "GradientExchange",
    "KnownNames",
    "KnownThroughput",
    "Load",
    "MachineSpec",
    "MeasureHere",
    "Network",
    "OfferSpec",
    "Offers",
    "OnDemandOffer",
    "OwnOffer",
    "OwnedOffer",
    "Plan",
    "PlanRemedy",
    "Precision",
    "Protocol",
    "RackLimits",
    "Remedy",
    "RentOrBuy",
    "ReservedOffer",
    "Site",
    "SiteKind",
    "Spec",
    "SpotOffer",
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
    "Way",
    "Workload",
    "json_schema",
    "read_spec",
]
