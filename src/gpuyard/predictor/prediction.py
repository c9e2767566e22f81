"""A prediction: the parts of one configuration's step, its throughput with an interval, and its choke.

All placements of a scenario are predicted from one table.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.calibration.document import Calibration
from gpuyard.predictor.compute import ComputeLine, describe_precision
from gpuyard.predictor.constants import Constant
from gpuyard.predictor.interval import estimate_interval
from gpuyard.predictor.knee import find_knee, list_knee_placements
from gpuyard.predictor.scenario import PlatformScenario, create_scenario
from gpuyard.predictor.software_stacks.evidence import (
    EvidenceNotes,
    describe_evidence,
    posterior_rates,
    update_prediction,
)
from gpuyard.predictor.software_stacks.posterior import Posterior
from gpuyard.predictor.strategies.base import FRAMEWORK_BYTES, resolve_optimizer
from gpuyard.predictor.table import (
    Configurations,
    Move,
    Placement,
    Step,
    StepParts,
    StepTable,
    compute_step_parts,
    samples_per_second,
)
from gpuyard.specs import (
    DEFAULT_EXCHANGE,
    DEFAULT_STRATEGY,
    Cluster,
    ExchangeOptions,
    Precision,
    StrategyName,
    Workload,
)
from gpuyard.specs.workload import GradientDtype, Optimizer
from gpuyard.units import format_bytes, format_share
from gpuyard.workloads.shapes import advise_sharding

Choke = Literal["gpu", "network", "pcie", "storage", "host", "none"]
_PARTS: tuple[Choke, ...] = ("gpu", "network", "pcie", "storage", "host")
_CHOKE_NAMES: dict[Choke, str] = {
    "gpu": "the GPUs",
    "network": "the links between the machines",
    "pcie": "the links inside the machine",
    "storage": "the disks that samples are read from",
    "host": "the CPUs of the host",
}
# if doubling the speed of any single part shortens the step by less than this, there is no choke
_MIN_GAIN = 0.05
_SINGLE_GPU = Placement(1, 1, 1)
_SATURATED_GAIN = (
    0.1  # a saturated GPU gains less than this share of samples/s from twice the batch
)


@dataclass(frozen=True)
class Unmeasured:
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
    beside: int = 0  # number of identical jobs on the same machines
    precision: Precision = "fp32"
    moves: tuple[Move, ...] = ()  # transfers over one GPU's link in one step
    epoch_bytes: float | None = None  # all transfers of an epoch
    before: Unmeasured | None = None  # set if multi-GPU figures or the framework changed it

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


def predict_cluster(
    workload: Workload,
    profile: ModelProfile,
    cluster: Cluster,
    gpus: Sequence[int],
    *,
    batches: Sequence[int] = (),
    strategy: StrategyName = DEFAULT_STRATEGY,
    gpus_per_node: int | None = None,
    exchange: ExchangeOptions = DEFAULT_EXCHANGE,
    other_jobs: int = 0,
    calibration: Calibration | None = None,
) -> ClusterPrediction:
    """Predict a workload on a described cluster that `other_jobs` identical jobs share."""
    scenario = create_scenario(
        workload,
        profile,
        cluster,
        strategy=strategy,
        exchange=exchange,
        other_jobs=other_jobs,
        calibration=calibration,
    )
    return predict(scenario, scenario.platform.placements(gpus, gpus_per_node), batches)


def predict(
    scenario: PlatformScenario, placements: Sequence[Placement], batches: Sequence[int] = ()
) -> ClusterPrediction:
    """Predict every placement at every batch, or at the workload's own batch if none is given."""
    _check_placements(scenario, placements)
    platform, workload, exchange = scenario.platform, scenario.workload, scenario.exchange
    batches = tuple(batches) or (workload.batch_per_gpu,)
    configurations = [(placement, batch) for placement in placements for batch in batches]
    table = scenario.build_table(Configurations.from_pairs(configurations))
    unshared = replace(scenario, platform=platform.unshared or platform)
    alone = unshared.build_table(
        Configurations.from_pairs([(_SINGLE_GPU, batch) for _, batch in configurations])
    )
    parts = compute_step_parts(table)
    gpus = np.array([placement.gpus for placement, _ in configurations], dtype=float)
    throughput = gpus * table.batch_per_gpu / parts.step_seconds
    efficiency = throughput / (gpus * samples_per_second(alone))
    interval = estimate_interval(
        table, parts, scenario.line.relative_uncertainty, platform.link_basis
    )
    low, high = interval.bounds(throughput)
    chokes = _apply_knees(scenario, configurations, _find_chokes(table, parts), parts)
    steps = [parts.get_step(row) for row in range(len(configurations))]
    before: list[Unmeasured | None] = [None] * len(configurations)
    notes, update = EvidenceNotes(), None
    if workload.measured or workload.framework or scenario.calibration:
        notes = describe_evidence(scenario)
        formulas = Posterior(np.log(parts.step_seconds), interval)
        update = update_prediction(scenario, configurations, formulas)
    if update is not None:
        before = [Unmeasured(*map(float, row)) for row in zip(throughput, low, high, strict=True)]
        posterior, single_gpu_rate = update
        throughput = posterior_rates(posterior, configurations)
        low, high = posterior.interval.bounds(throughput)
        efficiency = throughput / (gpus * single_gpu_rate)
        steps = [
            step.stretch_to(float(n * b / rate))
            for step, n, b, rate in zip(steps, gpus, table.batch_per_gpu, throughput, strict=True)
        ]
    memory = scenario.strategy.memory_bytes(
        workload, scenario.profile, exchange, batch_per_gpu=table.batch_per_gpu, gpus=gpus
    )
    samples = workload.dataset.samples if workload.dataset else None
    share = scenario.strategy.sent_share(workload, exchange)
    sent_bytes = share * scenario.buckets.total_bytes / exchange.period
    moves = [
        scenario.strategy.list_moves(scenario.profile, placement.gpus, batch, sent_bytes)
        for placement, batch in configurations
    ]
    predictions = tuple(
        Prediction(
            gpus=placement.gpus,
            nodes=placement.nodes,
            gpus_per_node=placement.gpus_per_node,
            batch_per_gpu=batch,
            strategy=cast("StrategyName", scenario.strategy.name),
            samples_per_second=float(throughput[i]),
            low=float(low[i]),
            high=float(high[i]),
            scaling_efficiency=float(efficiency[i]),
            step=steps[i],
            choke=chokes[i],
            epoch_seconds=samples / float(throughput[i]) if samples else None,
            training_seconds=workload.epochs * samples / float(throughput[i]) if samples else None,
            memory_bytes=float(memory[i]),
            fits=None
            if platform.memory_bytes is None
            else bool(memory[i] <= platform.memory_bytes),
            accumulate=exchange.accumulate,
            local_sgd=exchange.local_sgd,
            compress=exchange.compress,
            bucket_bytes=exchange.bucket_bytes,
            hierarchical=exchange.hierarchical,
            beside=platform.other_jobs,
            precision=scenario.precision,
            moves=moves[i],
            epoch_bytes=_epoch_bytes(moves[i], samples, placement.gpus * batch),
            before=before[i],
        )
        for i, (placement, batch) in enumerate(configurations)
    )
    line = scenario.line
    return ClusterPrediction(
        workload.name,
        platform.name,
        f"{line.basis}: {line.source}",
        predictions,
        scenario.constants,
        scenario.precision,
        describe_precision(scenario.gpu, workload, scenario.profile),
        saturating_batch=_find_saturating_batch(scenario.line),
        gradient_dtype=scenario.strategy.resolve_sent_dtype(workload, exchange),
        gradient_note=scenario.strategy.describe_gradients(workload, exchange),
        memory_note=_describe_memory(scenario, predictions),
        peer_note=_describe_peer_access(scenario, placements),
        evidence_note=line.caveat,
        optimizer=resolve_optimizer(workload, scenario.profile),
        memory_use_note=_describe_memory_use(scenario, predictions),
        **vars(notes),
    )


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
        for part in _PARTS
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


