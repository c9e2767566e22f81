"""A prediction: one configuration's step in parts, its throughput with an interval, and its choke."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.predict.constants import Constant
from gpuyard.predict.placement import Placement
from gpuyard.specs import StrategyName

Choke = Literal["gpu", "network", "pcie", "storage", "host", "none"]


@dataclass(frozen=True)
class Step:
    """Seconds of one step, by what is waited for."""

    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    straggler_seconds: float

    @property
    def seconds(self) -> float:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )


@dataclass(frozen=True)
class Prediction:
    """What one configuration would do."""

    gpus: int
    nodes: int
    gpus_per_node: int
    batch_per_gpu: int
    strategy: StrategyName
    samples_per_second: float
    low: float
    high: float
    scaling_efficiency: float
    step: Step
    choke: Choke
    epoch_seconds: float | None  # None: the workload has no dataset
    training_seconds: float | None  # all of the workload's epochs
    memory_bytes: float
    fits: bool | None  # None: nobody knows how much memory there is
    accumulate: int = 1
    local_sgd: int = 1
    compress: str | None = None
    bucket_bytes: float | None = None  # None: the framework's own
    hierarchical: bool = False
    beside: int = 0  # equal jobs on the same machines

    @property
    def placement(self) -> Placement:
        return Placement(self.gpus, self.nodes, self.gpus_per_node)


@dataclass(frozen=True)
class Remedy:
    """Something that would help one configuration, and by how much."""

    what: str
    samples_per_second: float
    gain: float  # times the throughput as it is: 1.5 is half as fast again
    caveat: str = ""  # what it costs besides money
    memory_bytes: float | None = None  # of a GPU, where the change needs more of it
    adds_gpus: bool = False
    makes_fit: bool = False  # as it is, it does not fit: the gain is over GPUs with the memory

    @property
    def brings(self) -> str:
        """Its gain, where there is something to gain on."""
        return "it fits" if self.makes_fit else f"× {self.gain:.2f}"


@dataclass(frozen=True)
class ClusterPrediction:
    """All that was asked about one workload on one cluster, and what it stands on."""

    workload: str
    cluster: str
    compute_basis: str
    predictions: tuple[Prediction, ...]
    constants: tuple[Constant, ...]

    @property
    def single_gpu_speed(self) -> str:
        """What compute stands on, in words."""
        basis, _, source = self.compute_basis.partition(": ")
        if basis == "roofline":
            return source.replace("estimated", "roofline estimate", 1)
        return f"{basis} ({source})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
