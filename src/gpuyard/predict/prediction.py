"""A prediction: one configuration's step in parts, its throughput with an interval, and its choke.

Backward emits gradients layer by layer; buckets are exchanged while the rest of backward runs; what
does not hide is exposed. Input runs beside it all. The slowest of k noisy workers sets the pace.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from gpuyard.predict.constants import Constant
from gpuyard.predict.table import Floats, Move, Placement, Table
from gpuyard.predict.transport import expected_maximum
from gpuyard.specs import Precision, StrategyName
from gpuyard.specs.workload import GradientDtype

Choke = Literal["gpu", "network", "pcie", "storage", "host", "none"]


@dataclass(frozen=True)
class Step:
    """Seconds of one step, by what is waited for."""

    compute_seconds: float
    exposed_communication_seconds: float
    input_seconds: float
    straggler_seconds: float

    def lasting(self, seconds: float) -> "Step":
        """The same with another length: what is waited for takes the difference, and then compute."""
        more = seconds - self.seconds
        waited = self.exposed_communication_seconds + self.straggler_seconds
        kept = max(0.0, waited + more)
        if self.exposed_communication_seconds > 0:
            share = self.exposed_communication_seconds / waited
        else:
            share = 0.0
        compute = self.compute_seconds + min(0.0, waited + more)
        return Step(compute, share * kept, self.input_seconds, (1 - share) * kept)

    @property
    def seconds(self) -> float:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )


@dataclass(frozen=True)
class Unmeasured:
    """What would be predicted without any figure of several GPUs."""

    samples_per_second: float
    low: float
    high: float


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
    precision: Precision = "fp32"
    moves: tuple[Move, ...] = ()  # what crosses a GPU's link in one step
    epoch_bytes: float | None = None  # all of it, in all steps of an epoch
    before: Unmeasured | None = None  # where figures of several GPUs entered

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
    precision: Precision = "fp32"
    precision_note: str = ""  # why this one, and what it means on this GPU
    # from which batch on one GPU does at least 90 % of what it does at any; None: from the first
    saturating_batch: int | None = None
    points: int = 0  # figures of several GPUs that entered
    point_sources: tuple[str, ...] = ()  # where they are from, each once
    framework_note: str = ""  # what is known of the framework that the workload names
    gradient_dtype: GradientDtype = "fp32"  # in which gradients cross the network
    gradient_note: str = ""  # who says so, where it is not as usual
    base_note: str = ""  # why the figure of one GPU is in doubt
    memory_note: str = ""  # which batch does not fit, and which would
    points_note: str = ""  # which figures of several GPUs contradict each other or are not used

    @property
    def single_gpu_speed(self) -> str:
        """What compute stands on, in words."""
        basis, _, source = self.compute_basis.partition(": ")
        if basis == "roofline":
            return source.replace("estimated", "roofline estimate", 1)
        return f"{basis} ({source})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StepParts:
    """Seconds of one step, by what is waited for."""

    compute_seconds: Floats
    exposed_communication_seconds: Floats
    input_seconds: Floats
    straggler_seconds: Floats
    communication_seconds: Floats  # of one exchange, with what is hidden

    @property
    def step_seconds(self) -> Floats:
        return (
            self.compute_seconds
            + self.exposed_communication_seconds
            + self.input_seconds
            + self.straggler_seconds
        )

    def at(self, row: int) -> Step:
        return Step(
            float(self.compute_seconds[row]),
            float(self.exposed_communication_seconds[row]),
            float(self.input_seconds[row]),
            float(self.straggler_seconds[row]),
        )


def step_parts(table: Table) -> StepParts:
    """The model of DESIGN's "A step", vectorised over the table."""
    traffic = table.traffic
    compute = table.fixed_seconds + table.batch_per_gpu * table.seconds_per_sample
    total, ideal = traffic.strategy.exchange_seconds(table, compute)
    overlap = np.where(table.nodes > 1, traffic.overlap_between, traffic.overlap)
    # parameters are averaged after an update, when there is nothing left to hide behind
    overlap = np.where(table.local_sgd > 1, 0.0, overlap)
    passes = table.accumulate * table.local_sgd
    exposed = (total - overlap * (total - ideal)) / passes + table.host_overhead_seconds
    disturbed = np.where(table.gpus > 1, traffic.slowdown, 0.0) + np.where(
        table.nodes > 1, traffic.slowdown_between, 0.0
    )
    straggling = compute * (disturbed + traffic.variation * expected_maximum(table.gpus))
    busy = compute + exposed + straggling
    input_exposed = np.maximum(0.0, input_seconds(table) - busy)
    return StepParts(compute, exposed, input_exposed, straggling, total)


def samples_per_second(table: Table) -> Floats:
    """The throughput of every row."""
    return table.gpus * table.batch_per_gpu / step_parts(table).step_seconds


def input_seconds(table: Table) -> Floats:
    """Storage (shared by all), what CPUs do to samples and the copy to each GPU, beside each other;
    the slowest counts."""
    traffic = table.traffic
    from_storage = (
        table.gpus
        * table.batch_per_gpu
        * traffic.storage_bytes_per_sample
        / table.storage_bytes_per_second
    )
    to_gpu = (
        table.batch_per_gpu * traffic.input_bytes_per_sample / table.host_to_gpu_bytes_per_second
    )
    prepared = table.batch_per_gpu * traffic.preprocess_seconds / table.input_workers
    return np.maximum(np.maximum(from_storage, prepared), to_gpu)