def _describe_peer_access(scenario: PlatformScenario, placements: Sequence[Placement]) -> str:
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


def _describe_memory_use(scenario: PlatformScenario, predictions: Sequence[Prediction]) -> str:
    """Describe the memory of the largest batch, with the optimizer and the share of the framework."""
    largest = max(predictions, key=lambda p: p.memory_bytes)
    available = scenario.platform.memory_bytes
    given = "" if scenario.workload.optimizer else ", the default for such models"
    optimizer = resolve_optimizer(scenario.workload, scenario.profile)
    of_gpu = "" if available is None else f" of a GPU's {format_bytes(available)}"
    return (
        f"Memory: {format_bytes(largest.memory_bytes)}{of_gpu} at a batch of {largest.batch_per_gpu}, with the optimizer "
        f"{optimizer}{given}; {format_bytes(FRAMEWORK_BYTES)} of it is for CUDA and the framework."
    )


def _describe_memory(scenario: PlatformScenario, predictions: Sequence[Prediction]) -> str:
    """Describe the smallest batch that does not fit, and the largest that would."""
    too_large = [p for p in predictions if p.fits is False]
    if not too_large or scenario.platform.memory_bytes is None:
        return ""
    smallest = min(too_large, key=lambda p: (p.batch_per_gpu, -p.gpus))
    largest_batch = scenario.largest_batch(smallest.gpus)
    return (
        f"A batch of {smallest.batch_per_gpu} does not fit: it needs {format_bytes(smallest.memory_bytes)} of a GPU's "
        f"{format_bytes(scenario.platform.memory_bytes)} with the optimizer "
        f"{resolve_optimizer(scenario.workload, scenario.profile)}; "
        + (
            f"up to {largest_batch} would fit (--batch {largest_batch})"
            if largest_batch
            else "not even one sample fits"
        )
        + (f"; {advice}." if (advice := advise_sharding(scenario.workload)) else ".")
    )


