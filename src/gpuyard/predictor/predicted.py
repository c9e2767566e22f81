"""Predictions as values, and the sentences that explain their choke, memory, and peer access."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.constants import Constant
from gpuyard.predictor.placement import Move, Placement
from gpuyard.predictor.scenario import PlatformScenario
from gpuyard.predictor.strategies.base import FRAMEWORK_BYTES, resolve_optimizer
from gpuyard.predictor.table import Step, compute_step_parts
from gpuyard.specs import (
    Precision,
    StrategyName,
)
from gpuyard.specs.workload import GradientDtype, Optimizer
from gpuyard.units import format_bytes, format_share
from gpuyard.workloads.profiles import advise_sharding

Choke = Literal["gpu", "network", "pcie", "storage", "host", "none"]
CHOKE_PARTS: tuple[Choke, ...] = ("gpu", "network", "pcie", "storage", "host")
_CHOKE_NAMES: dict[Choke, str] = {
    "gpu": "the GPUs",
    "network": "the links between the machines",
    "pcie": "the links inside the machine",
    "storage": "the disks that samples are read from",
    "host": "the CPUs of the host",
}
_OPTIMIZER_NAMES: dict[Optimizer, str] = {
    "sgd": "SGD",
    "momentum": "SGD with momentum",
    "adam": "Adam",
    "adamw": "AdamW",
    "adam-8bit": "8-bit Adam",
}


@dataclass(frozen=True)
class UncalibratedPrediction:
    """A prediction made without any measured multi-GPU figure or framework."""

    samples_per_second: float
    low: float
    high: float


@dataclass(frozen=True)
class Prediction:
    """The predicted step, throughput, and memory of one configuration."""

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
    fits: bool | None  # None: the GPU's memory size is unknown
    accumulate: int = 1
    local_sgd: int = 1
    compress: str | None = None
    bucket_bytes: float | None = None  # None: the framework's default
    hierarchical: bool = False
    other_jobs: int = 0  # number of identical jobs on the same machines
    precision: Precision = "fp32"
    moves: tuple[Move, ...] = ()  # transfers over one GPU's link in one step
    epoch_bytes: float | None = None  # all transfers of an epoch
    exchange_seconds: float = 0.0  # the mean exchange of a step, hidden or not
    before: UncalibratedPrediction | None = (
        None  # set if multi-GPU figures or the framework changed it
    )

    @property
    def placement(self) -> Placement:
        return Placement(self.gpus, self.nodes, self.gpus_per_node)


@dataclass(frozen=True)
class ClusterPrediction:
    """All predictions for one workload on one cluster, with their basis."""

    workload: str
    cluster: str
    compute_basis: str
    predictions: tuple[Prediction, ...]
    constants: tuple[Constant, ...]
    precision: Precision = "fp32"
    precision_note: str = ""  # why this precision, and what it means on this GPU
    # smallest batch at which one GPU reaches 90% of its maximum rate; None: any batch does
    saturating_batch: int | None = None
    points: int = 0  # number of multi-GPU figures used
    point_sources: tuple[str, ...] = ()  # distinct sources of those figures
    framework_note: str = ""  # what is known about the workload's framework
    gradient_dtype: GradientDtype = "fp32"  # number format of gradients on the network
    gradient_note: str = ""  # reason for an unusual gradient format
    base_note: str = ""  # why the single-GPU figure is in doubt
    memory_note: str = ""  # which batch does not fit, and which would
    points_note: str = ""  # multi-GPU figures that contradict each other or are unused
    peer_note: str = ""  # set if GPUs of a machine exchange data through host memory
    evidence_note: str = ""  # set if nothing is published for this GPU or its vendor
    optimizer: Optimizer = "momentum"
    memory_use_note: str = ""  # memory of a GPU that is used, and with which optimizer

    @property
    def single_gpu_speed(self) -> str:
        """A description of the basis of the single-GPU speed."""
        basis, _, source = self.compute_basis.partition(": ")
        if basis == "roofline":
            return source.replace("estimated", "roofline estimate", 1)
        return f"{basis} ({source})"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_choke(scenario: PlatformScenario, prediction: Prediction) -> str:
    """Return a sentence about the choke of one prediction and the gain from doubling its speed."""
    if prediction.choke == "none":
        return "There is no single choke: no part alone, twice as fast, would save 5% of the step."
    table = scenario.change_batch(prediction.batch_per_gpu).build_placement_table(
        [prediction.placement]
    )
    # All steps come from the formulas: a measured step may be longer for reasons that no part explains.
    current = float(compute_step_parts(table).step_seconds[0])
    gains = {
        part: 1 - float(compute_step_parts(table.double_speed(part)).step_seconds[0]) / current
        for part in CHOKE_PARTS
    }
    gain = gains[prediction.choke]
    reason = (
        "more than any other part would"
        if gain >= max(gains.values())
        else "and the last GPUs gained less than half of what the first one does"
    )
    return (
        f"The choke is {_CHOKE_NAMES[prediction.choke]}: twice as fast, they would shorten the step by "
        f"{format_share(gain)}, {reason}."
    )


def describe_peer_access(scenario: PlatformScenario, placements: Sequence[Placement]) -> str:
    """Say that `peer_to_peer: false` had an effect.

    It has none if links were measured or read from the machine itself.
    """
    platform = scenario.platform
    alone = all(placement.gpus_per_node == 1 for placement in placements)
    links_known = scenario.graph is not None or platform.link_basis != "assumed link"
    if (
        alone
        or links_known
        or scenario.cluster is None
        or resolve_machine(scenario.cluster)[1].peer_to_peer
    ):
        return ""
    return (
        f"Peer to peer: off in the machines of {platform.name}, according to its file. Their GPUs exchange data "
        "through the host's memory, and NVLink is unused."
    )


def describe_memory_use(scenario: PlatformScenario, predictions: Sequence[Prediction]) -> str:
    """Describe the memory of the largest batch by part, and name the optimizer."""
    largest = max(predictions, key=lambda p: p.memory_bytes)
    used = format_bytes(largest.memory_bytes)
    if largest.fits and scenario.platform.memory_bytes is not None:
        available = format_bytes(scenario.platform.memory_bytes)
        used = f"{used.removesuffix(available[-3:])} of {available}"
    without_batch = scenario.memory_bytes(largest.gpus, 0)
    activations = format_bytes(largest.memory_bytes - without_batch)
    model = format_bytes(without_batch - FRAMEWORK_BYTES)
    return (
        f"Memory: {used} per GPU (batch {largest.batch_per_gpu}, {_name_optimizer(scenario)}): {activations} for "
        f"activations, {model} for weights, gradients, and optimizer, and {format_bytes(FRAMEWORK_BYTES)} for CUDA "
        "and PyTorch."
    )


def _name_optimizer(scenario: PlatformScenario) -> str:
    return _OPTIMIZER_NAMES[resolve_optimizer(scenario.workload, scenario.profile)]


def describe_memory(scenario: PlatformScenario, predictions: Sequence[Prediction]) -> str:
    """Describe the smallest batch that does not fit, and the largest that would."""
    too_large = [p for p in predictions if p.fits is False]
    if not too_large or scenario.platform.memory_bytes is None:
        return ""
    smallest = min(too_large, key=lambda p: (p.batch_per_gpu, -p.gpus))
    largest_batch = scenario.largest_batch(smallest.gpus)
    return (
        f"A batch of {smallest.batch_per_gpu} does not fit: with {_name_optimizer(scenario)}, it needs "
        f"{format_bytes(smallest.memory_bytes)}, and a GPU has {format_bytes(scenario.platform.memory_bytes)}; "
        + (
            f"up to {largest_batch} would fit (--batch {largest_batch})"
            if largest_batch
            else "not even one sample fits"
        )
        + (f"; {advice}." if (advice := advise_sharding(scenario.workload)) else ".")
    )