def _epoch_bytes(moves: Sequence[Move], samples: int | None, batch: int) -> float | None:
    """Return the bytes moved in an epoch; its last step may be smaller but moves as much."""
    if samples is None or not moves:
        return None
    return -(-samples // batch) * sum(move.size_bytes for move in moves)


def _find_saturating_batch(line: ComputeLine) -> int | None:
    """Return the smallest batch from which twice the batch gains too little.

    With r the fixed seconds over those of a sample, twice the batch B gains 2(B + r)/(2B + r) − 1.
    """
    fixed_samples = line.fixed_seconds / line.seconds_per_sample
    batch = math.ceil((1 - _SATURATED_GAIN) / (2 * _SATURATED_GAIN) * fixed_samples)
    return batch if batch > 1 else None


def _check_placements(scenario: PlatformScenario, placements: Sequence[Placement]) -> None:
    platform, strategy = scenario.platform, scenario.strategy
    jobs = platform.other_jobs + 1
    for gpus_per_node in (placement.gpus_per_node for placement in placements):
        if jobs * gpus_per_node > platform.gpus_per_node:
            gpus = "1 GPU" if gpus_per_node == 1 else f"{gpus_per_node} GPUs"
            raise UserMistake(
                f"{jobs} jobs with {gpus} per machine need {jobs * gpus_per_node} GPUs; "
                f"each machine has {platform.gpus_per_node}"
            )
    limit = strategy.max_machines
    if limit is not None and any(placement.nodes > limit for placement in placements):
        raise UserMistake(
            f"{strategy.machine_limit_reason}; {platform.name} has {platform.gpus_per_node} GPUs "
            "per machine. For more GPUs, use ddp or horovod"
        )


def _apply_knees(
    scenario: PlatformScenario,
    configurations: Sequence[tuple[Placement, int]],
    chokes: list[Choke],
    parts: StepParts,
) -> list[Choke]:
    """Replace GPUs as the choke past the knee, where added ones gain too little."""
    curves = {
        row: [
            smaller
            for smaller in list_knee_placements(placement.nodes, placement.gpus_per_node)
            if smaller.gpus < placement.gpus
        ]
        + [placement]
        for row, ((placement, _), choke) in enumerate(zip(configurations, chokes, strict=True))
        if choke == "gpu" and placement.gpus > 1
    }
    if not curves:
        return chokes
    pairs = [(place, configurations[row][1]) for row, curve in curves.items() for place in curve]
    rates = iter(samples_per_second(scenario.build_table(Configurations.from_pairs(pairs))))
    for row, curve in curves.items():
        counts = [placement.gpus for placement in curve]
        knee = find_knee(counts, np.array([next(rates) for _ in counts]))
        if not knee.is_past(counts[-1]):
            continue
        if parts.input_seconds[row] > parts.exposed_communication_seconds[row]:
            chokes[row] = "storage"
        else:
            chokes[row] = "network" if curve[-1].nodes > 1 else "pcie"
    return chokes


def _find_chokes(table: StepTable, parts: StepParts) -> list[Choke]:
    """Find, in each row, the part whose doubling in speed would shorten the step most."""
    gains = np.stack(
        [
            1 - compute_step_parts(table.double_speed(part)).step_seconds / parts.step_seconds
            for part in _PARTS
        ]
    )
    best = np.argmax(gains, axis=0)
    return [_PARTS[b] if gains[b, i] >= _MIN_GAIN else "none" for i, b in enumerate(best)]
